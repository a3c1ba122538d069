"""Pods outlive the agent; nothing outlives the pods."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest
from tests.node.census import Counts, census, children, until_as
from tests.node.runtime.embedded.conftest import Pods, log_of, open_runtime, until

from pinnace.node.errors import StartFailed
from pinnace.node.runtime.runtime import ContainerState, PidMode, Resources

_LENGTH = str(random.randint(10**6, 10**7))
"""The seconds for which a process sleeps: a test finds it by them."""
_LEAVE = f"(setsid sleep {_LENGTH} >/dev/null 2>&1 &)"


async def test_a_new_agent_finds_the_pods_of_the_old_one(fast_path: Path) -> None:
    old = Pods(await open_runtime(fast_path), fast_path)
    sandbox = await old.sandbox()
    container = await old.start("echo before; trap 'echo after; exit 9' TERM; while :; do sleep 0.05; done", sandbox)
    await old.runtime.close()
    new = Pods(await open_runtime(fast_path), fast_path)
    try:
        assert (await new.runtime.sandbox(sandbox)).is_ready
        assert (await new.runtime.container(container)).state is ContainerState.RUNNING
        assert (await new.runtime.exec_sync(container, ["echo", "hi"], timeout=60)).output == b"hi\n"
        other = await new.sandbox()
        assert (await new.runtime.sandbox(other)).addresses != (await new.runtime.sandbox(sandbox)).addresses
        await new.runtime.stop_container(container, 60)
        status = await new.runtime.container(container)
        assert (status.exit_code, log_of(status)) == (9, "before\nafter\n")
    finally:
        for known in await new.runtime.sandboxes():
            await new.runtime.remove_sandbox(known.id)
        await new.runtime.close()


async def test_an_exit_that_no_agent_saw_is_known_to_the_next(fast_path: Path) -> None:
    old = Pods(await open_runtime(fast_path), fast_path)
    sandbox = await old.sandbox()
    container = await old.start("read line; exit 11", sandbox, stdin=True)
    supervisor = old.supervisor(sandbox)
    init = children(supervisor)[0]
    await old.runtime.close()
    os.kill(init, signal.SIGKILL)
    new = Pods(await open_runtime(fast_path), fast_path)
    try:
        assert (await new.end_of(container)).exit_code == 137
    finally:
        await new.runtime.remove_sandbox(sandbox)
        await new.runtime.close()


async def test_containers_die_with_their_supervisor_and_other_pods_go_on(pods: Pods) -> None:
    sandbox, other = await pods.sandbox(), await pods.sandbox(name="other")
    container = await pods.start(["sleep", "1000"], sandbox)
    neighbour = await pods.start(["sleep", "1000"], other)
    events = pods.runtime.events()
    supervisor = pods.supervisor(sandbox)
    init = children(supervisor)[0]
    os.kill(supervisor, signal.SIGKILL)
    assert (await anext(events)).sandbox == sandbox
    status = await pods.end_of(container)
    assert (status.exit_code, status.reason) == (137, "ContainerStatusUnknown")
    assert not (await pods.runtime.sandbox(sandbox)).is_ready

    async def is_gone() -> bool:
        return not _is_running(init)

    await until(is_gone)
    assert (await pods.runtime.container(neighbour)).state is ContainerState.RUNNING


async def test_a_command_in_a_container_that_ends_meanwhile_leaves_no_second_supervisor(pods: Pods) -> None:
    """The supervisor takes the request while the process lives, and its child finds one without namespaces."""
    sandbox = await pods.sandbox()
    container = await pods.start(["sleep", "1000"], sandbox)
    supervisor = pods.supervisor(sandbox)
    (init,) = children(supervisor)
    os.kill(supervisor, signal.SIGSTOP)
    asking = asyncio.create_task(pods.runtime.exec_sync(container, ["true"], timeout=60))
    await asyncio.sleep(0)  # The request is sent before the task waits.
    os.kill(init, signal.SIGKILL)
    while (Path("/proc") / str(init) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
        await asyncio.sleep(0.001)
    os.kill(supervisor, signal.SIGCONT)
    with pytest.raises(StartFailed, match="the container is not running"):
        await asking
    await pods.end_of(container)
    assert children(supervisor) == []
    again = await pods.start("echo again", sandbox, attempt=1)
    assert log_of(await pods.end_of(again)) == "again\n"


async def test_a_removed_pod_leaves_nothing_behind(pods: Pods) -> None:
    before = await _census_without_pods(pods)
    sandboxes = []
    for number in range(3):
        sandbox = await pods.sandbox(name=f"pod-{number}", shares_processes=number == 1)
        sandboxes.append(sandbox)
        await pods.start("sleep 1000 & sleep 1000", sandbox, resources=Resources(pids=50))
        await pods.start("exit 1", sandbox, name="failed")
    assert census(pods.directory) != before
    for sandbox in sandboxes:
        await pods.runtime.remove_sandbox(sandbox)

    await until_as(before, pods.directory)


async def test_a_pod_that_is_removed_while_it_starts_leaves_nothing_behind(pods: Pods) -> None:
    before = await _census_without_pods(pods)
    sandbox = await pods.sandbox()
    await pods.start(["sleep", "1000"], sandbox)
    os.kill(pods.supervisor(sandbox), signal.SIGKILL)
    await pods.runtime.remove_sandbox(sandbox)

    await until_as(before, pods.directory)


async def _census_without_pods(pods: Pods) -> Counts:
    """Count after a first pod has come and gone, which makes the files of its image.

    The kernel removes its interface a moment later.
    """
    sandbox = await pods.sandbox()
    await pods.output("true", sandbox)
    await pods.runtime.remove_sandbox(sandbox)

    async def has_no_pod() -> bool:
        counts = census(pods.directory)
        return not any(name.startswith("veth") for name in counts["interfaces"]) and counts["processes"]["all"] == 1

    await until(has_no_pod)
    return census(pods.directory)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("shares", [PidMode.POD, PidMode.NODE])
async def test_a_container_leaves_no_process_in_a_namespace_that_it_shares(pods: Pods, shares: PidMode) -> None:
    """As runc does: after a restart they would run beside the new ones, and after the pod without one."""
    sandbox = await pods.sandbox(shares_processes=shares is PidMode.POD)
    other = await pods.start(["sleep", "1000"], sandbox, name="other", pid_mode=shares)
    container = await pods.start(f"{_LEAVE}; read line", sandbox, pid_mode=shares, stdin=True)
    await until(_has_sleep)
    await pods.runtime.stop_container(container, 0)
    await until(_has_no_sleep)
    assert (await pods.runtime.container(other)).state is ContainerState.RUNNING


@pytest.mark.skipif(os.geteuid() != 0, reason="without control groups only the supervisor knows the processes")
async def test_a_pod_leaves_no_process_among_those_of_the_node_when_its_supervisor_is_killed(pods: Pods) -> None:
    sandbox = await pods.sandbox()
    await pods.start(f"{_LEAVE}; read line", sandbox, pid_mode=PidMode.NODE, stdin=True)
    await until(_has_sleep)
    os.kill(pods.supervisor(sandbox), signal.SIGKILL)
    await pods.runtime.remove_sandbox(sandbox)
    await until(_has_no_sleep)


async def _has_sleep() -> bool:
    return any(_arguments(place) == ["sleep", _LENGTH] for place in Path("/proc").glob("[0-9]*"))


async def _has_no_sleep() -> bool:
    return not await _has_sleep()


def _arguments(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []
