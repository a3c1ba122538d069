"""The Ready condition says what is true, and goes back to True by itself."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.node.agent.conftest import NODE, NodeInMemory, NodeUnderTest, RealNode
from tests.node.namespaces import need_namespaces
from tests.server.in_process import control_plane

from pinnace.cluster.in_process import in_process_client
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Node
from pinnace.node.agent.kubelet_api.web_pages import WebPages
from pinnace.node.agent.status import registration
from pinnace.node.agent.status.node_conditions import have_changed, node_conditions
from pinnace.node.agent.status.node_health import check_disk
from pinnace.node.agent.status.registration import RENEW_SECONDS, NodeIdentity, Registration
from pinnace.node.pressure.signals import Signal
from pinnace.node.pressure.storage_meter import StorageMeter
from pinnace.process.tasks import Tasks
from pinnace.reconcile.manager import Manager
from pinnace.testing.clock import ManualClock

_TYPES = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
_THEN, _NOW = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


async def ready_of(node: NodeUnderTest) -> Object:
    obj = await node.client.get_or_none("v1/Node", NODE)
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "Ready"), {})


async def until_ready(node: NodeUnderTest, is_wanted: Callable[[Object], bool]) -> Object:
    """Wait until the Ready condition is as wanted; the agent's time passes quickly meanwhile."""

    async def is_there() -> bool:
        await node.clock.advance(1.0)
        return is_wanted(await ready_of(node))

    await node.until(is_there)
    return await ready_of(node)


