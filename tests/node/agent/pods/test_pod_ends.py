"""The end of a pod that was deleted: its last status, and its readiness until then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.node.agent.conftest import NodeInMemory, is_ready

from pinnace.model.objects import Object
from pinnace.node.errors import SandboxFailed
from pinnace.node.runtime.runtime import ContainerStatus, ExecResult

_FINALIZER = {"finalizers": ["example.com/wait"]}


def _state(pod: Object, kind: str = "containerStatuses") -> Object:
    statuses = (pod.get("status") or {}).get(kind) or [{"state": {}}]
    state: Object = statuses[0]["state"]
    return state


async def _delete(node: NodeInMemory, name: str) -> None:
    await node.client.delete("v1/Pod", name, namespace="default")


async def _release(node: NodeInMemory, name: str) -> None:
    await node.client.patch("v1/Pod", name, {"metadata": {"finalizers": None}}, namespace="default")
    await node.until_gone(name)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
async def test_a_deleted_pod_has_the_phase_of_its_exit_codes_and_keeps_it(
    memory_node: NodeInMemory, policy: str, code: int, phase: str
) -> None:
    node = memory_node
    node.runtime.stubborn.add("main")
    await node.create("web", restartPolicy=policy, metadata=_FINALIZER)
    await node.until_ready("web")
    await _delete(node, "web")

    async def is_stopping() -> bool:
        return "stop_container" in node.runtime.calls

    await node.until(is_stopping)
    node.runtime.end_container(node.runtime.find("web", "main").id, code)
    await node.clock.advance(30)
    await node.until_phase("web", phase)
    await node.client.patch("v1/Pod", "web", {"metadata": {"labels": {"seen": "again"}}}, namespace="default")
    await node.agent.controller.queue.idle()
    pod = await node.until_phase("web", phase)
    assert _state(pod)["terminated"]["exitCode"] == code
    await _release(node, "web")


async def test_a_deleted_pod_keeps_its_last_status_when_another_agent_comes(memory_node: NodeInMemory) -> None:
    node = memory_node
    await node.create("web", metadata=_FINALIZER)
    await node.until_ready("web")
    await _delete(node, "web")
    before = await node.until_phase("web", "Failed")
    await node.kill_agent()
    await node.start_agent()
    await node.create("other")
    await node.until_ready("other")
    await node.agent.controller.queue.idle()
    assert (await node.until_phase("web", "Failed"))["status"] == before["status"]
    await _release(node, "web")


async def test_a_pod_that_was_deleted_before_it_ran_has_failed(memory_node: NodeInMemory) -> None:
    node = memory_node
    with node.runtime.failing("run_sandbox", SandboxFailed("all addresses are in use")):
        await node.create("web", metadata=_FINALIZER)
        await node.until_event("web", "all addresses are in use")
        await _delete(node, "web")
        pod = await node.until_phase("web", "Failed")
    ended = _state(pod)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    assert ended["message"] == "The container could not be located when the pod was terminated"
    await _release(node, "web")


async def test_a_container_that_a_deleted_pod_never_came_to_still_waits(memory_node: NodeInMemory) -> None:
    node = memory_node
    init: dict[str, Any] = {"name": "first", "image": "web"}
    await node.create("web", metadata=_FINALIZER, initContainers=[init])
    await node.until_pod("web", lambda pod: "running" in _state(pod, "initContainerStatuses"))
    await _delete(node, "web")
    pod = await node.until_phase("web", "Failed")
    assert _state(pod, "initContainerStatuses")["terminated"]["exitCode"] == 143
    assert "waiting" in _state(pod)
    await _release(node, "web")


async def test_readiness_is_probed_until_the_containers_have_ended(memory_node: NodeInMemory) -> None:
    """A server that ends gracefully says when it takes no more requests; liveness does not matter any more."""
    node = memory_node
    outcomes = [False, True, False]
    is_passing = True
    probed: list[str] = []

    def run(container: ContainerStatus, command: Sequence[str]) -> ExecResult:
        probed.append(command[0])
        return ExecResult(0 if is_passing else 1, b"")

    node.runtime.run_command = run
    node.runtime.stubborn.add("main")
    probes = {
        f"{kind}Probe": {"exec": {"command": [kind]}, "periodSeconds": 1, "failureThreshold": 1}
        for kind in ("readiness", "liveness")
    }
    await node.create("web", container=probes, terminationGracePeriodSeconds=300)
    await node.until_ready("web")
    await node.client.delete("v1/Pod", "web", namespace="default", grace_seconds=300)

    async def is_stopping() -> bool:
        return "stop_container" in node.runtime.calls

    await node.until(is_stopping)
    probed.clear()

    async def has_changed() -> bool:
        await node.clock.advance(1)
        return is_ready(await node.get("web") or {}) is is_passing

    while outcomes:
        is_passing = outcomes.pop()
        await node.until(has_changed)
    assert set(probed) == {"readiness"}
    pod = await node.get("web")
    assert pod is not None
    assert pod["status"]["phase"] == "Running"
    assert "running" in _state(pod)
    await node.clock.advance(300)
    await asyncio.wait_for(node.until_gone("web"), 60)


async def test_the_status_of_a_pod_that_was_made_again_is_written_without_a_failure(
    memory_node: NodeInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    node = memory_node
    with node.runtime.hanging("create_container", pod="again") as interference:
        first = await node.create("again")

        async def is_starting() -> bool:
            return interference.hits > 0

        await node.until(is_starting)
        await node.client.delete("v1/Pod", "again", namespace="default", grace_seconds=0)
        second = await node.create("again")
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
    await node.until_phase("again", "Running")
    assert not [record for record in caplog.records if record.exc_info or "metadata.uid" in record.getMessage()]
