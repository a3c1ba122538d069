"""Pods outlive the agent; nothing outlives the pods."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.node.runtime.embedded.conftest import Pods, log_of, open_runtime, until

from pinnace.node.runtime.embedded.cgroups import group_name
from pinnace.node.runtime.runtime import ContainerState, Resources


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
    init = _children(supervisor)[0]
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
    init = _children(supervisor)[0]
    os.kill(supervisor, signal.SIGKILL)
    assert (await anext(events)).sandbox == sandbox
    status = await pods.end_of(container)
    assert (status.exit_code, status.reason) == (137, "ContainerStatusUnknown")
    assert not (await pods.runtime.sandbox(sandbox)).is_ready

    async def is_gone() -> bool:
        return not _is_running(init)

    await until(is_gone)
    assert (await pods.runtime.container(neighbour)).state is ContainerState.RUNNING


async def test_a_removed_pod_leaves_nothing_behind(pods: Pods) -> None:
    before = await _census_without_pods(pods)
    sandboxes = []
    for number in range(3):
        sandbox = await pods.sandbox(name=f"pod-{number}", shares_processes=number == 1)
        sandboxes.append(sandbox)
        await pods.start("sleep 1000 & sleep 1000", sandbox, resources=Resources(pids=50))
        await pods.start("exit 1", sandbox, name="failed")
    assert _census(pods) != before
    for sandbox in sandboxes:
        await pods.runtime.remove_sandbox(sandbox)

    await _until_as(pods, before)


async def test_a_pod_that_is_removed_while_it_starts_leaves_nothing_behind(pods: Pods) -> None:
    before = await _census_without_pods(pods)
    sandbox = await pods.sandbox()
    await pods.start(["sleep", "1000"], sandbox)
    os.kill(pods.supervisor(sandbox), signal.SIGKILL)
    await pods.runtime.remove_sandbox(sandbox)

    await _until_as(pods, before)


async def _census_without_pods(pods: Pods) -> dict[str, Counter[str]]:
    """Count after a first pod has come and gone: the kernel removes its interface a moment later."""
    await pods.runtime.remove_sandbox(await pods.sandbox())

    async def has_no_pod() -> bool:
        counts = _census(pods)
        return not any(name.startswith("veth") for name in counts["interfaces"]) and counts["processes"]["all"] == 1

    await until(has_no_pod)
    return _census(pods)


async def _until_as(pods: Pods, before: dict[str, Counter[str]]) -> None:
    """Wait until everything is as before; fail with the difference."""

    async def is_as_before() -> bool:
        return _census(pods) == before

    try:
        await until(is_as_before)
    except TimeoutError:
        after = _census(pods)
        left = {kind: (after[kind] - before[kind], before[kind] - after[kind]) for kind in before}
        raise AssertionError(f"left behind: { {kind: pair for kind, pair in left.items() if any(pair)} }") from None


def _census(pods: Pods) -> dict[str, Counter[str]]:
    """Count what a pod takes: processes, mounts, namespaces, cgroups, interfaces, sockets, files and open files."""
    processes = list(_family(int(_fork_server(pods))))
    namespaces = {
        _link(f"/proc/{pid}/ns/{kind}") for pid in processes for kind in ("mnt", "net", "pid", "ipc", "uts", "user")
    }
    # Other nodes of this machine make and remove groups and mounts meanwhile: only those of this node count.
    own = f"/{group_name(pods.directory)}"
    groups = [f"{place}/{name}" for place, names, _ in os.walk("/sys/fs/cgroup") if own in place for name in names]
    node = _fork_server(pods)
    where = str(pods.directory)
    return {
        "processes": Counter({"all": len(processes)}),
        "namespaces": Counter({"all": len(namespaces)}),
        "mounts": Counter(line for line in _lines(f"/proc/{node}/mountinfo") if where in line),
        "own mounts": Counter(line for line in _lines("/proc/self/mountinfo") if where in line),
        "cgroups": Counter(groups),
        "interfaces": Counter(line.partition(":")[0].strip() for line in _lines(f"/proc/{node}/net/dev")),
        "files": Counter(f"{place}/{name}" for place, *names in os.walk(where) for name in itertools.chain(*names)),
        "open files": Counter({"all": len(os.listdir("/proc/self/fd"))}),
        "node's open files": Counter({"all": len(os.listdir(f"/proc/{node}/fd"))}),
    }


def _fork_server(pods: Pods) -> int:
    return pods.supervisor("..")


def _family(pid: int) -> Iterator[int]:
    yield pid
    for child in _children(pid):
        yield from _family(child)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _link(path: str) -> str:
    """The target of a link of a process; empty if it has ended in the meantime."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
