"""A bound pod changes only in ways that its node says it can follow."""

from __future__ import annotations

from tests.server.in_process import PODS, InProcess, pod

POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"
SMALL, LARGE = {"cpu": "100m", "memory": "64Mi"}, {"cpu": "200m", "memory": "64Mi"}


async def resize(api: InProcess, features: list[str]) -> tuple[int, str]:
    """Resize a bound pod as a whole; return the code and the message."""
    await api.made("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    declared = {"status": {"declaredFeatures": features, "allocatable": {"cpu": "1", "memory": "1Gi"}}}
    assert (await api.patch("/api/v1/nodes/n1/status", declared)).status == 200
    made = pod("web")
    made["spec"] |= {"nodeName": "n1", "resources": {"requests": SMALL, "limits": SMALL}}
    await api.made(PODS, made)
    patch = {"spec": {"resources": {"requests": LARGE, "limits": LARGE}}}
    answer = await api.patch(f"{PODS}/web/resize", patch)
    return answer.status, answer.json.get("message", "")


async def test_a_resize_of_a_whole_pod_needs_a_node_that_declares_it(api: InProcess) -> None:
    code, message = await resize(api, ["RestartAllContainersOnContainerExits"])
    assert code == 403
    assert message == (
        'pods "web" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling '
        'which are not available on node "n1"'
    )


async def test_a_node_that_declares_it_allows_the_resize(api: InProcess) -> None:
    assert await resize(api, [POD_LEVEL]) == (200, "")
