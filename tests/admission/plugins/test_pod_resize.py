"""A bound pod grows only as far as its node allows."""

from __future__ import annotations

import pytest
from tests.server.in_process import PODS, InProcess, Object, control_plane, pod

from pinnace.cluster.settings import Settings

LARGE = {"cpu": "1500m", "memory": "3Gi"}
PATCH: Object = {"spec": {"containers": [{"name": "c", "resources": {"requests": LARGE}}]}}
NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
STATUS: Object = {"status": {"allocatable": {"cpu": "1", "memory": "2Gi"}, "declaredFeatures": []}}


async def bind(api: InProcess, labels: Object | None = None) -> None:
    await api.made("/api/v1/nodes", {**NODE, "metadata": {"name": "n1", "labels": labels or {}}})
    assert (await api.patch("/api/v1/nodes/n1/status", STATUS)).status == 200
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    await api.made(PODS, pod("web", nodeName="n1", containers=[container]))


async def test_a_resize_beyond_the_allocatable_amounts_of_the_node_is_refused(api: InProcess) -> None:
    await bind(api)
    refused = await api.patch(f"{PODS}/web/resize", PATCH, "application/strategic-merge-patch+json")
    assert (refused.status, refused.message) == (
        403,
        'pods "web" is forbidden: node didn\'t have enough allocatable resources: '
        "cpu, requested: 1500, allocatable: 1000; memory, requested: 3221225472, allocatable: 2147483648",
    )
    assert refused.json["details"]["causes"] == [{"reason": "NodeCapacity"}]


@pytest.mark.parametrize(
    ("before", "error"),
    [
        ("windows", 'pod resize is only supported on linux nodes, node "n1" is "windows"'),
        ("gone", 'node "n1" not found'),
    ],
)
async def test_a_resize_needs_a_node_that_can_do_it(api: InProcess, before: str, error: str) -> None:
    await bind(api, {"kubernetes.io/os": before})
    if before == "gone":
        await api.delete("/api/v1/nodes/n1")
    refused = await api.patch(f"{PODS}/web/resize", PATCH, "application/strategic-merge-patch+json")
    assert (refused.status, refused.message) == (403, f'pods "web" is forbidden: {error}')


async def test_kubernetes_1_35_leaves_the_decision_to_the_node() -> None:
    async with control_plane(settings=Settings(kubernetes_version="1.35")) as api:
        await bind(api)
        assert (await api.patch(f"{PODS}/web/resize", PATCH, "application/strategic-merge-patch+json")).status == 200
