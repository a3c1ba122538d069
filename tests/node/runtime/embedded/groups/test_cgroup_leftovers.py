"""The control groups of killed nodes: the next node of the machine removes them, and no other ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.node.census import children, supervisor_of
from tests.node.runtime.embedded.conftest import Pods, open_runtime, until

from pinnace.node.runtime.embedded.groups.cgroups import Cgroups, group_name
from pinnace.node.runtime.runtime import Resources


def groups_of(directory: Path) -> list[str]:
    name = group_name(directory)
    return sorted(place for place, _, _ in os.walk("/sys/fs/cgroup") if f"/{name}" in place)


async def kill_node(node: Pods) -> None:
    """Kill all processes of a node, the innermost last, and wait for their end."""
    fork_server = supervisor_of(node.directory, "..")
    processes, waiting = {}, [fork_server]
    while waiting:
        pid = waiting.pop()
        processes[pid] = os.pidfd_open(pid)
        waiting += children(pid)
    try:
        for opened in processes.values():
            with contextlib.suppress(ProcessLookupError):  # A container has ended with its supervisor already.
                signal.pidfd_send_signal(opened, signal.SIGKILL)
        for opened in processes.values():
            await _end_of_process(opened)
    finally:
        for opened in processes.values():
            os.close(opened)
    await node.runtime.close()


async def _end_of_process(opened: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(opened, ended.set)
    try:
        async with asyncio.timeout(60):
            await ended.wait()
    finally:
        loop.remove_reader(opened)


async def test_the_next_node_removes_the_groups_of_a_killed_one_and_no_others(tmp_path: Path) -> None:
    killed = Pods(await open_runtime(tmp_path / "killed"), tmp_path / "killed")
    living = Pods(await open_runtime(tmp_path / "living"), tmp_path / "living")
    try:
        await killed.start(["sleep", "1000"], resources=Resources(pids=50))
        if not groups_of(killed.directory):
            pytest.skip("this user may not write any control group, so that none can be left: run as root")
        sandbox = await living.sandbox()
        await living.end_of(await living.start("exit 0", sandbox, resources=Resources(pids=50)))
        before = groups_of(living.directory)
        assert before
        await kill_node(killed)  # No process removes its groups, but that of any later node of this machine.
        await until(lambda: _does_the_next_node_remove(killed, tmp_path / "third"))
        assert groups_of(living.directory) == before
        await living.start(["sleep", "1000"], sandbox, name="other", resources=Resources(pids=50))
    finally:
        await living.runtime.end()
    assert groups_of(living.directory) == []


async def test_the_groups_of_a_node_are_known_as_its_own_after_another_has_removed_them(tmp_path: Path) -> None:
    """A node that has lost its fork server looks like a dead one to another that starts."""
    killed = Pods(await open_runtime(tmp_path / "killed"), tmp_path / "killed")
    for group in groups_of(killed.directory):
        os.rmdir(group)
    await killed.start(["sleep", "1000"], resources=Resources(pids=50))
    if not groups_of(killed.directory):
        await killed.runtime.end()
        pytest.skip("this user may not write any control group, so that none can be left: run as root")
    await kill_node(killed)
    await until(lambda: _does_the_next_node_remove(killed, tmp_path / "third"))


async def test_the_groups_of_a_node_that_is_just_starting_are_left(tmp_path: Path) -> None:
    starting = Cgroups(tmp_path / "starting")
    try:
        before = groups_of(tmp_path / "starting")
        if not before:
            pytest.skip("this user may not write any control group, so that none can be left: run as root")
        await (await open_runtime(tmp_path / "third")).end()
        assert groups_of(tmp_path / "starting") == before
    finally:
        starting.close()


async def _does_the_next_node_remove(killed: Pods, directory: Path) -> bool:
    """The kernel may need a moment to free the group of a process that has just ended."""
    await (await open_runtime(directory)).end()
    return groups_of(killed.directory) == []


async def test_a_node_removes_the_groups_that_its_killed_agent_has_left(tmp_path: Path) -> None:
    node = Pods(await open_runtime(tmp_path / "node"), tmp_path / "node")
    await node.start(["sleep", "1000"], resources=Resources(pids=50))
    groups = groups_of(node.directory)
    if not groups:
        pytest.skip("this user may not write any control group, so that none can be left: run as root")
    root = next(place for place in groups if place.endswith(group_name(node.directory)))
    (Path(root) / "unknown" / "container").mkdir(parents=True)
    await node.runtime.close()
    again = Pods(await open_runtime(tmp_path / "node"), tmp_path / "node")
    try:
        assert not (Path(root) / "unknown").exists()
        assert set(groups_of(node.directory)) == set(groups)
    finally:
        await again.runtime.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes control groups here")
async def test_a_node_that_does_not_see_the_directory_of_another_leaves_its_groups(tmp_path: Path) -> None:
    """In a mount namespace of its own it would take a living node for a dead one, and a container would not start."""
    living = Pods(await open_runtime(tmp_path / "living"), tmp_path / "living")
    try:
        sandbox = await living.sandbox(resources=Resources(pids=50))
        before = groups_of(living.directory)
        code = (
            "from pathlib import Path\n"
            "from pinnace.node.runtime.embedded.groups.cgroups import Cgroups\n"
            f"Cgroups(Path({str(tmp_path / 'other')!r})).remove_leftovers(set(), 'node.sock')"
        )
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(tmp_path)]
        subprocess.run([*hide, sys.executable, "-c", code], check=True, timeout=60)
        assert groups_of(living.directory) == before
        await living.start(["sleep", "1000"], sandbox, resources=Resources(pids=50))
    finally:
        await living.runtime.end()
        for group in groups_of(tmp_path / "other"):
            os.rmdir(group)
