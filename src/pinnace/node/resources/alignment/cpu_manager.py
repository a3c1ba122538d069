"""Gives containers CPUs of their own: kubelet's static CPU manager policy, with its options and its checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.typed_objects import Container, Pod
from pinnace.node.resources.alignment.checkpoints import Checkpoint
from pinnace.node.resources.alignment.cpu_assignment import CpuOrder, take_cpus
from pinnace.node.resources.alignment.hints import AllocationFailed, Hint, Hints, masks_over, nodes_of
from pinnace.node.resources.alignment.machine_topology import CpuPart, MachineTopology, format_cpus, parse_cpus
from pinnace.node.resources.alignment.policy_options import check_options, read_flag
from pinnace.node.resources.alignment.requests import containers_of, exclusive_cpus, is_init, most_at_once

STATIC = "static"
STATE_FILE = "cpu_manager_state"
_WHOLE_CORES, _OVER_NUMA_NODES, _OVER_CORES = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "distribute-cpus-across-cores",
)
_SOCKETS, _STRICT, _CACHES = "align-by-socket", "strict-cpu-reservation", "prefer-align-cpus-by-uncorecache"
_OPTIONS = {
    _WHOLE_CORES: "ga",
    _STRICT: "ga",
    _CACHES: "ga",
    _OVER_NUMA_NODES: "beta",
    _SOCKETS: "alpha",
    _OVER_CORES: "alpha",
}
"""The options of the policy by their stage."""
_EXCLUDING = (
    (_WHOLE_CORES, _OVER_CORES),
    (_OVER_NUMA_NODES, _OVER_CORES),
    (_CACHES, _OVER_CORES),
    (_CACHES, _OVER_NUMA_NODES),
)
_CPU = "cpu"


class SmtAlignmentFailed(AllocationFailed):
    """Whole cores cannot be given; the message is kubelet's."""

    reason = "SMTAlignmentError"

    @property
    def admission_message(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """The options of the static policy."""

    order: CpuOrder
    is_strict: bool
    """Whether the containers that share CPUs stay off the reserved ones, too (strict-cpu-reservation)."""

    @classmethod
    def read(cls, options: Mapping[str, str], gates: FeatureGates) -> CpuOptions:
        """Raise ValueError."""
        check_options("CPU Manager", options, _OPTIONS, gates)
        values = {name: read_flag(options, name) for name in _OPTIONS}
        for first, second in _EXCLUDING:
            if values[first] and values[second]:
                raise ValueError(f"static policy options {first} and {second} can not be used at the same time")
        order = CpuOrder(
            has_whole_cores=values[_WHOLE_CORES],
            distributes_over_numa_nodes=values[_OVER_NUMA_NODES],
            distributes_over_cores=values[_OVER_CORES],
            prefers_caches=values[_CACHES],
            aligns_sockets=values[_SOCKETS],
        )
        return cls(order, is_strict=values[_STRICT])


@dataclass(slots=True)
class _State:
    shared: frozenset[int] = frozenset()
    """The CPUs of all containers that have none for themselves."""
    assigned: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    """By the uid of the pod and the name of the container."""


class CpuManager:
    """A `HintProvider` for CPUs."""

    def __init__(
        self, topology: MachineTopology, reserved: frozenset[int] | int, options: CpuOptions, checkpoint: Checkpoint
    ) -> None:
        """`reserved` are the CPUs that no container gets for itself, or how many.

        Raise ValueError, or CheckpointRefused if what is known of running containers does not suit the machine.
        """
        self._topology = topology
        self._options = options
        self._checkpoint = checkpoint
        if isinstance(reserved, int):
            try:
                reserved = take_cpus(topology, topology.cpus, reserved, options.order)
            except AllocationFailed:
                raise ValueError(
                    f"[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal {reserved})"
                ) from None
        self.reserved = reserved
        cores = topology.ids(CpuPart.CORE, reserved)
        self._reserved_cores = topology.within(CpuPart.CORE, cores, topology.cpus)
        self._reusable: tuple[str, frozenset[int]] = ("", frozenset())
        """The CPUs of the init containers of the pod that is being admitted."""
        self._state = self._load()
        if not self._state.shared and not self._state.assigned:
            self._state.shared = topology.cpus - reserved if options.is_strict else topology.cpus
        self._save()

    # The CPUs of containers

    @property
    def shared(self) -> frozenset[int]:
        """The CPUs of containers that have none for themselves."""
        return self._state.shared

    @property
    def allocatable(self) -> frozenset[int]:
        """The CPUs that containers can get for themselves."""
        return self._topology.cpus - self.reserved

    @property
    def uids(self) -> set[str]:
        """The pods that have CPUs for themselves."""
        return set(self._state.assigned)

    def assigned(self, uid: str, container: str) -> frozenset[int]:
        """Return the CPUs that a container has for itself."""
        return self._state.assigned.get(uid, {}).get(container, frozenset())

    # HintProvider

    def hints(self, pod: Pod, container: Container) -> Hints:
        wanted = exclusive_cpus(pod, container)
        if not wanted:
            return {}
        uid = pod["metadata"]["uid"]
        if known := self.assigned(uid, container["name"]):
            return {_CPU: self._hints(known, frozenset(), wanted) if len(known) == wanted else []}
        return {_CPU: self._hints(self._available, self._reusable_of(uid), wanted)}

    def pod_hints(self, pod: Pod) -> Hints:
        amounts = {container["name"]: exclusive_cpus(pod, container) for container in containers_of(pod)}
        wanted = most_at_once(pod, amounts)
        if not wanted:
            return {}
        uid = pod["metadata"]["uid"]
        known: frozenset[int] = frozenset()
        for name, amount in amounts.items():
            cpus = self.assigned(uid, name)
            if cpus and len(cpus) != amount:
                return {_CPU: []}
            known |= cpus
        if len(known) == wanted:
            return {_CPU: self._hints(known, frozenset(), wanted)}
        return {_CPU: self._hints(self._available, self._reusable_of(uid) | known, wanted)}

    async def allocate(self, pod: Pod, container: Container, hint: Hint) -> None:
        wanted = exclusive_cpus(pod, container)
        if not wanted:
            return
        uid, name = pod["metadata"]["uid"], container["name"]
        known = self.assigned(uid, name)
        if not known:
            self._check_cores(wanted)
            known = self._choose(wanted, hint, self._reusable_of(uid))
            with self._saving() as state:
                state.shared -= known
                state.assigned.setdefault(uid, {})[name] = known
        reusable = self._reusable_of(uid)
        self._reusable = uid, reusable | known if is_init(pod, container) else reusable - known

    def release(self, uid: str) -> None:
        """Give the CPUs of a pod back to the others. Raise OSError."""
        if uid not in self._state.assigned:
            return
        with self._saving() as state:
            for cpus in state.assigned.pop(uid).values():
                state.shared |= cpus

    # Choosing

    @property
    def _available(self) -> frozenset[int]:
        return self._state.shared - self.reserved

    def _reusable_of(self, uid: str) -> frozenset[int]:
        return self._reusable[1] if self._reusable[0] == uid else frozenset()

    def _check_cores(self, wanted: int) -> None:
        """With full-pcpus-only, no core is shared by two containers. Raise SmtAlignmentFailed."""
        if not self._options.order.has_whole_cores:
            return
        per_core = self._topology.cpus_per_core
        if wanted % per_core:
            raise SmtAlignmentFailed(
                f"SMT Alignment Error: requested {wanted} cpus not multiple cpus per core = {per_core}"
            )
        there = len(self._state.shared - self._reserved_cores)
        if wanted > there:
            raise SmtAlignmentFailed(
                f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {there}, "
                f"requested CPUs = {wanted}, CPUs per core = {per_core}"
            )

    def _choose(self, wanted: int, hint: Hint, reusable: frozenset[int]) -> frozenset[int]:
        """Return CPUs, those of the hint's NUMA nodes first. Raise AllocationFailed."""
        available, chosen = self._available | reusable, frozenset[int]()
        if hint.nodes is not None:
            near = self._aligned(nodes_of(hint.nodes), available)
            chosen = take_cpus(self._topology, near, min(wanted, len(near)), self._options.order)
        return chosen | take_cpus(self._topology, available - chosen, wanted - len(chosen), self._options.order)

    def _aligned(self, nodes: list[int], cpus: frozenset[int]) -> frozenset[int]:
        if not self._options.order.aligns_sockets:
            return self._topology.within(CpuPart.NUMA_NODE, nodes, cpus)
        return self._topology.within(CpuPart.SOCKET, self._sockets_of(nodes), cpus)

    def _sockets_of(self, nodes: list[int]) -> set[int]:
        return self._topology.ids(CpuPart.SOCKET, self._topology.within(CpuPart.NUMA_NODE, nodes, self._topology.cpus))

    def _hints(self, available: frozenset[int], reusable: frozenset[int], wanted: int) -> list[Hint]:
        topology = self._topology
        ids = sorted(topology.ids(CpuPart.NUMA_NODE, topology.cpus))
        fewest, masks = len(ids), []
        needed = topology.ids(CpuPart.NUMA_NODE, reusable)
        for mask in masks_over(ids):
            nodes = nodes_of(mask)
            if len(topology.within(CpuPart.NUMA_NODE, nodes, topology.cpus)) >= wanted:
                fewest = min(fewest, len(nodes))
            there = len(topology.within(CpuPart.NUMA_NODE, nodes, available)) + len(reusable)
            if needed <= set(nodes) and there >= wanted:
                masks.append(mask)
        return [Hint(mask, is_preferred=self._is_preferred(nodes_of(mask), fewest)) for mask in masks]

    def _is_preferred(self, nodes: list[int], fewest: int) -> bool:
        if self._options.order.aligns_sockets:
            per_socket = self._topology.count(CpuPart.NUMA_NODE) // self._topology.count(CpuPart.SOCKET)
            if per_socket and len(self._sockets_of(nodes)) == -(-fewest // per_socket):
                return True
        return len(nodes) == fewest

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
        entries = {
            uid: {name: format_cpus(cpus) for name, cpus in sorted(containers.items())}
            for uid, containers in sorted(self._state.assigned.items())
        }
        data: dict[str, Any] = {"policyName": STATIC, "defaultCpuSet": format_cpus(self._state.shared)}
        self._checkpoint.save({**data, "entries": entries} if entries else data)

    def _load(self) -> _State:
        """Return the state of an earlier agent. Raise CheckpointRefused if it does not suit the machine."""
        data = self._checkpoint.load()
        if data is None:
            return _State()
        check_policy(self._checkpoint, data, STATIC)
        state = _State()
        try:
            state.shared = parse_cpus(data.get("defaultCpuSet", ""))
            for uid, containers in (data.get("entries") or {}).items():
                state.assigned[uid] = {name: parse_cpus(text) for name, text in containers.items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise self._checkpoint.refuse(f"could not parse cpuset: {error}") from None
        if reason := self._mismatch(state):
            raise self._checkpoint.refuse(reason)
        return state

    def _mismatch(self, state: _State) -> str:
        """Return why a state does not suit the machine; empty if it does."""
        shared = format_cpus(state.shared)
        if not state.shared:
            return "default cpuset cannot be empty" if state.assigned else ""
        everything = self._topology.cpus
        if self._options.is_strict:
            everything -= self.reserved
            if wrong := self.reserved & state.shared:
                return (
                    f'some of strictly reserved cpus: "{format_cpus(wrong)}" are present in defaultCpuSet: "{shared}"'
                )
        elif not self.reserved <= state.shared:
            reserved = format_cpus(self.reserved)
            return f'not all reserved cpus: "{reserved}" are present in defaultCpuSet: "{shared}"'
        known = state.shared
        for uid, containers in state.assigned.items():
            for name, cpus in containers.items():
                if cpus & state.shared:
                    text = format_cpus(cpus)
                    return f'pod: {uid}, container: {name} cpuset: "{text}" overlaps with default cpuset "{shared}"'
                known |= cpus
        if known != everything:
            there, stated = format_cpus(everything), format_cpus(known)
            return f'current set of available CPUs "{there}" doesn\'t match with CPUs in state "{stated}"'
        return ""


def check_policy(checkpoint: Checkpoint, data: Mapping[str, Any], policy: str, prefix: str = "") -> None:
    """Raise CheckpointRefused if another policy wrote a checkpoint."""
    if data.get("policyName") != policy:
        written = data.get("policyName")
        raise checkpoint.refuse(
            f'{prefix}configured policy "{policy}" differs from state checkpoint policy "{written}"'
        )
