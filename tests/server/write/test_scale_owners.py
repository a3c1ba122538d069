"""The field manager of a workload's replicas is tracked as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import InProcess

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SCALE = f"{DEPLOYMENTS}/web/scale"
APPLY, MERGE, STRATEGIC = (
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
CONFLICT = "Apply failed with 1 conflict: conflict with {} using autoscaling/v1: .spec.replicas"


def deployment(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def scale(replicas: Any, **metadata: Any) -> dict[str, Any]:
    metadata = {"name": "web", **metadata}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}


async def owners(api: InProcess) -> list[tuple[str, str, str, bool, bool]]:
    """Return manager, operation, subresource, whether it owns the replicas, and whether there is a time."""
    entries = (await api.get(f"{DEPLOYMENTS}/web")).json["metadata"].get("managedFields", [])
    assert {entry["apiVersion"] for entry in entries} <= {"apps/v1"}
    return [
        (
            entry["manager"],
            entry["operation"],
            entry.get("subresource", ""),
            "f:replicas" in entry["fieldsV1"]["f:spec"],
            "time" in entry,
        )
        for entry in entries
    ]


async def test_the_manager_of_replicas_owns_them_in_the_version_of_scales(api: InProcess) -> None:
    await api.made(f"{DEPLOYMENTS}?fieldManager=maker", deployment(replicas=3))
    refused = await api.patch(f"{SCALE}?fieldManager=scaler", scale(5), APPLY)
    assert (refused.status, refused.json["message"]) == (409, CONFLICT.format('"maker"'))


async def test_replicas_without_a_manager_belong_to_before_first_apply(api: InProcess) -> None:
    await api.patch(f"{DEPLOYMENTS}/web?fieldManager=maker", deployment(), APPLY)
    refused = await api.patch(f"{SCALE}?fieldManager=scaler", scale(5), APPLY)
    assert refused.status == 409
    assert refused.json["message"] == CONFLICT.format('"before-first-apply" with subresource "scale"')
    assert (await api.patch(f"{SCALE}?fieldManager=scaler", scale(1), APPLY)).status == 200
    assert await owners(api) == [
        ("scaler", "Apply", "scale", True, False),
        ("maker", "Apply", "", False, True),
        ("before-first-apply", "Update", "scale", True, False),
    ]


async def test_a_forced_scale_takes_only_the_replicas(api: InProcess) -> None:
    await api.made(f"{DEPLOYMENTS}?fieldManager=maker", deployment(replicas=3))
    assert (await api.patch(f"{SCALE}?fieldManager=scaler&force=true", scale(5), APPLY)).status == 200
    assert await owners(api) == [("scaler", "Apply", "scale", True, False), ("maker", "Update", "", False, True)]


async def test_an_equal_apply_leaves_the_first_manager_its_own_entry(api: InProcess) -> None:
    await api.made(f"{DEPLOYMENTS}?fieldManager=maker", deployment(replicas=3))
    assert (await api.patch(f"{SCALE}?fieldManager=scaler", scale(3), APPLY)).status == 200
    assert await owners(api) == [
        ("scaler", "Apply", "scale", True, False),
        ("maker", "Update", "", True, False),
        ("maker", "Update", "", False, True),
    ]


async def test_repeated_scaling_can_be_overwritten_by_apply(api: InProcess) -> None:
    await api.made(f"{DEPLOYMENTS}?fieldManager=maker", deployment(replicas=3))
    for replicas in (4, 5):
        assert (await api.put(f"{SCALE}?fieldManager=hand", scale(replicas))).status == 200
    assert await owners(api) == [("hand", "Update", "scale", True, False), ("maker", "Update", "", False, True)]
    assert (await api.patch(f"{SCALE}?fieldManager=scaler", scale(5), APPLY)).status == 200
    assert await owners(api) == [
        ("scaler", "Apply", "scale", True, False),
        ("hand", "Update", "scale", True, False),
        ("maker", "Update", "", False, True),
    ]


async def test_an_applied_scale_without_replicas_wants_none(api: InProcess) -> None:
    await api.made(f"{DEPLOYMENTS}?fieldManager=maker", deployment(replicas=3))
    await api.patch(f"{SCALE}?fieldManager=scaler&force=true", scale(5), APPLY)
    patched = await api.patch(f"{SCALE}?fieldManager=scaler", {**scale(0), "spec": {}}, APPLY)
    assert patched.json["spec"] == {}
    assert (await api.get(f"{DEPLOYMENTS}/web")).json["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("body", "content_type", "query", "code", "message"),
    [
        (scale(-1), APPLY, "&force=true", 422, 'Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1'),
        (scale("x"), APPLY, "", 500, "failed to create typed patch object (/web; autoscaling/v1, Kind=Scale)"),
        ({**scale(1), "foo": 1}, APPLY, "", 500, "failed to create typed patch object (/web; autoscaling/v1"),
        (scale(3, uid="x"), APPLY, "", 409, 'Operation cannot be fulfilled on deployments/scale.apps "web": Precond'),
        ({"spec": {"replicas": "x"}}, STRATEGIC, "", 422, ' "" is invalid: patch: Invalid value: "map[spec:map[repl'),
        ({}, MERGE, "&force=true", 422, 'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden'),
        ({"metadata": {"namespace": "other"}}, MERGE, "", 400, "the namespace of the provided object does not match"),
    ],
)
async def test_a_scale_that_cannot_be_is_refused_as_a_scale(
    api: InProcess, body: Any, content_type: str, query: str, code: int, message: str
) -> None:
    await api.made(f"{DEPLOYMENTS}?fieldManager=maker", deployment(replicas=3))
    refused = await api.patch(f"{SCALE}?fieldManager=scaler{query}", body, content_type)
    assert (refused.status, refused.json["message"][: len(message)]) == (code, message)
