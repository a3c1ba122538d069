"""Control groups, version 1 or 2, where this user may write them: limits, out-of-memory kills and use.

A pod has a group and each of its containers one below it. Without a writable hierarchy there are no limits, and
`missing` says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from pinnace.node.runtime.embedded.groups.leftovers import mark, remove_leftovers
from pinnace.node.runtime.embedded.groups.remaining_processes import end_processes_of_groups
from pinnace.node.runtime.embedded.start.pod_users import most_processes_of_pods
from pinnace.node.runtime.runtime import ContainerStats, Resources

_V1 = ("cpu", "cpuacct", "memory", "pids", "hugetlb")
_V2 = ("cpu", "memory", "pids")
_V2_OPTIONAL = ("hugetlb",)
_V1_UNLIMITED = {"memory.limit_in_bytes": "-1", "cpu.cfs_quota_us": "-1"}
_V2_UNLIMITED = {"memory.max": "max", "cpu.max": "max"}
_SWAP = "memory.swap.max"
_CPUSET = "cpuset"
"""The controller of the CPUs and NUMA nodes of a group. It is used by a node that pins containers alone."""
_PLACES = ("cpuset.cpus", "cpuset.mems")
_REMOVE_TRIES = 50
_PREFIX = "pinnace-"
_MOUNTS = Path("/proc/self/mountinfo")
_PIDS = "pids.max"


def group_name(directory: Path) -> str:
    """Return the name of the group of the node with this state directory."""
    return _PREFIX + hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]


class Cgroups:
    """The groups of one node."""

    def __init__(
        self,
        directory: Path,
        *,
        pins_containers: bool = False,
        mountinfo: Path = _MOUNTS,
        own: Path = Path("/proc/self/cgroup"),
    ) -> None:
        """`directory` is the state directory of the node, which makes the name of its group unique."""
        self.name = group_name(directory)
        self._directory = directory
        self._v1: dict[str, Path] = {}
        self._v2: Path | None = None
        self._v2_controllers: Sequence[str] = _V2
        self._v1_wanted = {*_V1, *([_CPUSET] if pins_containers else [])}
        self._v2_optional = (*_V2_OPTIONAL, *([_CPUSET] if pins_containers else []))
        self._find(mountinfo.read_text(), own.read_text())

    def missing(self, *, bounds_processes: bool) -> Sequence[str]:
        """Return a sentence on the limits that nothing enforces. `bounds_processes`: process limits need no group."""
        have = set(self._v1) if self._v1 else set(_V2) if self._v2 is not None else set()
        absent = [name for name in _V2 if name not in have and not (name == "pids" and bounds_processes)]
        if not absent:
            return ()
        return [f"limits of {', '.join(absent)} are not enforced: this user cannot write the control group"]

    @property
    def can_pin(self) -> bool:
        """Whether groups have CPUs and NUMA nodes of their own. Only a node that pins containers looks for it."""
        return _CPUSET in self._v1 or (self._v2 is not None and _CPUSET in self._v2_controllers)

    @property
    def accounts(self) -> bool:
        """Whether there are groups that account for CPU and memory."""
        return self._v2 is not None or {"cpuacct", "memory"} <= self._v1.keys()

    @property
    def _roots(self) -> list[Path]:
        return [*self._v1.values(), *([self._v2] if self._v2 is not None else [])]

    @property
    def _v2_switch(self) -> str:
        """The text that gives the groups below one their controllers."""
        return " ".join(f"+{name}" for name in self._v2_controllers)

    def create(self, pod: str, container: str = "", resources: Resources | None = None) -> None:
        """Make the group of a pod, or of a container below it. Raise OSError if a limit is refused."""
        for name, root in self._v1.items():
            path = root / pod / container
            self._make_root(root)
            path.mkdir(parents=True, exist_ok=True)
            if name == _CPUSET:
                _fill_places(root, path)
            if resources is not None:
                _write_all(
                    path, {key: text for key, text in _v1_limits(resources).items() if key.startswith(name + ".")}
                )
        if self._v2 is not None:
            self._create_v2(pod, container)
            if resources is not None:
                self._write_v2(self._v2 / pod / container, _v2_limits(resources), resources)

    def update(self, pod: str, container: str, resources: Resources) -> None:
        """Change the limits of a group; a limit of 0 is taken away. Raise OSError if the kernel refuses one."""
        if _CPUSET in self._v1:
            self._join_cpuset(pod, container)
        for name, root in self._v1.items():
            limits = {**_V1_UNLIMITED, **_v1_limits(resources)}
            _write_all(
                root / pod / container, {key: text for key, text in limits.items() if key.startswith(name + ".")}
            )
        if self._v2 is not None:
            self._create_v2(pod, container)
            self._write_v2(self._v2 / pod / container, {**_V2_UNLIMITED, **_v2_limits(resources)}, resources)

    def _write_v2(self, path: Path, limits: Mapping[str, str], resources: Resources) -> None:
        known = {name: text for name, text in limits.items() if name.partition(".")[0] in self._v2_controllers}
        _write_all(path, known)
        with contextlib.suppress(FileNotFoundError):  # The kernel does not count swap.
            _write_all(path, {_SWAP: str(resources.swap_bytes)})

    def _join_cpuset(self, pod: str, container: str) -> None:
        """Make the group of a container that an agent started without CPUs of its own, and move it there."""
        path = self._v1[_CPUSET] / pod / container
        if path.is_dir():
            return
        self._make_root(self._v1[_CPUSET])
        path.mkdir(parents=True)
        _fill_places(self._v1[_CPUSET], path)
        known = next(root for name, root in self._v1.items() if name != _CPUSET)
        for process in (known / pod / container / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (path / "cgroup.procs").write_text(process)

    def directories(self, pod: str, container: str) -> dict[str, str]:
        """The group of a container by controller, for its own view of /sys/fs/cgroup; version 2 has the key ""."""
        if self._v1:
            return {name: str(root / pod / container) for name, root in self._v1.items()}
        return {"": str(self._v2 / pod / container)} if self._v2 is not None else {}

    def process_files(self, pod: str, container: str) -> list[str]:
        """The files that take a process of a container which has one thread, and writes its own number as 0.

        In version 1 that is `tasks`: the kernel moves a thread that moves itself without stopping every fork and exec
        of the machine, for which `cgroup.procs` waits 10 ms and, on a busy machine, 100 ms.
        """
        if self._v1:
            return [str(root / pod / container / "tasks") for root in self._v1.values()]
        return [str(self._v2 / pod / container / "cgroup.procs")] if self._v2 is not None else []

    def oom_file(self, pod: str, container: str) -> str:
        """The file that counts the processes that the kernel killed for memory; empty without it."""
        if "memory" in self._v1:
            return str(self._v1["memory"] / pod / container / "memory.oom_control")
        return str(self._v2 / pod / container / "memory.events") if self._v2 is not None else ""

    def remove(self, pod: str, container: str = "") -> None:
        """Remove the groups; their last processes may need a moment to end."""
        for root in self._roots:
            _remove(root / pod / container)

    def remove_all(self) -> None:
        """Remove the groups of a node whose pods have ended without an agent."""
        for root in self._roots:
            _remove(root)

    def remove_leftovers(self, known: Container[str], socket: str) -> None:
        """Remove the groups of killed nodes, and those of unknown pods of this node.

        Mark the groups of this node, whose fork server listens by now: others never take them for those of a dead one.
        """
        for root in self._roots:
            mark(root, self._directory)
            _bound_processes(root)
        remove_leftovers(self._roots, _PREFIX, socket, known)

    def close(self) -> None:
        """Remove the node's own groups if no pod is left in them."""
        for root in self._roots:
            with contextlib.suppress(OSError):
                root.rmdir()

    def stats(self, pod: str, container: str, *, now: int) -> ContainerStats:
        if self._v1:
            return self._v1_stats(pod, container, now)
        if self._v2 is None:
            return ContainerStats(timestamp=now)
        path = self._v2 / pod / container
        memory, cache = _number(path / "memory.current"), _field(path / "memory.stat", "inactive_file")
        used = _field(path / "cpu.stat", "usage_usec")
        return ContainerStats(
            timestamp=now,
            cpu_nanoseconds=used * 1000 if used is not None else None,
            memory_bytes=memory,
            working_set_bytes=max(0, memory - (cache or 0)) if memory is not None else None,
            processes=_number(path / "pids.current"),
            swap_bytes=_number(path / "memory.swap.current"),
        )

    def _v1_stats(self, pod: str, container: str, now: int) -> ContainerStats:
        def path(name: str, file: str) -> Path:
            return self._v1.get(name, Path("/nonexistent")) / pod / container / file

        memory = _number(path("memory", "memory.usage_in_bytes"))
        cache = _field(path("memory", "memory.stat"), "total_inactive_file")
        return ContainerStats(
            timestamp=now,
            cpu_nanoseconds=_number(path("cpuacct", "cpuacct.usage")),
            memory_bytes=memory,
            working_set_bytes=max(0, memory - (cache or 0)) if memory is not None else None,
            processes=_number(path("pids", "pids.current")),
        )

    def _find(self, mounts: str, own: str) -> None:
        """Find the hierarchies that this process may write below its own group."""
        places = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in own.splitlines()}
        for line in mounts.splitlines():
            before, _, after = line.partition(" - ")
            point, kind, options = before.split()[4], after.split()[0], after.split()[-1].split(",")
            if kind == "cgroup":
                for name in self._v1_wanted & set(options):
                    place = next((path for names, path in places.items() if name in names.split(",")), "/")
                    root = _make(Path(point) / place.lstrip("/") / self.name)
                    if root is not None:
                        self._v1[name] = root
            elif kind == "cgroup2" and set(_V2) <= (controllers := _words(Path(point) / "cgroup.controllers")):
                with contextlib.suppress(OSError):
                    self._v2_controllers = [*_V2, *(name for name in self._v2_optional if name in controllers)]
                    (Path(point) / "cgroup.subtree_control").write_text(self._v2_switch)
                    self._v2 = _make(Path(point) / self.name)
        if self._v1:
            self._v2 = None

    def _make_root(self, root: Path) -> None:
        """Make the group of this node again, with its mark, if another node has removed it.

        A node that has lost its fork server looks like a dead one until the next one listens.
        """
        try:
            root.mkdir()
        except FileExistsError:
            return
        mark(root, self._directory)
        _bound_processes(root)

    def _create_v2(self, pod: str, container: str) -> None:
        assert self._v2 is not None
        path = self._v2
        self._make_root(path)
        for part in (pod, container):
            if not part:
                break
            (path / "cgroup.subtree_control").write_text(self._v2_switch)
            path = path / part
            path.mkdir(exist_ok=True)


