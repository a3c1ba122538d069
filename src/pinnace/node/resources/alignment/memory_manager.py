"""Gives containers memory of few NUMA nodes: kubelet's static memory manager policy with its checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pinnace.model.typed_objects import Container, Pod
from pinnace.node.resources.alignment.checkpoints import Checkpoint
from pinnace.node.resources.alignment.cpu_manager import check_policy
from pinnace.node.resources.alignment.hints import AllocationFailed, Hint, Hints, mask_of, masks_over, nodes_of
from pinnace.node.resources.alignment.machine_topology import MachineTopology
from pinnace.node.resources.alignment.requests import (
    containers_of,
    guaranteed_memory,
    init_containers_before,
    is_init,
    most_at_once,
)

STATIC = "Static"
STATE_FILE = "memory_manager_state"
_MEMORY = "memory"
_PREFIX = "[memorymanager] "


class MemoryTable(msgspec.Struct, rename={"reserved_for_system": "systemReserved"}):
    """The bytes of one resource on one NUMA node."""

    total: int
    reserved_for_system: int
    allocatable: int
    reserved: int
    """The bytes that containers have."""
    free: int


class NodeMemory(msgspec.Struct, rename="camel"):
    """One NUMA node. A node gives memory to containers of its own, or together with one group of others."""

    number_of_assignments: int
    memory_map: dict[str, MemoryTable]
    cells: list[int]
    """The NUMA nodes with which it gives memory."""


class Block(msgspec.Struct, rename={"nodes": "numaAffinity"}):
    """The memory of one container."""

    nodes: list[int]
    type: str
    size: int

    def __post_init__(self) -> None:
        self.nodes.sort()


@dataclass(slots=True)
class _State:
    nodes: dict[int, NodeMemory]
    assigned: dict[str, dict[str, list[Block]]] = field(default_factory=dict)


class _Saved(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[int, NodeMemory] = {}
    entries: dict[str, dict[str, list[Block]]] = {}


class MemoryManager:
    """A `HintProvider` for memory and huge pages."""

    def __init__(
        self, topology: MachineTopology, reserved: Mapping[int, Mapping[str, int]], checkpoint: Checkpoint
    ) -> None:
        """`reserved` has the bytes by NUMA node and resource that no container gets.

        Raise ValueError, or CheckpointRefused.
        """
        self._topology = topology
        self._reserved = reserved
        self._checkpoint = checkpoint
        if not sum(amounts.get(_MEMORY, 0) for amounts in reserved.values()):
            raise ValueError(f"{_PREFIX}you should specify the system reserved memory")
        self._reusable: tuple[str, dict[tuple[int, str], int]] = ("", {})
        """The bytes of the init containers of the pod that is being admitted, by NUMA nodes and resource."""
        self._state = self._load()
        self._save()

    # The memory of containers

    @property
    def uids(self) -> set[str]:
        """The pods that have memory of certain NUMA nodes."""
        return set(self._state.assigned)

    def nodes(self, uid: str, container: str) -> set[int]:
        """Return the NUMA nodes from which a container has its memory; empty for any."""
        return {node for block in self.blocks(uid, container) for node in block.nodes}

    def blocks(self, uid: str, container: str) -> Sequence[Block]:
        return self._state.assigned.get(uid, {}).get(container, ())

    @property
    def allocatable(self) -> list[Block]:
        """The memory of each NUMA node that containers can have."""
        return [
            Block([node], name, table.allocatable)
            for node, memory in sorted(self._state.nodes.items())
            for name, table in sorted(memory.memory_map.items())
            if table.allocatable
        ]

    # HintProvider

    def hints(self, pod: Pod, container: Container) -> Hints:
        wanted = guaranteed_memory(pod, container)
        if not wanted:
            return {}
        uid, name = pod["metadata"]["uid"], container["name"]
        if name in self._state.assigned.get(uid, {}):
            return self._known_hints(self.blocks(uid, name), wanted)
        return self._hints(uid, wanted)

    def pod_hints(self, pod: Pod) -> Hints:
        amounts = {container["name"]: guaranteed_memory(pod, container) for container in containers_of(pod)}
        names = {name for container in pod["spec"]["containers"] for name in amounts[container["name"]]}
        wanted = {
            name: most_at_once(pod, {container: own.get(name, 0) for container, own in amounts.items()})
            for name in sorted(names)
        }
        if not wanted:
            return {}
        uid = pod["metadata"]["uid"]
        for container in containers_of(pod):
            if container["name"] in self._state.assigned.get(uid, {}):
                return self._known_hints(self.blocks(uid, container["name"]), wanted)
        return self._hints(uid, wanted)

    async def allocate(self, pod: Pod, container: Container, hint: Hint) -> None:
        wanted = guaranteed_memory(pod, container)
        if not wanted:
            return
        uid, name = pod["metadata"]["uid"], container["name"]
        blocks = self._state.assigned.get(uid, {}).get(name)
        if blocks is None:
            nodes = nodes_of(self._choose(uid, wanted, hint))
            blocks = [Block(nodes, resource, size) for resource, size in wanted.items()]
            with self._saving() as state:
                for block in blocks:
                    again = self._reusable_of(uid).get((mask_of(nodes), block.type), 0)
                    _take(state.nodes, nodes, block.type, max(0, block.size - again))
                state.assigned.setdefault(uid, {})[name] = blocks
                _shrink_init_blocks(state, pod, container, blocks)
        self._note_reuse(pod, container, blocks)

    def release(self, uid: str) -> None:
        """Free the memory of a pod. Raise OSError."""
        if uid in self._state.assigned:
            with self._saving() as state:
                for blocks in state.assigned.pop(uid).values():
                    _free(state.nodes, blocks)

    def note_start(self, pod: Pod, container: Container) -> None:
        """Free the memory of the init containers that have ended, since another container starts. Raise OSError."""
        known = self._state.assigned.get(pod["metadata"]["uid"], {})
        ended = [init["name"] for init in init_containers_before(pod, container) if init["name"] in known]
        if ended:
            with self._saving() as state:
                for name in ended:
                    _free(state.nodes, state.assigned[pod["metadata"]["uid"]].pop(name))

    # Choosing

    def _choose(self, uid: str, wanted: Mapping[str, int], hint: Hint) -> int:
        """Return NUMA nodes with enough memory, those of the hint included. Raise AllocationFailed."""
        mask = hint.nodes
        is_preferred = hint.is_preferred
        if mask is None:
            hints = self._hints(uid, wanted).get(_MEMORY)
            if not hints:
                raise AllocationFailed(
                    f"{_PREFIX}failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
                )
            best = _best(hints)
            if not best.is_preferred and is_preferred:
                raise AllocationFailed(f"{_PREFIX}failed to find the default preferred hint")
            mask, is_preferred = best.nodes or 0, best.is_preferred
        if not self._has_free(mask, wanted):
            wider = [wide for wide in self._hints(uid, wanted).get(_MEMORY) or () if (wide.nodes or 0) & mask == mask]
            if not wider:
                raise AllocationFailed(f"{_PREFIX}failed to find NUMA nodes to extend the current topology hint")
            best = _best(wider)
            if not best.is_preferred and is_preferred:
                raise AllocationFailed(f"{_PREFIX}failed to find the extended preferred hint")
            mask = best.nodes or 0
        if not self._can_group(nodes_of(mask)):
            raise AllocationFailed(f"{_PREFIX}preferred hint violates NUMA node allocation")
        return mask

    def _has_free(self, mask: int, wanted: Mapping[str, int]) -> bool:
        return all(self._sum(mask, name, "free") >= size for name, size in wanted.items())

    def _sum(self, mask: int, name: str, column: str) -> int:
        tables = (self._state.nodes[node].memory_map.get(name) for node in nodes_of(mask) if node in self._state.nodes)
        return sum(getattr(table, column) for table in tables if table is not None)

    def _can_group(self, nodes: Sequence[int]) -> bool:
        """Whether each node gives no memory yet, or together with the same nodes."""
        if len(nodes) == 1:
            return True
        memories = [self._state.nodes[node] for node in nodes]
        return all(not memory.number_of_assignments or sorted(memory.cells) == list(nodes) for memory in memories)

    def _hints(self, uid: str, wanted: Mapping[str, int]) -> dict[str, list[Hint]]:
        """Return the sets of NUMA nodes with enough memory. There is no key at all if none has enough."""
        ids = sorted(self._state.nodes)
        fewest, masks = len(ids), []
        reusable = self._reusable_of(uid)
        for mask in masks_over(ids):
            nodes = nodes_of(mask)
            if any(self._sum(mask, name, "allocatable") < size for name, size in wanted.items()):
                continue
            fewest = min(fewest, len(nodes))
            if len(nodes) == 1 and len(self._state.nodes[nodes[0]].cells) > 1:
                continue
            has_enough = all(
                self._sum(mask, name, "free") + reusable.get((mask, name), 0) >= size for name, size in wanted.items()
            )
            if has_enough and self._can_group(nodes):
                masks.append(mask)
        hints = [Hint(mask, is_preferred=mask.bit_count() == fewest) for mask in masks]
        return {name: hints for name in wanted} if hints else {}

    def _known_hints(self, blocks: Sequence[Block], wanted: Mapping[str, int]) -> Hints:
        """Return the hints of memory that is allocated already; none if the container needs something else."""
        if {block.type: block.size for block in blocks} != wanted:
            return {}
        return {block.type: [Hint(mask_of(block.nodes), is_preferred=True)] for block in blocks}

    # Memory of init containers, which later containers of the pod have again

    def _reusable_of(self, uid: str) -> dict[tuple[int, str], int]:
        return self._reusable[1] if self._reusable[0] == uid else {}

    def _note_reuse(self, pod: Pod, container: Container, blocks: Sequence[Block]) -> None:
        uid = pod["metadata"]["uid"]
        reusable = self._reusable_of(uid)
        for block in blocks:
            key = mask_of(block.nodes), block.type
            there = reusable.get(key, 0)
            reusable[key] = max(there, block.size) if is_init(pod, container) else max(0, there - block.size)
        self._reusable = uid, reusable

    # The checkpoint

    @contextmanager
    def _saving(self) -> Iterator[_State]:
        """Change the state within a block, and keep it. If it cannot be kept, it stays as it was."""
        before, self._state = self._state, copy.deepcopy(self._state)
        try:
            yield self._state
            self._save()
        except BaseException:
            self._state = before
            raise

    def _save(self) -> None:
        saved = _Saved(STATIC, self._state.nodes, self._state.assigned)
        data: dict[str, Any] = msgspec.to_builtins(saved, str_keys=True)
        if not data["entries"]:
            del data["entries"]
        self._checkpoint.save(data)

    def _load(self) -> _State:
        data = self._checkpoint.load()
        if data is None:
            return _State(self._unused())
        check_policy(self._checkpoint, data, STATIC, _PREFIX)
        try:
            saved = msgspec.convert(data, _Saved, strict=False)
        except msgspec.ValidationError as error:
            raise self._checkpoint.refuse(f"could not parse the memory of containers: {error}") from None
        state = _State(saved.machine_state, saved.entries)
        if not state.nodes:
            if state.assigned:
                raise self._checkpoint.refuse(f"{_PREFIX}machine state can not be empty when it has memory assignments")
            return _State(self._unused())
        expected = self._expected(state)
        if not _are_equal(state.nodes, expected):
            raise self._checkpoint.refuse(f"{_PREFIX}the expected machine state is different from the real one")
        return state

    def _expected(self, state: _State) -> dict[int, NodeMemory]:
        """Return the memory of the machine with what containers have. Raise CheckpointRefused."""
        nodes = self._unused()
        for uid, containers in state.assigned.items():
            for name, blocks in containers.items():
                for block in blocks:
                    where = f"{_PREFIX}(pod: {uid}, container: {name}) the memory assignment uses"
                    if not nodes.keys() >= set(block.nodes):
                        raise self._checkpoint.refuse(f"{where} the NUMA that does not exist")
                    if any(block.type not in nodes[node].memory_map for node in block.nodes):
                        raise self._checkpoint.refuse(f"{where} memory resource that does not exist")
                    _take(nodes, block.nodes, block.type, block.size)
        return nodes

    def _unused(self) -> dict[int, NodeMemory]:
        """Return the memory of the machine while no container has any."""
        nodes = {}
        for node, description in self._topology.nodes.items():
            reserved = self._reserved.get(node, {})
            tables = {name: _table(size, reserved.get(name, 0)) for name, size in description.memory.items()}
            pages = sum(table.total for name, table in tables.items() if name != _MEMORY)
            tables[_MEMORY].allocatable = tables[_MEMORY].free = max(0, tables[_MEMORY].allocatable - pages)
            nodes[node] = NodeMemory(0, tables, [node])
        return nodes


def _table(total: int, reserved: int) -> MemoryTable:
    left = max(0, total - reserved)
    return MemoryTable(total, reserved, left, 0, left)


def _take(nodes: Mapping[int, NodeMemory], chosen: Sequence[int], name: str, size: int) -> None:
    """Take memory from the first of the nodes that have some."""
    for node in chosen:
        memory = nodes[node]
        memory.number_of_assignments += 1
        memory.cells = list(chosen)
        table = memory.memory_map.get(name)
        if table is not None:
            taken = min(size, table.free)
            table.reserved += taken
            table.free -= taken
            size -= taken


def _free(nodes: Mapping[int, NodeMemory], blocks: Sequence[Block]) -> None:
    for block in blocks:
        size = block.size
        for node in block.nodes:
            memory = nodes[node]
            memory.number_of_assignments -= 1
            if not memory.number_of_assignments:
                memory.cells = [node]
            table = memory.memory_map.get(block.type)
            if table is not None:
                given = min(size, table.reserved)
                table.reserved -= given
                table.free += given
                size -= given


def _shrink_init_blocks(state: _State, pod: Pod, container: Container, blocks: Sequence[Block]) -> None:
    """Take from the init containers what a later container has again, so that the sum is what the pod has."""
    known = state.assigned[pod["metadata"]["uid"]]
    for block in blocks:
        left = block.size
        for init in init_containers_before(pod, container):
            for earlier in known.get(init["name"], ()):
                if earlier.type == block.type and earlier.nodes == block.nodes:
                    again = min(left, earlier.size)
                    earlier.size -= again
                    left -= again


def _best(hints: Sequence[Hint]) -> Hint:
    return min(hints, key=lambda hint: (not hint.is_preferred, (hint.nodes or 0).bit_count(), hint.nodes or 0))


def _are_equal(first: Mapping[int, NodeMemory], second: Mapping[int, NodeMemory]) -> bool:
    """Compare what the nodes of two states give. Within a group of nodes the sums count."""
    if first.keys() != second.keys():
        return False
    for node, memory in first.items():
        other = second[node]
        if memory.number_of_assignments != other.number_of_assignments or sorted(memory.cells) != sorted(other.cells):
            return False
        if memory.memory_map.keys() != other.memory_map.keys():
            return False
        for name, table in memory.memory_map.items():
            same = other.memory_map[name]
            if (table.total, table.reserved_for_system, table.allocatable) != (
                same.total,
                same.reserved_for_system,
                same.allocatable,
            ):
                return False
            groups = [[state[cell].memory_map[name] for cell in memory.cells] for state in (first, second)]
            if len({(sum(cell.free for cell in group), sum(cell.reserved for cell in group)) for group in groups}) > 1:
                return False
    return True
