"""The sockets, cores, caches and NUMA nodes of a machine, as the kernel describes them below /sys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pinnace.kinds.pods.resource_amounts import HUGE_PAGES
from pinnace.model import quantity
from pinnace.model.quantity import Format

SYS = Path("/sys")
_MOST_CPUS = 8192
"""The kernel has no more."""
_RANGE = re.compile("([0-9]{1,9})(?:-([0-9]{1,9}))?")
_CPU, _NODE, _POOL = re.compile("cpu([0-9]+)"), re.compile("node([0-9]+)"), re.compile("hugepages-([0-9]+)kB")


class CpuPart(StrEnum):
    """The parts of a machine that have several CPUs."""

    NUMA_NODE = "numa"
    SOCKET = "socket"
    CACHE = "cache"
    """The CPUs that share the last cache."""
    CORE = "core"


@dataclass(frozen=True, slots=True)
class NumaResources:
    memory: Mapping[str, int]
    """Bytes of memory, huge pages included, and of each size of huge pages, by the names of the resources."""
    distances: Sequence[int]
    """Those to all NUMA nodes in their order."""


@dataclass(frozen=True, slots=True)
class MachineTopology:
    places: Mapping[int, Mapping[CpuPart, int]]
    """By CPU: the id of each part of the machine that it belongs to. The id of a core is that of its first CPU."""
    nodes: Mapping[int, NumaResources]

    @property
    def cpus(self) -> frozenset[int]:
        return frozenset(self.places)

    def ids(self, level: CpuPart, cpus: Iterable[int]) -> set[int]:
        """Return the ids of the parts to which some CPUs belong."""
        return {self.places[cpu][level] for cpu in cpus}

    def count(self, level: CpuPart) -> int:
        return len(self.ids(level, self.places))

    @property
    def cpus_per_core(self) -> int:
        return len(self.places) // self.count(CpuPart.CORE)

    def within(self, level: CpuPart, parts: Iterable[int], cpus: Iterable[int]) -> frozenset[int]:
        """Return those of the CPUs that belong to some of the parts."""
        wanted = frozenset(parts)
        return frozenset(cpu for cpu in cpus if self.places[cpu][level] in wanted)


def discover(sys: Path = SYS) -> MachineTopology:
    """Read the description of the machine. Raise ValueError if it is not there."""
    numa = {cpu: node for node in _numbered(sys / "devices/system/node", _NODE) for cpu in _cpus_of_node(sys, node)}
    places = {}
    for cpu in _numbered(sys / "devices/system/cpu", _CPU):
        directory = sys / f"devices/system/cpu/cpu{cpu}"
        if not (directory / "topology").is_dir():
            continue  # The CPU is offline.
        socket = int(_read(directory / "topology/physical_package_id") or 0)
        threads = parse_cpus(_read(directory / "topology/thread_siblings_list") or str(cpu))
        shared = _read(directory / "cache/index3/shared_cpu_list")
        places[cpu] = {
            CpuPart.NUMA_NODE: numa.get(cpu, 0),
            CpuPart.SOCKET: socket,
            CpuPart.CACHE: min(parse_cpus(shared)) if shared else socket,
            CpuPart.CORE: min(threads),
        }
    if not places:
        raise ValueError("could not detect number of cpus")
    nodes = {node: _numa_node(sys, node) for node in _numbered(sys / "devices/system/node", _NODE)}
    return MachineTopology(places, nodes or {0: NumaResources({"memory": _memory_of_machine()}, (10,))})


def parse_cpus(text: str) -> frozenset[int]:
    """Read a list of CPUs such as 0-3,8. Raise ValueError."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f'strconv.Atoi: parsing "{part}": invalid syntax')
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f'invalid range "{part}" ({first} > {last})')
        if last >= _MOST_CPUS:
            raise ValueError(f'invalid range "{part}": Linux has at most {_MOST_CPUS} CPUs')
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """Write CPUs as the kernel and kubelet do: ranges, in their order."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _numbered(directory: Path, name: re.Pattern[str]) -> list[int]:
    matches = [name.fullmatch(path.name) for path in directory.iterdir()] if directory.is_dir() else []
    return sorted(int(match[1]) for match in matches if match is not None)


def _cpus_of_node(sys: Path, node: int) -> frozenset[int]:
    return parse_cpus(_read(sys / f"devices/system/node/node{node}/cpulist"))


def _numa_node(sys: Path, node: int) -> NumaResources:
    directory = sys / f"devices/system/node/node{node}"
    lines = _read(directory / "meminfo").splitlines()
    total = next((int(line.split()[3]) << 10 for line in lines if "MemTotal:" in line), 0)
    distances = [int(word) for word in _read(directory / "distance").split()]
    return NumaResources({"memory": total, **dict(_huge_pages(directory / "hugepages"))}, distances)


def _huge_pages(pools: Path) -> Iterator[tuple[str, int]]:
    for kilobytes in _numbered(pools, _POOL):
        count = int(_read(pools / f"hugepages-{kilobytes}kB/nr_hugepages") or 0)
        yield f"{HUGE_PAGES}{quantity.of(kilobytes << 10, Format.BINARY_SI)}", count * (kilobytes << 10)


def _memory_of_machine() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal")), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
