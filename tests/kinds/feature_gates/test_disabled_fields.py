"""Fields of features that are off: dropped from new objects, kept where the stored object uses the feature."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.in_process import InProcess, control_plane

from pinnace.cluster.settings import Settings
from pinnace.kinds.definitions import Definitions
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.kinds.feature_gates.inert_fields import InertFields
from pinnace.model.objects import Object
from pinnace.model.resources import Drop

PODS = "/api/v1/namespaces/default/pods"
SPEC: Object = {
    "hostUsers": False,
    "containers": [
        {
            "name": "main",
            "image": "nginx",
            "lifecycle": {"stopSignal": "SIGUSR1"},
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "bindMountOptions": ["noexec"]}],
            "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "scratch", "path": "a", "key": "A"}}}],
        }
    ],
    "volumes": [{"name": "scratch", "emptyDir": {"mode": 0o700}}],
    "os": {"name": "linux"},
}


def pod(**spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {**copy.deepcopy(SPEC), **spec},
    }


def drop_of(minor: str, name: str, gates: FeatureGates) -> Drop:
    return InertFields(lambda: Definitions.load(minor).schema(name), gates).drop or (lambda new, old: None)


def guarded_fields(obj: Object) -> Iterator[str]:
    """Yield the guarded fields that an object has."""
    spec = obj.get("spec", obj)
    main = spec["containers"][0]
    yield from ("hostUsers",) if "hostUsers" in spec else ()
    yield from ("lifecycle",) if "lifecycle" in main else ()
    yield from ("bindMountOptions",) if "bindMountOptions" in main["volumeMounts"][0] else ()
    yield from ("fileKeyRef",) if "fileKeyRef" in main["env"][0]["valueFrom"] else ()
    yield from ("mode",) if "mode" in spec["volumes"][0]["emptyDir"] else ()


@pytest.mark.parametrize(
    ("minor", "gates", "kept"),
    [
        ("1.37", "", ["hostUsers", "fileKeyRef"]),
        ("1.37", "VolumeBindMountOptions=true", ["hostUsers", "bindMountOptions", "fileKeyRef"]),
        ("1.37", "EmptyDirVolumeMode=true,EnvFiles=false", ["hostUsers", "mode"]),
        ("1.37", "AllAlpha=true,AllBeta=true", ["hostUsers", "lifecycle", "bindMountOptions", "fileKeyRef", "mode"]),
        ("1.36", "EnvFiles=false", ["hostUsers", "bindMountOptions", "mode"]),  # 1.36 does not know these two.
    ],
)
def test_a_new_object_keeps_the_fields_of_features_that_are_on(minor: str, gates: str, kept: list[str]) -> None:
    drop = drop_of(minor, "io.k8s.api.core.v1.Pod", FeatureGates.parse(minor, gates))
    new = pod()
    drop(new, None)
    assert list(guarded_fields(new)) == kept
    assert new["spec"]["os"] == {"name": "linux"}


def test_a_field_is_kept_while_the_stored_object_uses_its_feature() -> None:
    drop = drop_of("1.37", "io.k8s.api.core.v1.Pod", FeatureGates("1.37"))
    old, new = pod(), pod()
    new["spec"]["containers"][0]["volumeMounts"][0]["bindMountOptions"] = ["nosuid"]
    del old["spec"]["volumes"][0]["emptyDir"]["mode"]
    drop(new, old)
    assert list(guarded_fields(new)) == ["hostUsers", "lifecycle", "bindMountOptions", "fileKeyRef"]


@pytest.mark.parametrize(
    "body",
    [
        {"spec": {"containers": "x", "volumes": 3}},
        {"spec": []},
        {"spec": {"containers": [None, 3, [{}]], "volumes": {"a": {"emptyDir": {"mode": 1}}}}},
    ],
    ids=["scalars", "list", "nested"],
)
def test_values_of_other_types_are_left_to_validation(body: Object) -> None:
    drop = drop_of("1.37", "io.k8s.api.core.v1.Pod", FeatureGates("1.37"))
    drop(body, None)


def test_fields_in_the_values_of_a_map_are_dropped() -> None:
    name = "io.k8s.api.resource.v1.ResourceSlice"
    drop = drop_of("1.36", name, FeatureGates("1.36"))
    device = {"name": "gpu", "attributes": {"cores": {"ints": [1]}, "model": {"string": "a"}}}
    drop({"spec": {"devices": [device]}}, None)
    assert device["attributes"] == {"cores": {}, "model": {"string": "a"}}


def test_a_kind_without_guarded_fields_has_nothing_to_drop() -> None:
    name = "io.k8s.api.core.v1.ConfigMap"
    assert InertFields(lambda: Definitions.load("1.37").schema(name), FeatureGates("1.37")).drop is None


async def test_a_server_drops_fields_in_templates_and_keeps_those_of_its_gates() -> None:
    settings = Settings(kubernetes_version="1.37", feature_gates="VolumeBindMountOptions=true")
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]},
        },
    }
    async with control_plane(settings=settings) as api:
        made = await api.made("/apis/apps/v1/namespaces/default/deployments", deployment)
        assert list(guarded_fields(made["spec"]["template"]["spec"])) == ["hostUsers", "bindMountOptions", "fileKeyRef"]
        metrics = (await api.get("/metrics")).body.decode()
        assert 'kubernetes_feature_enabled{name="VolumeBindMountOptions",stage="ALPHA"} 1' in metrics
        assert 'kubernetes_feature_enabled{name="EmptyDirVolumeMode",stage="ALPHA"} 0' in metrics
        assert 'kubernetes_feature_enabled{name="UserNamespacesSupport",stage=""} 1' in metrics


async def test_apis_are_switched_on_and_off_by_version_and_by_resource() -> None:
    config = "api/beta=true,resource.k8s.io/v1beta2=false,apps/v1/daemonsets=false"
    async with control_plane(settings=Settings(kubernetes_version="1.36", runtime_config=config)) as api:
        assert (await api.get("/apis/resource.k8s.io/v1beta1/resourceslices")).status == 200
        assert (await api.get("/apis/resource.k8s.io/v1beta2/resourceslices")).status == 404
        assert (await api.get("/apis/apps/v1/daemonsets")).status == 404
        assert "daemonsets" not in await _names(api, "/apis/apps/v1")
        assert "deployments" in await _names(api, "/apis/apps/v1")


async def _names(api: InProcess, path: str) -> set[str]:
    return {resource["name"] for resource in (await api.get(path)).json["resources"]}


@pytest.mark.parametrize(("minor", "status"), [("1.36", 422), ("1.37", 201)])
async def test_an_autoscaler_may_have_no_replicas_at_least_where_the_gate_is_on(minor: str, status: int) -> None:
    queue = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "10"}}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 0,
            "maxReplicas": 3,
            "metrics": [{"type": "External", "external": queue}],
        },
    }
    async with control_plane(settings=Settings(kubernetes_version=minor)) as api:
        path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
        assert (await api.post(path, autoscaler)).status == status
