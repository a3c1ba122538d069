"""Plug-ins that change pods, or limit what they may have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.admission.plugins.optional.running import NAMESPACES, annotate, configure, running
from tests.server.in_process import PODS, InProcess, Object, pod

from pinnace.admission.chain import AdmissionChain
from pinnace.admission.plugins.optional.always_pull_images import AlwaysPullImages
from pinnace.admission.plugins.optional.pod_node_selector import ANNOTATION
from pinnace.admission.plugins.optional.pod_tolerations import DEFAULTS, PERMITTED
from pinnace.model import errors
from pinnace.model.users import User
from pinnace.model.write_review import Review

TEAM: Object = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
ANY: Object = {"operator": "Exists"}
PRESSURE: Object = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}


def container(image: str = "i", **more: Any) -> Object:
    return {"name": "c", "image": image, **more}


async def test_all_images_of_a_new_pod_are_pulled_for_each_start() -> None:
    async with running("AlwaysPullImages") as server:
        volumes = [{"name": "v", "image": {"reference": "data:1", "pullPolicy": "IfNotPresent"}}]
        first = [{"name": "first", "image": "f:1", "imagePullPolicy": "Never"}]
        made = await server.made(PODS, pod("a", containers=[container("c:1")], initContainers=first, volumes=volumes))
        assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"
        assert made["spec"]["initContainers"][0]["imagePullPolicy"] == "Always"
        assert made["spec"]["volumes"][0]["image"]["pullPolicy"] == "Always"


async def test_a_webhook_cannot_undo_the_pull_policy() -> None:
    async with running() as server:
        pods = server.plane.foundation.stored_resource("", "pods")
        images = {"name": "v", "image": {"reference": "x"}}
        spec = {"containers": [container(imagePullPolicy="Never")], "volumes": [images]}
        review = Review("CREATE", pods, "", "default", "a", {"metadata": {"name": "a"}, "spec": spec}, None, User("u"))
        with pytest.raises(errors.UnknownError) as refused:
            AdmissionChain((), (AlwaysPullImages(),)).validate(review)
        assert refused.value.message == (
            '[pods "a" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "Never": supported values: '
            '"Always", pods "a" is forbidden: spec.volumes[0].image.pullPolicy: Unsupported value: "": supported '
            'values: "Always"]'
        )


SELECTORS = {"clusterDefaultNodeSelector": "env=dev", "default": "env=dev,zone=1"}


async def test_pods_get_the_node_selector_of_their_namespace_or_the_default(tmp_path: Path) -> None:
    file = configure(tmp_path, "PodNodeSelector", {"podNodeSelectorPluginConfig": SELECTORS})
    async with running("PodNodeSelector", configuration=file) as server:
        made = await server.made(PODS, pod("a", nodeSelector={"zone": "1"}))
        assert made["spec"]["nodeSelector"] == {"env": "dev", "zone": "1"}
        await annotate(server, "default", {ANNOTATION: "env = dev , zone=1"})
        assert (await server.made(PODS, pod("b")))["spec"]["nodeSelector"] == {"env": "dev", "zone": "1"}
        await annotate(server, "default", {ANNOTATION: ""})
        assert "nodeSelector" not in (await server.made(PODS, pod("c")))["spec"]


@pytest.mark.parametrize(
    ("annotation", "selector", "status", "error"),
    [
        (None, {"env": "prod"}, 403, "pod node label selector conflicts with its namespace node label selector"),
        (None, {"disk": "ssd"}, 403, "pod node label selector labels conflict with its namespace whitelist"),
        ("a=b=c", {}, 500, "invalid selector: [a b c]"),
        ("a", {}, 500, "invalid selector: [a]"),
        ("a b=c", {}, 500, '<nil>: Invalid value: "a b": name part must consist of alphanumeric'),
        ("a=b c", {}, 500, '<nil>: Invalid value: "b c": a valid label must be an empty string'),
    ],
    ids=["conflict", "not permitted", "three parts", "one part", "key", "value"],
)
async def test_a_selector_that_does_not_fit_is_refused(
    tmp_path: Path, annotation: str | None, selector: Object, status: int, error: str
) -> None:
    file = configure(tmp_path, "PodNodeSelector", {"podNodeSelectorPluginConfig": SELECTORS})
    async with running("PodNodeSelector", configuration=file) as server:
        if annotation is not None:
            await annotate(server, "default", {ANNOTATION: annotation})
        refused = await server.post(PODS, pod("a", nodeSelector=selector))
        start = 'pods "a" is forbidden: ' if status == 403 else ""
        assert (refused.status, refused.message[: len(start + error)]) == (status, start + error)


def own_of(made: Object) -> list[Object]:
    """The tolerations of a pod without those that every pod gets."""
    return [item for item in made["spec"]["tolerations"] if "tolerationSeconds" not in item]


def tolerations(default: list[Object], permitted: list[Object]) -> Object:
    group = "podtolerationrestriction.admission.k8s.io/v1alpha1"
    return {"apiVersion": group, "kind": "Configuration", "default": default, "whitelist": permitted}


async def test_pods_get_the_tolerations_of_their_namespace_or_of_the_cluster(tmp_path: Path) -> None:
    file = configure(tmp_path, "PodTolerationRestriction", tolerations([TEAM], []))
    async with running("PodTolerationRestriction", configuration=file) as server:
        assert own_of(await server.made(PODS, pod("a"))) == [TEAM]
        requesting = [container(resources={"requests": {"cpu": "1"}})]
        assert own_of(await server.made(PODS, pod("b", containers=requesting))) == [TEAM, PRESSURE]
        odd = [{"key": "x", "operator": "Exists", "unknown": 1, "effect": None}]
        await annotate(server, "default", {DEFAULTS: json.dumps(odd)})
        assert own_of(await server.made(PODS, pod("c"))) == [{"key": "x", "operator": "Exists"}]
        await annotate(server, "default", {DEFAULTS: ""})
        assert own_of(await server.made(PODS, pod("d"))) == []


async def test_pods_have_only_permitted_tolerations(tmp_path: Path) -> None:
    file = configure(tmp_path, "PodTolerationRestriction", tolerations([], [{**ANY, "effect": "NoExecute"}, TEAM]))
    async with running("PodTolerationRestriction", configuration=file) as server:
        assert (await server.post(PODS, pod("a", tolerations=[TEAM]))).status == 201
        refused = await server.post(PODS, pod("b", tolerations=[{**TEAM, "value": "b"}]))
        merged = "pod tolerations (possibly merged with namespace default tolerations)"
        assert (refused.status, refused.message) == (500, f"{merged} conflict with its cluster whitelist")
        await annotate(server, "default", {PERMITTED: json.dumps([{"key": "x", "operator": "Exists"}])})
        refused = await server.post(PODS, pod("c", tolerations=[TEAM]))
        assert (refused.status, refused.message) == (500, f"{merged} conflict with its namespace whitelist")
        await annotate(server, "default", {PERMITTED: ""})
        assert (await server.post(PODS, pod("d", tolerations=[ANY]))).status == 201


@pytest.mark.parametrize(
    ("annotation", "status", "error"),
    [
        ("{", 500, "annotation scheduler.alpha.kubernetes.io/defaultTolerations of the namespace is not JSON"),
        ('[{"key": 1}]', 500, "of the namespace is not a list of tolerations"),
        ('{"key": "a"}', 500, "of the namespace is not a list of tolerations"),
        (json.dumps([TEAM] * 201), 403, "pod and namespace have more than 200 tolerations"),
    ],
    ids=["no JSON", "type", "no list", "many"],
)
async def test_odd_tolerations_of_a_namespace_are_named(annotation: str, status: int, error: str) -> None:
    async with running("PodTolerationRestriction") as server:
        await annotate(server, "default", {DEFAULTS: annotation})
        refused = await server.post(PODS, pod("a"))
        assert (refused.status, error in refused.message) == (status, True), refused.message


async def test_pods_tolerate_the_taints_of_extended_resources_that_they_request() -> None:
    wanted = {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    with_gpu = [container(resources={"limits": {"example.com/gpu": "1", "cpu": "1"}})]
    async with running("ExtendedResourceToleration") as server:
        assert own_of(await server.made(PODS, pod("a", containers=with_gpu))) == [wanted]
        twice = await server.made(PODS, pod("b", containers=with_gpu, tolerations=[TEAM, wanted]))
        assert own_of(twice) == [TEAM, wanted]
        assert own_of(await server.made(PODS, pod("c"))) == []


async def nothing_changes(server: InProcess) -> None:
    made = await server.made(PODS, pod("a", containers=[container("c:1")]))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert "nodeSelector" not in made["spec"]
    assert own_of(made) == []


async def test_none_of_them_acts_by_default() -> None:
    async with running() as server:
        await nothing_changes(server)
        assert (await server.post(f"{NAMESPACES}/new/configmaps", {"metadata": {"name": "a"}})).status == 404
