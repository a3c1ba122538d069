"""Finds what the nodes of a cluster have left on the machine after their end."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from pinnace.network.pods.egress import plan_link
from pinnace.node.runtime.embedded.groups.cgroups import group_name


def processes_of(place: Path) -> dict[int, str]:
    """The processes whose command line names a directory, and their children in namespaces of their own."""
    results: dict[int, str] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if str(place) in command:
                    results[int(entry.name)] = command
    while below := {pid for pid, parent in parents.items() if parent in results and pid not in results}:
        results |= dict.fromkeys(below, "below")
    return {pid: command for pid, command in results.items() if pid != os.getpid()}


def left_on_machine(place: Path, nodes: list[Path]) -> list[str]:
    """Return the interfaces, routes, mounts and cgroups of these nodes on the machine; other tests have theirs."""
    links = {plan_link(node).name for node in nodes}
    groups = {group_name(node / "runtime") for node in nodes}
    result = [name for _, name in socket.if_nameindex() if name in links]
    result += [line for line in Path("/proc/net/route").read_text().splitlines() if line.split()[0] in links]
    result += [line for line in Path("/proc/mounts").read_text().splitlines() if str(place) in line]
    return result + [path for path, *_ in os.walk("/sys/fs/cgroup") if groups & set(Path(path).parts)]
