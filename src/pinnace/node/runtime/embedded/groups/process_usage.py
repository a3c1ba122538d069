"""The use of a container where this user has no control groups: that of its processes, from /proc."""

from __future__ import annotations

import contextlib
import os

from pinnace.node.runtime.runtime import ContainerStats

_TICK_NANOSECONDS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_MEMORY = ("RssAnon:", "RssShmem:")
"""Files that are mapped do not count, as the working set of a control group leaves out what the kernel can drop."""


def process_stats(pid: int, *, now: int) -> ContainerStats:
    """Sum up a process and its descendants. CPU time of descendants that have ended counts where they were awaited."""
    processes = list(_descendants(pid))
    if not processes:
        return ContainerStats(timestamp=now)
    cpu = memory = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError):  # It has ended since.
            cpu += _cpu_ticks(process) * _TICK_NANOSECONDS
            memory += _memory_bytes(process)
    return ContainerStats(
        timestamp=now,
        cpu_nanoseconds=cpu,
        memory_bytes=memory,
        working_set_bytes=memory,
        processes=len(processes),
    )


def _descendants(pid: int) -> list[int]:
    descendants, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                waiting += [int(child) for child in _read(f"/proc/{parent}/task/{task}/children").split()]
        except OSError:
            continue
        descendants.append(parent)
    return descendants


def _cpu_ticks(pid: int) -> int:
    """The time of the process and of its awaited children, in user mode and in the kernel."""
    return sum(int(field) for field in _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15])


def _memory_bytes(pid: int) -> int:
    lines = _read(f"/proc/{pid}/status").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(_MEMORY))


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
