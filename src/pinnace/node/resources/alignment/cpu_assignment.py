"""Chooses CPUs for a container: whole sockets, NUMA nodes and cores first, and the fullest parts of the machine first.

The choices are those of kubelet, so that a node shares its CPUs out in the same way.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from pinnace.node.resources.alignment.hints import AllocationFailed
from pinnace.node.resources.alignment.machine_topology import CpuPart, MachineTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOrder:
    """The options of the static policy that change which CPUs are chosen."""

    has_whole_cores: bool = False
    """full-pcpus-only"""
    distributes_over_numa_nodes: bool = False
    """distribute-cpus-across-numa"""
    distributes_over_cores: bool = False
    """distribute-cpus-across-cores"""
    prefers_caches: bool = False
    """prefer-align-cpus-by-uncorecache"""
    aligns_sockets: bool = False
    """align-by-socket"""


def take_cpus(topology: MachineTopology, available: frozenset[int], count: int, order: CpuOrder) -> frozenset[int]:
    """Choose `count` of the available CPUs. Raise AllocationFailed."""
    if count > len(available):
        text = f"not enough cpus available to satisfy request: requested={count}, available={len(available)}"
        raise AllocationFailed(text)
    if order.distributes_over_numa_nodes and count:
        group = topology.cpus_per_core if order.has_whole_cores else 1
        if count % group == 0:
            return _Distribution(topology, available, count, group, order).take()
        return _take_packed(topology, available, count, CpuOrder(distributes_over_cores=order.distributes_over_cores))
    return _take_packed(topology, available, count, order)


def _take_packed(topology: MachineTopology, available: frozenset[int], count: int, order: CpuOrder) -> frozenset[int]:
    choice = _Choice(topology, available, count)
    for level in choice.levels[:2]:
        choice.take_whole(level)
    if order.prefers_caches:
        choice.take_caches()
    if order.distributes_over_cores:
        choice.take_single(choice.cpus_by_socket())
    else:
        choice.take_whole(CpuPart.CORE)
        choice.take_single(choice.cpus_by_core())
    return frozenset(choice.taken)


class _Choice:
    """The CPUs that were taken, and those that are still free."""

    def __init__(self, topology: MachineTopology, available: frozenset[int], count: int) -> None:
        self._topology = topology
        self._free = available
        self.missing = count
        self.taken: set[int] = set()
        is_numa_above = topology.count(CpuPart.SOCKET) >= topology.count(CpuPart.NUMA_NODE)
        upper = (CpuPart.NUMA_NODE, CpuPart.SOCKET) if is_numa_above else (CpuPart.SOCKET, CpuPart.NUMA_NODE)
        self.levels = (*upper, CpuPart.CORE)
        """The levels of the machine, from the largest parts to the smallest."""

    def ordered(self, level: CpuPart) -> list[int]:
        """Return the parts that have free CPUs: within each larger part, those with the fewest first."""
        if level is CpuPart.CACHE:
            return [
                cache
                for node in self.ordered(CpuPart.NUMA_NODE)
                for cache in self._parts(level, CpuPart.NUMA_NODE, node)
            ]
        position = self.levels.index(level)
        if position == 0:
            return self._sorted(level, self._topology.ids(level, self._free))
        above = self.levels[position - 1]
        return [part for larger in self.ordered(above) for part in self._parts(level, above, larger)]

    def _parts(self, level: CpuPart, above: CpuPart, larger: int) -> list[int]:
        return self._sorted(level, self._topology.ids(level, self._topology.within(above, [larger], self._free)))

    def _sorted(self, level: CpuPart, parts: Iterable[int]) -> list[int]:
        return sorted(parts, key=lambda part: (len(self._free_in(level, part)), part))

    def _free_in(self, level: CpuPart, part: int) -> frozenset[int]:
        return self._topology.within(level, [part], self._free)

    def _take(self, cpus: Iterable[int]) -> None:
        chosen = frozenset(cpus)
        self.taken |= chosen
        self._free -= chosen
        self.missing -= len(chosen)

    def take_whole(self, level: CpuPart) -> None:
        """Take parts that are entirely free, as long as that many CPUs are missing."""
        for part in self.ordered(level):
            everything = self._topology.within(level, [part], self._topology.cpus)
            if everything <= self._free and self.missing >= len(everything):
                self._take(everything)

    def take_caches(self) -> None:
        """Take the CPUs of whole caches, then all that are missing from the first cache that has enough cores."""
        size = len(self._topology.cpus) // self._topology.count(CpuPart.CACHE)
        for cache in self.ordered(CpuPart.CACHE):
            if self.missing >= size:
                self.take_whole(CpuPart.CACHE)
            if self.missing < 1:
                return
            self._take_part_of_cache(cache)

    def _take_part_of_cache(self, cache: int) -> None:
        per_core = self._topology.cpus_per_core
        cores = sorted(self._topology.ids(CpuPart.CORE, self._free_in(CpuPart.CACHE, cache)))
        wanted = cores[: -(-self.missing // per_core)]
        cpus = sorted(self._topology.within(CpuPart.CORE, wanted, self._free))
        if self.missing % 2 and per_core > 1 and len(cpus) > self.missing:
            cpus.pop()
        if len(cpus) == self.missing:
            self._take(cpus)

    def cpus_by_core(self) -> Iterator[int]:
        for core in self.ordered(CpuPart.CORE):
            yield from sorted(self._free_in(CpuPart.CORE, core))

    def cpus_by_socket(self) -> Iterator[int]:
        for socket in self.ordered(CpuPart.SOCKET):
            yield from sorted(self._free_in(CpuPart.SOCKET, socket))

    def take_single(self, cpus: Iterator[int]) -> None:
        self._take(list(cpus)[: max(0, self.missing)])


@dataclass(slots=True)
class _Split:
    """How many CPUs each NUMA node of a set gives, and which of them give the rest."""

    balance: float
    """The deviation of the CPUs that stay free on the nodes: lower is better."""
    nodes: tuple[int, ...]
    share: int
    rest_from: tuple[int, ...]
    is_one_socket: bool


class _Distribution:
    """Takes an equal number of CPUs from each of the fewest NUMA nodes that allow it."""

    def __init__(
        self, topology: MachineTopology, available: frozenset[int], count: int, group: int, order: CpuOrder
    ) -> None:
        """The CPUs are taken in groups of this size."""
        self._topology = topology
        self._available = available
        self._count = count
        self._group = group
        self._aligns_sockets = order.aligns_sockets
        self._order = CpuOrder(distributes_over_cores=order.distributes_over_cores)
        self._free = {node: len(self._in(node)) for node in topology.ids(CpuPart.NUMA_NODE, available)}
        self._nodes = _Choice(topology, available, count).ordered(CpuPart.NUMA_NODE)

    def take(self) -> frozenset[int]:
        for size in self._sizes():
            split = self._best_split(size)
            if split is not None:
                return self._take_split(split)
        return _take_packed(self._topology, self._available, self._count, self._order)

    def _in(self, node: int) -> frozenset[int]:
        return self._topology.within(CpuPart.NUMA_NODE, [node], self._available)

    def _sizes(self) -> range:
        """Return the numbers of NUMA nodes that can have enough CPUs."""
        groups = -(-len(self._topology.cpus) // self._group)
        per_node = -(-groups // self._topology.count(CpuPart.NUMA_NODE))
        needed = -(-self._count // self._group)
        return range(-(-needed // per_node), min(needed, len(self._nodes)) + 1)

    def _best_split(self, size: int) -> _Split | None:
        best: _Split | None = None
        for nodes in combinations(self._nodes, size):
            if best is not None and best.balance == 0 and (not self._aligns_sockets or best.is_one_socket):
                break
            split = self._split(nodes)
            if split is None:
                continue
            is_better = split.balance < (best.balance if best is not None else math.inf)
            if self._aligns_sockets and split.is_one_socket != (best is not None and best.is_one_socket):
                is_better = split.is_one_socket
            if is_better:
                best = split
        return best

    def _split(self, nodes: tuple[int, ...]) -> _Split | None:
        """Return how to take the CPUs from a set of nodes; None if that is impossible."""
        group = self._group
        usable = [self._free[node] // group * group for node in nodes]
        if sum(usable) < self._count:
            return None
        share = self._count // len(nodes) // group * group
        if self._aligns_sockets:
            share = min(share, *usable)
        if any(self._free[node] < share for node in nodes):
            return None
        left = {node: free - (share if node in nodes else 0) for node, free in self._free.items()}
        balance, rest_from = self._spread_rest(nodes, left, self._count - share * len(nodes))
        is_one_socket = False
        if self._aligns_sockets:
            everything = self._topology.within(CpuPart.NUMA_NODE, nodes, self._topology.cpus)
            is_one_socket = len(self._topology.ids(CpuPart.SOCKET, everything)) <= 1
        return _Split(balance, nodes, share, rest_from, is_one_socket)

    def _spread_rest(self, nodes: tuple[int, ...], left: dict[int, int], rest: int) -> tuple[float, tuple[int, ...]]:
        """Return the best balance, and the nodes that give the rest of the CPUs, in groups."""
        if rest == 0:
            return _deviation(left.values()), ()
        best: tuple[float, tuple[int, ...]] = (math.inf, ())
        candidates = [node for node in nodes if left[node] >= self._group]
        for size in range(len(candidates), 0, -1):
            for chosen in combinations(candidates, size):
                if sum(left[node] // self._group * self._group for node in chosen) < rest:
                    continue
                after = dict(left)
                for node in self._rounds(chosen, after, rest):
                    after[node] -= self._group
                balance = _deviation(after.values())
                if balance < best[0]:
                    best = balance, chosen
        return best

    def _rounds(self, nodes: Sequence[int], left: dict[int, int], rest: int) -> Iterator[int]:
        """Yield the node that gives the next group, in rounds over those that have one left."""
        while rest > 0:
            for node in nodes:
                if rest > 0 and left[node] >= self._group:
                    rest -= self._group
                    yield node

    def _take_split(self, split: _Split) -> frozenset[int]:
        left = {node: self._in(node) for node in split.nodes}
        share = min(split.share, *(len(cpus) // self._group * self._group for cpus in left.values()))
        taken: set[int] = set()

        def take(node: int, count: int) -> None:
            chosen = _take_packed(self._topology, left[node], count, self._order)
            left[node] -= chosen
            taken.update(chosen)

        for node in split.nodes:
            take(node, share)
        counts = {node: len(cpus) for node, cpus in left.items()}
        for node in self._rounds(split.rest_from, counts, self._count - share * len(split.nodes)):
            counts[node] -= self._group
            take(node, self._group)
        return frozenset(taken)


def _deviation(counts: Iterable[int]) -> float:
    return round(statistics.pstdev(counts), 3)
