"""Counts everything that pods take on a machine, so that a test finds what stays behind."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pinnace.node.runtime.embedded.groups.cgroups import group_name

Counts = dict[str, Counter[str]]


def census(runtime: Path, files: Path | None = None) -> Counts:
    """Count processes, mounts, namespaces, cgroups, interfaces, sockets, files and open files of a node.

    `runtime` is the directory of its runtime, `files` the one whose files count: the same if None.
    """
    node = supervisor_of(runtime, "..")
    processes = list(_family(node))
    namespaces = {
        _link(f"/proc/{pid}/ns/{kind}") for pid in processes for kind in ("mnt", "net", "pid", "ipc", "uts", "user")
    }
    # Other nodes of this machine make and remove groups and mounts meanwhile: only those of this node count.
    own = f"/{group_name(runtime)}"
    groups = [f"{place}/{name}" for place, names, _ in os.walk("/sys/fs/cgroup") if own in place for name in names]
    where = str(runtime if files is None else files)
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


async def until_as(before: Counts, runtime: Path, files: Path | None = None) -> None:
    """Wait until nothing is left that was not there before; fail with the rest."""

    def left() -> Counts:
        after = census(runtime, files)
        return {kind: extra for kind in before if (extra := after[kind] - before[kind])}

    try:
        async with asyncio.timeout(60):
            while left():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"left behind: {left()}") from None


def supervisor_of(runtime: Path, sandbox: str) -> int:
    """The process that supervises a sandbox; the fork server of the node for `..`."""
    pid: int = json.loads((runtime / "pods" / sandbox / "supervisor.json").read_text())["pid"]
    return pid


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _family(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _family(child)


def _link(path: str) -> str:
    """The target of a link of a process; empty if it has ended in the meantime."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