async def forget(node: NodeUnderTest) -> None:
    """Mark the node as node-lifecycle marks one that was silent: all conditions are Unknown."""
    conditions = [
        {
            "type": type_,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
        for type_ in _TYPES
    ]
    patch = {"status": {"conditions": conditions}}
    await node.client.patch("v1/Node", NODE, patch, subresource="status", form="strategic")


async def taints_of(node: NodeUnderTest) -> list[str]:
    obj = await node.client.get("v1/Node", NODE)
    return [taint["key"] for taint in obj["spec"].get("taints") or ()]


async def test_a_node_that_was_silent_is_ready_again_and_loses_its_taints(memory_node: NodeInMemory) -> None:
    await until_ready(memory_node, lambda ready: ready.get("status") == "True")
    await forget(memory_node)

    async def is_tainted() -> bool:
        return "node.kubernetes.io/unreachable" in await taints_of(memory_node)

    async def is_free() -> bool:
        await memory_node.clock.advance(RENEW_SECONDS)
        return not await taints_of(memory_node)

    if (await ready_of(memory_node))["status"] == "Unknown":
        await memory_node.until(is_tainted)
    ready = await until_ready(memory_node, lambda ready: ready["status"] == "True")
    assert (ready["reason"], ready["message"]) == ("KubeletReady", "kubelet is posting ready status")
    await memory_node.until(is_free)
    obj = await memory_node.client.get("v1/Node", NODE)
    assert {condition["type"]: condition["status"] for condition in obj["status"]["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }


async def test_a_node_whose_object_was_deleted_registers_again(memory_node: NodeInMemory) -> None:
    before = await memory_node.client.get("v1/Node", NODE)
    await memory_node.client.delete("v1/Node", NODE)
    await until_ready(memory_node, lambda ready: ready.get("status") == "True")
    after = await memory_node.client.get("v1/Node", NODE)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    await memory_node.create("later", ["sleep", "1000"])
    await memory_node.until_ready("later")
    await memory_node.delete("later")


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_jump_of_the_clock_leaves_the_node_ready(memory_node: NodeInMemory, hours: int) -> None:
    await until_ready(memory_node, lambda ready: ready.get("status") == "True")
    lease = await memory_node.client.get("coordination.k8s.io/v1/Lease", NODE, namespace="kube-node-lease")
    memory_node.clock.set(memory_node.clock.now() + timedelta(hours=hours))

    async def is_renewed() -> bool:
        await memory_node.clock.advance(RENEW_SECONDS)
        obj = await memory_node.client.get("coordination.k8s.io/v1/Lease", NODE, namespace="kube-node-lease")
        return bool(obj["spec"]["renewTime"] != lease["spec"]["renewTime"])

    await memory_node.until(is_renewed)
    assert (await ready_of(memory_node))["status"] == "True"


async def test_an_agent_that_can_open_no_file_is_not_ready_and_says_so(memory_node: NodeInMemory) -> None:
    """It could not write its status either, and the node stayed Ready."""
    await until_ready(memory_node, lambda ready: ready.get("status") == "True")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        ready = await until_ready(memory_node, lambda ready: ready["status"] == "False")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "node agent cannot open files: Too many open files" in ready["message"]
    await until_ready(memory_node, lambda ready: ready["status"] == "True")


async def test_a_node_that_cannot_tell_its_status_does_not_stay_ready(
    memory_node: NodeInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until_ready(memory_node, lambda ready: ready.get("status") == "True")
    with monkeypatch.context() as patch:
        patch.setattr(registration, "own_platform", lambda: ())
        await until_ready(memory_node, lambda ready: ready["status"] == "Unknown")
    await until_ready(memory_node, lambda ready: ready["status"] == "True")


async def test_a_runtime_that_does_not_answer_makes_the_node_not_ready(node: RealNode) -> None:
    await until_ready(node, lambda ready: ready.get("status") == "True")
    pid = await node.runtime.node_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        ready = await until_ready(node, lambda ready: ready.get("status") == "False")
        assert (ready["reason"], ready["message"]) == ("KubeletNotReady", "container runtime is down")
    finally:
        os.kill(pid, signal.SIGCONT)
    await until_ready(node, lambda ready: ready.get("status") == "True")


async def test_a_killed_fork_server_is_replaced_and_the_node_is_ready_again(node: RealNode) -> None:
    await until_ready(node, lambda ready: ready.get("status") == "True")
    before = await node.runtime.node_pid()
    os.kill(before, signal.SIGKILL)

    async def is_replaced() -> bool:
        await node.clock.advance(1.0)
        return await node.runtime.node_pid() != before

    await node.until(is_replaced)
    await until_ready(node, lambda ready: ready.get("status") == "True")


async def test_a_fork_server_that_hangs_is_replaced_and_pods_start_again(node: RealNode) -> None:
    await until_ready(node, lambda ready: ready.get("status") == "True")
    before = await node.runtime.node_pid()
    os.kill(before, signal.SIGSTOP)

    async def is_replaced() -> bool:
        await node.clock.advance(1.0)
        return await node.runtime.node_pid() != before

    await node.until(is_replaced)
    await until_ready(node, lambda ready: ready.get("status") == "True")
    await node.create("later", ["sleep", "1000"])
    await node.until_ready("later")
    await node.delete("later")


async def test_a_part_of_the_agent_that_fails_repeatedly_makes_the_node_not_ready(
    memory_node: NodeInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until_ready(memory_node, lambda ready: ready.get("status") == "True")

    def fail() -> dict[str, Signal]:
        raise LookupError("no such signal")

    with monkeypatch.context() as patched:
        patched.setattr(memory_node.signals, "read", fail)
        ready = await until_ready(memory_node, lambda ready: ready.get("status") == "False")
        assert ready["reason"] == "KubeletNotReady"
        assert ready["message"].startswith("eviction-manager is not healthy: it fails since ")
        assert ready["message"].endswith("LookupError: no such signal")
    await until_ready(memory_node, lambda ready: ready.get("status") == "True")


async def test_an_unchanged_status_is_written_every_five_minutes() -> None:
    clock = ManualClock()
    async with control_plane(clock=clock) as api:
        client = in_process_client(api.plane.local(), clock=clock)
        manager = Manager(client)
        nodes = manager.informer(Node, fields=f"metadata.name={NODE}")
        identity = NodeIdentity(name=NODE, addresses=["10.0.0.1", "fd00::1"], capacity={"cpu": "2", "memory": "1Gi"})
        registration = Registration(client, identity, nodes, failures=_find_none, runtime=lambda: None)
        async with asyncio.timeout(60), manager.running(), Tasks() as tasks:
            await registration.write_status()
            first = await client.get("v1/Node", NODE)
            tasks.start(registration.keep_status())
            for _ in range(29):
                await manager.settle()
                await clock.advance(RENEW_SECONDS)
            same = await client.get("v1/Node", NODE)
            assert same["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
            for _ in range(2):
                await clock.advance(RENEW_SECONDS)
                await manager.settle()
            last = await client.get("v1/Node", NODE)
    assert [condition["type"] for condition in last["status"]["conditions"]] == list(_TYPES)
    for before, after in zip(first["status"]["conditions"], last["status"]["conditions"], strict=True):
        assert before["lastTransitionTime"] == after["lastTransitionTime"]
        assert before["lastHeartbeatTime"] < after["lastHeartbeatTime"]


async def _find_none() -> list[str]:
    return []


async def test_the_pages_of_its_health_name_the_part_that_fails(
    memory_node: NodeInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = StorageMeter(memory_node.runtime, memory_node.clock, memory_node.directory)
    pages = WebPages(memory_node.runtime, memory_node.clock, NODE, memory_node.directory, storage)
    pages.failing_parts = memory_node.agent.health.failing_parts
    assert (await pages.page("GET", "/healthz")).body == b"ok"
    verbose = (await pages.page("GET", "/healthz?verbose")).body
    assert verbose == b"[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"

    def fail() -> dict[str, Signal]:
        raise LookupError("no such signal")

    monkeypatch.setattr(memory_node.signals, "read", fail)

    async def is_failing() -> bool:
        await memory_node.clock.advance(1.0)
        return (await pages.page("GET", "/healthz")).status == 500

    await memory_node.until(is_failing)
    page = await pages.page("GET", "/healthz/eviction-manager")
    assert page.status == 500
    assert b"LookupError: no such signal" in page.body
    assert (await pages.page("GET", "/healthz/syncloop")).status == 200
    assert memory_node.agent.supervisor.failures["eviction-manager"] > 1


def test_transition_times_change_with_the_status_alone() -> None:
    first = node_conditions([], failures=[], pressures=[], now=_THEN)
    same = node_conditions(first, failures=[], pressures=[], now=_NOW)
    assert {(condition["lastHeartbeatTime"], condition["lastTransitionTime"]) for condition in same} == {(_NOW, _THEN)}
    assert not have_changed(first, same)
    down = node_conditions(first, failures=["container runtime is down"], pressures=["DiskPressure"], now=_NOW)
    assert {condition["type"]: condition["lastTransitionTime"] for condition in down} == {
        "MemoryPressure": _THEN,
        "DiskPressure": _NOW,
        "PIDPressure": _THEN,
        "Ready": _NOW,
    }
    assert have_changed(first, down)


def test_several_problems_are_listed_as_kubelet_lists_them() -> None:
    ready = node_conditions([], failures=["one is down", "two is down"], pressures=[], now=_NOW)[-1]
    assert ready["message"] == "[one is down, two is down]"


def test_a_state_directory_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    need_namespaces()
    assert check_disk(tmp_path) == []
    sentence = f"state directory {tmp_path}/gone is not writable: No such file or directory"
    assert check_disk(tmp_path / "gone") == [sentence]
    program = tmp_path / "check.py"
    program.write_text(
        "import sys; from pathlib import Path; from pinnace.node.agent.status.node_health import check_disk\n"
        "print(*check_disk(Path(sys.argv[1])))\n"
    )
    place = tmp_path / "read-only"
    place.mkdir()
    script = 'mount -t tmpfs -o ro none "$1" && exec "$2" "$3" "$1"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", str(place), sys.executable, str(program)]
    output = subprocess.check_output(command, text=True)
    assert output == f"state directory {place} is not writable: read-only file system\n"
