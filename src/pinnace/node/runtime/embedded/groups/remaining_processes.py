"""Ends the processes that a container has left behind.

The kernel ends them with the first process of their process namespace. Where a container shares that of its pod or of
the node, they would live on: after a restart beside the new ones, or after the pod. They are found by their control
group, which they cannot leave, or by their mount namespace where there are no groups. The supervisors import this
module: keep its imports small.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Sequence

_MOST_ROUNDS = 1000
"""How often processes are looked for that others have made meanwhile."""


def end_processes_of_groups(directories: Iterable[str]) -> None:
    """Kill all processes in control groups, which cannot make others from then on."""
    for directory in directories:
        for name, text in (("pids.max", "0"), ("cgroup.kill", "1")):
            with contextlib.suppress(OSError), open(os.path.join(directory, name), "w") as file:
                file.write(text)
        _end_all(lambda place=directory: _processes_of(place))  # type: ignore[misc]


def end_processes_of_mounts(namespace: str) -> None:
    """Kill all processes in a mount namespace, which is named as in /proc."""
    if namespace:
        _end_all(lambda: [pid for pid in _all_processes() if mounts_of(pid) == namespace])


def mounts_of(pid: int) -> str:
    """The mount namespace of a process; empty if it has ended, or is another user's."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _processes_of(directory: str) -> list[int]:
    try:
        with open(os.path.join(directory, "cgroup.procs")) as file:
            return [int(line) for line in file if line.strip() != "0"]
    except OSError:
        return []


def _end_all(find: Callable[[], Sequence[int]]) -> None:
    """Kill the processes that are found, until there are no new ones. Those that end slowly are not awaited."""
    killed: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        opened = {}
        for pid in set(find()) - killed:
            with contextlib.suppress(OSError):
                opened[pid] = os.pidfd_open(pid)
        if not opened:
            return
        present = set(find())  # A number may have become another's between the two.
        for pid, pidfd in opened.items():
            if pid in present:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                killed.add(pid)
            os.close(pidfd)