def _make(path: Path) -> Path | None:
    try:
        path.mkdir(exist_ok=True)
    except OSError:
        return None
    return path if os.access(path / "cgroup.procs", os.W_OK) else None


def _bound_processes(root: Path) -> None:
    """Leave process numbers of the machine to its other processes, whatever the pods of the node do together."""
    limit = root / _PIDS
    if limit.exists():  # Version 1 has it in one hierarchy alone.
        limit.write_text(str(most_processes_of_pods()))


def _v1_limits(wanted: Resources) -> Mapping[str, str]:
    limits = {}
    if wanted.memory_bytes:
        limits["memory.limit_in_bytes"] = str(wanted.memory_bytes)
    if wanted.cpu_shares:
        limits["cpu.shares"] = str(wanted.cpu_shares)
    if wanted.cpu_quota:
        limits["cpu.cfs_period_us"] = str(wanted.cpu_period)
        limits["cpu.cfs_quota_us"] = str(wanted.cpu_quota)
    if wanted.pids:
        limits["pids.max"] = str(wanted.pids)
    pages = {f"hugetlb.{size}.limit_in_bytes": str(amount) for size, amount in wanted.huge_pages.items()}
    return limits | pages | _places(wanted)


def _v2_limits(wanted: Resources) -> Mapping[str, str]:
    limits = {}
    if wanted.memory_bytes:
        limits["memory.max"] = str(wanted.memory_bytes)
    if wanted.cpu_shares:
        limits["cpu.weight"] = str(1 + (max(2, min(wanted.cpu_shares, 262144)) - 2) * 9999 // 262142)
    if wanted.cpu_quota:
        limits["cpu.max"] = f"{wanted.cpu_quota} {wanted.cpu_period}"
    if wanted.pids:
        limits["pids.max"] = str(wanted.pids)
    pages = {f"hugetlb.{size}.max": str(amount) for size, amount in wanted.huge_pages.items()}
    return limits | pages | _places(wanted)


def _places(wanted: Resources) -> dict[str, str]:
    places = zip(_PLACES, (wanted.cpus, wanted.memory_nodes), strict=True)
    return {name: text for name, text in places if text}


def _fill_places(root: Path, path: Path) -> None:
    """Give the groups of version 1 from the node to `path` the CPUs and NUMA nodes of those above: they have none."""
    for group in reversed([path, *(above for above in path.parents if above.is_relative_to(root))]):
        for name in _PLACES:
            if not (group / name).read_text().strip():
                (group / name).write_text((group.parent / name).read_text())


def _write_all(path: Path, limits: Mapping[str, str]) -> None:
    for name, text in limits.items():
        (path / name).write_text(text)


def _remove(path: Path) -> None:
    """End the processes of a group and of those below it, and remove the groups; ending may take a moment."""
    if not path.is_dir():
        return
    for below in [child for child in path.iterdir() if child.is_dir()]:
        _remove(below)
    end_processes_of_groups([str(path)])
    for _ in range(_REMOVE_TRIES):
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _field(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), None)


def _words(path: Path) -> set[str]:
    try:
        return set(path.read_text().split())
    except OSError:
        return set()
