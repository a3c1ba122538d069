"""Pods that break every rule, all at once beside a good one: each has kubelet's status, and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import NODE, RealNode, is_ready
from tests.node.census import census, supervisor_of, until_as

from pinnace.model.objects import Object
from pinnace.node.runtime.runtime import ContainerState


def _waits(reason: str) -> Callable[[Object], bool]:
    return lambda pod: _state(pod).get("waiting", {}).get("reason") == reason


def _state(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    obj: Object = statuses[0].get("state") or {}
    return obj


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount") or 0)


def _ended(code: int, reason: str) -> Callable[[Object], bool]:
    return lambda pod: (
        [_state(pod).get("terminated", {}).get(name) for name in ("exitCode", "reason")]
        == [
            code,
            reason,
        ]
    )


@contextlib.contextmanager
def _used_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield int(taken.getsockname()[1])


async def _sandbox(node: RealNode, name: str) -> str:
    (result,) = await node.runtime.sandboxes("default", name)
    return result.id


async def _run_missing_command(node: RealNode, name: str) -> None:
    await node.create(name, ["no-such-command"], restartPolicy="Never")
    await node.until_pod(name, _ended(128, "StartError"))


async def _run_crash_loop(node: RealNode, name: str) -> None:
    await node.create(name, "exit 3")
    await node.until_pod(name, _waits("CrashLoopBackOff"))
    await node.until_event(name, "Back-off restarting failed container main", reason="BackOff")


async def _run_hung_probe(node: RealNode, name: str) -> None:
    """The process ignores the signal, too: the grace period of the probe ends it, not that of the pod."""
    probe: Object = {"exec": {"command": ["sleep", "1000"]}, "timeoutSeconds": 1, "periodSeconds": 1}
    probe |= {"failureThreshold": 1, "terminationGracePeriodSeconds": 1}
    await node.create(name, ["sleep", "1000"], container={"livenessProbe": probe}, terminationGracePeriodSeconds=300)
    await node.until_pod(name, lambda pod: _restarts(pod) >= 1)
    await node.until_event(name, "timed out", reason="Unhealthy")


async def _run_deaf(node: RealNode, name: str) -> None:
    await node.create(name, "trap '' TERM; while :; do sleep 0.1; done", terminationGracePeriodSeconds=1)
    await node.until_ready(name)
    await node.client.delete("v1/Pod", name, namespace="default")
    await node.until_gone(name)


async def _run_fork_bomb(node: RealNode, name: str) -> None:
    """As much of one as the machine bears: each process makes two that do the same, five times."""
    bomb = "b() { [ $1 -gt 0 ] && { b $(($1-1)) & b $(($1-1)) & }; sleep 1000; }; b 5"
    await node.create(name, bomb)
    await node.until_ready(name)


async def _run_missing_config_map(node: RealNode, name: str) -> None:
    reference = {"configMapRef": {"name": "missing"}}
    await node.create(name, ["true"], container={"envFrom": [reference]})
    await node.until_pod(name, _waits("CreateContainerConfigError"))
    await node.until_event(name, 'configmap "missing" not found', reason="Failed")


async def _run_missing_image(node: RealNode, name: str) -> None:
    await node.create(name, ["true"], container={"image": "example.com/none:v1"})
    await node.until_pod(name, _waits("ImagePullBackOff"))
    await node.until_event(name, 'Failed to pull image "example.com/none:v1": ', reason="Failed")
    await node.until_event(name, "allows pulls from loopback alone", reason="Failed")
    await node.until_event(name, "Error: ErrImagePull", reason="Failed")
    await node.until_event(name, 'Back-off pulling image "example.com/none:v1"', reason="BackOff")
    await node.until_event(name, "Error: ImagePullBackOff", reason="Failed")


async def _run_invalid_image(node: RealNode, name: str) -> None:
    await node.create(name, ["true"], container={"image": "Not/A:Name:x"})
    await node.until_pod(name, _waits("InvalidImageName"))
    text = 'Failed to apply default image tag "Not/A:Name:x": couldn\'t parse'
    await node.until_event(name, text, reason="InspectFailed")


async def _run_used_port(node: RealNode, name: str) -> None:
    with _used_port() as port:
        ports = [{"containerPort": 80, "hostPort": port, "hostIP": "127.0.0.1"}]
        await node.create(name, "sleep 1000", container={"ports": ports})
        await node.until_event(name, f"{port}", reason="FailedCreatePodSandBox")
        pod = await node.get(name)
        assert pod is not None
        assert pod["status"]["phase"] == "Pending"
    await node.until_ready(name)  # The port is free again.


async def _run_deleted_early(node: RealNode, name: str) -> None:
    await node.create(name, "sleep 1000")
    await node.client.delete("v1/Pod", name, namespace="default", grace_seconds=0)
    await node.until_gone(name)


async def _run_lost_supervisor(node: RealNode, name: str) -> None:
    await node.create(name, "sleep 1000")
    await node.until_ready(name)
    os.kill(supervisor_of(node.directory / "runtime", await _sandbox(node, name)), signal.SIGKILL)
    await node.until_pod(name, lambda pod: _restarts(pod) >= 1 and is_ready(pod))
    await node.until_event(name, "Pod sandbox changed, it will be killed and re-created.", reason="SandboxChanged")


_HOSTILE: dict[str, Callable[[RealNode, str], Coroutine[Any, Any, None]]] = {
    "missing-command": _run_missing_command,
    "crash-loop": _run_crash_loop,
    "hung-probe": _run_hung_probe,
    "ignores-sigterm": _run_deaf,
    "fork-bomb": _run_fork_bomb,
    "missing-config-map": _run_missing_config_map,
    "missing-image": _run_missing_image,
    "invalid-image": _run_invalid_image,
    "used-port": _run_used_port,
    "deleted-early": _run_deleted_early,
    "lost-supervisor": _run_lost_supervisor,
}


async def _come_and_go(node: RealNode) -> None:
    """Let one pod come and go: the first one makes files and connections that stay."""
    await node.create("first", "sleep 1000")
    await node.until_ready("first")
    await node.client.delete("v1/Pod", "first", namespace="default", grace_seconds=0)

    async def is_clean() -> bool:
        counts = census(node.directory / "runtime", node.directory)
        has_pods = any("/pods/" in path for path in counts["files"])
        return (
            counts["processes"]["all"] == 1
            and not has_pods
            and not any("veth" in interface for interface in counts["interfaces"])
        )

    await node.until(is_clean)


async def test_hostile_pods_disturb_no_other_and_leave_nothing_behind(node: RealNode) -> None:
    runtime = node.directory / "runtime"
    await _come_and_go(node)
    await node.create("neighbour", ["sleep", "1000"])
    known = (await node.until_ready("neighbour"))["status"]["containerStatuses"]
    before = census(runtime, node.directory)
    async with asyncio.TaskGroup() as group:
        for name, run in _HOSTILE.items():
            group.create_task(run(node, name), name=name)
    pod = await node.get("neighbour")
    assert pod is not None
    assert pod["status"]["containerStatuses"] == known
    for name in _HOSTILE:
        if await node.get(name) is not None:
            await node.client.delete("v1/Pod", name, namespace="default", grace_seconds=0)
    for name in _HOSTILE:
        await node.until_gone(name)
    await until_as(before, runtime, node.directory)


async def test_no_container_of_a_pod_that_never_restarts_runs_twice(node: RealNode, tmp_path: Path) -> None:
    """Its supervisor is killed: what has ended stays as it is, and what ran has failed."""
    tmp_path.chmod(0o777)
    mount = {"volumeMounts": [{"name": "runs", "mountPath": "/runs"}]}
    done = {"name": "done", "image": "host", "command": ["sh", "-c", "echo done >> /runs/all"], **mount}
    await node.create(
        "once",
        "echo main >> /runs/all; sleep 1000",
        container=mount,
        restartPolicy="Never",
        initContainers=[{**done, "name": "init"}],
        volumes=[{"name": "runs", "hostPath": {"path": str(tmp_path)}}],
    )
    await node.until_ready("once")

    async def has_written() -> bool:  # The container is ready before its shell writes.
        return "main" in (tmp_path / "all").read_text()

    await node.until(has_written)
    before = (tmp_path / "all").read_text()
    os.kill(supervisor_of(node.directory / "runtime", await _sandbox(node, "once")), signal.SIGKILL)
    pod = await node.until_phase("once", "Failed")
    assert _ended(137, "ContainerStatusUnknown")(pod)
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert (tmp_path / "all").read_text() == before


@pytest.mark.parametrize("moment", ["sandbox", "container", "running"])
async def test_a_supervisor_that_is_killed_at_any_moment_is_replaced(node: RealNode, moment: str) -> None:
    """Kill it as soon as the sandbox, the container or the running process is there."""
    runtime = node.directory / "runtime"
    await _come_and_go(node)
    before = census(runtime, node.directory)
    await node.create("victim", "sleep 1000", initContainers=[{"name": "i", "image": "host", "command": ["true"]}])
    patterns = {"sandbox": "supervisor.json", "container": "containers/*", "running": "containers/*/status.json"}
    async with asyncio.timeout(60):
        while not (result := list(runtime.glob(f"pods/*/{patterns[moment]}"))):
            await asyncio.sleep(0)
    sandbox = result[0].relative_to(runtime / "pods").parts[0]
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor_of(runtime, sandbox), signal.SIGKILL)

    async def is_replaced() -> bool:
        sandboxes = [ready.id for ready in await node.runtime.sandboxes("default", "victim") if ready.is_ready]
        pod: Any = await node.get("victim")
        return sandbox not in sandboxes and bool(sandboxes) and is_ready(pod)

    await node.until(is_replaced)
    pod = await node.get("victim")
    assert pod is not None
    assert pod["spec"]["nodeName"] == NODE
    await node.client.delete("v1/Pod", "victim", namespace="default", grace_seconds=0)
    await node.until_gone("victim")
    await until_as(before, runtime, node.directory)


async def test_a_restart_counts_although_the_api_does_not_know_the_first_start_yet(node: RealNode) -> None:
    """The supervisor is killed as soon as the container runs, before the status of the pod says so."""
    await node.create("victim", ["sleep", "1000"])

    async def is_running() -> bool:
        return any(container.state is ContainerState.RUNNING for container in await node.runtime.containers())

    while not await is_running():
        await asyncio.sleep(0)
    lost = await _sandbox(node, "victim")
    os.kill(supervisor_of(node.directory / "runtime", lost), signal.SIGKILL)

    async def is_replaced() -> bool:
        return lost not in [sandbox.id for sandbox in await node.runtime.sandboxes("default", "victim")]

    await node.until(is_replaced)
    await node.until_pod("victim", lambda pod: is_ready(pod) and _restarts(pod) == 1)
