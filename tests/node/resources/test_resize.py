"""The resources of a pod change while it runs."""

from __future__ import annotations

import os

import pytest
from tests.node.agent.conftest import NodeInMemory, NodeUnderTest, RealNode

from pinnace.model.errors import Forbidden
from pinnace.model.objects import Object


def _first(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    first: Object = statuses[0]
    return first


async def test_a_pod_is_resized_in_place(node: RealNode) -> None:
    resources = {"requests": {"cpu": "100m", "memory": "20Mi"}, "limits": {"cpu": "200m", "memory": "40Mi"}}
    await node.create("grows", "sleep 1000", container={"resources": resources})
    before = await node.until_ready("grows")
    assert _first(before)["resources"] == resources
    assert _first(before)["allocatedResources"] == resources["requests"]
    wanted = {"requests": {"cpu": "150m", "memory": "30Mi"}, "limits": {"cpu": "300m", "memory": "60Mi"}}
    await _resize(node, "grows", wanted)
    after = await node.until_pod("grows", lambda pod: _first(pod).get("resources") == wanted)
    assert _first(after)["containerID"] == _first(before)["containerID"]
    assert _first(after)["restartCount"] == 0
    after = await node.until_pod("grows", lambda pod: "PodResizeInProgress" not in _conditions(pod))
    assert after["status"]["observedGeneration"] == after["metadata"]["generation"]
    (container,) = await node.runtime.containers()
    assert container.config.resources.memory_bytes == 60 << 20
    if os.geteuid() == 0:
        result = await node.runtime.exec_sync(container.id, ["sh", "-c", _READ_LIMIT], timeout=60)
        assert result.output.split() == [str(60 << 20).encode()]


_READ_LIMIT = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || true"


async def test_a_resize_policy_asks_for_a_restart(node: RealNode) -> None:
    resources = {"requests": {"memory": "20Mi"}}
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    container = {"resources": resources, "resizePolicy": policy}
    await node.create("restarts", "sleep 1000", container=container, terminationGracePeriodSeconds=1)
    await node.until_ready("restarts")
    await _resize(node, "restarts", {"requests": {"memory": "30Mi"}})
    pod = await node.until_pod("restarts", lambda pod: _first(pod).get("restartCount") == 1)
    assert pod["metadata"]["generation"] == 2


async def test_a_resize_beyond_the_node_is_refused(memory_node: NodeInMemory) -> None:
    await memory_node.create("greedy", "sleep 1000", container={"resources": {"requests": {"cpu": "100m"}}})
    await memory_node.until_ready("greedy")
    with pytest.raises(Forbidden, match="node didn't have enough allocatable resources: cpu, requested: 10000000"):
        await _resize(memory_node, "greedy", {"requests": {"cpu": "10k"}})


@pytest.mark.parametrize("memory_node", ["1.35"], indirect=True)
async def test_a_resize_beyond_the_node_is_infeasible_if_the_server_admits_it(memory_node: NodeInMemory) -> None:
    await memory_node.create("greedy", "sleep 1000", container={"resources": {"requests": {"cpu": "100m"}}})
    await memory_node.until_ready("greedy")
    await _resize(memory_node, "greedy", {"requests": {"cpu": "10k"}})
    pod = await memory_node.until_pod("greedy", lambda pod: "PodResizePending" in _conditions(pod))
    assert _conditions(pod)["PodResizePending"]["reason"] == "Infeasible"
    assert _first(pod)["resources"]["requests"] == {"cpu": "100m"}
    await _resize(memory_node, "greedy", {"requests": {"cpu": "100m"}})
    await memory_node.until_pod("greedy", lambda pod: "PodResizePending" not in _conditions(pod))


def _conditions(pod: Object) -> dict[str, Object]:
    return {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or ()}


async def _resize(node: NodeUnderTest, name: str, resources: Object) -> None:
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    await node.client.patch("v1/Pod", name, patch, namespace="default", subresource="resize", form="strategic")


async def test_a_whole_pod_is_resized_without_a_restart(node: RealNode) -> None:
    small = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
    await node.create("whole", "sleep 1000", resources=small)
    before = await node.until_ready("whole")
    assert before["status"]["resources"] == small
    assert before["status"]["allocatedResources"] == small["requests"]
    large = {"requests": {"cpu": "150m", "memory": "48Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}}
    await node.client.patch(
        "v1/Pod", "whole", {"spec": {"resources": large}}, namespace="default", subresource="resize", form="strategic"
    )
    after = await node.until_pod("whole", lambda pod: pod["status"].get("resources") == large)
    assert after["status"]["allocatedResources"] == large["requests"]
    assert _first(after)["restartCount"] == 0
    (container,) = await node.runtime.containers()
    assert container.config.resources.memory_bytes == 96 << 20  # One without a limit of its own has that of the pod.
    if os.geteuid() == 0:
        result = await node.runtime.exec_sync(container.id, ["sh", "-c", _READ_LIMIT], timeout=60)
        assert result.output.split() == [str(96 << 20).encode()]
