"""Plug-ins written as functions of one pod and one node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pinnace.model.typed_objects import Taint
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod


class NodeView:
    """One node, read from the arrays."""

    __slots__ = ("_state", "slot")

    def __init__(self, state: ClusterState, slot: int) -> None:
        self._state = state
        self.slot = slot

    @property
    def name(self) -> str:
        return self._state.nodes.names[self.slot]

    @property
    def labels(self) -> Mapping[str, str]:
        return self._state.nodes.labels.of(self.slot)

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self._state.nodes.taint_sets[int(self._state.nodes.taints[self.slot])]

    @property
    def unschedulable(self) -> bool:
        return bool(self._state.nodes.unschedulable[self.slot])

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Thousandths of a cpu, bytes, and whole units of all else."""
        nodes = self._state.nodes
        return {name: int(nodes.allocatable[row, self.slot]) for name, row in nodes.resources.items()}

    @property
    def requested(self) -> Mapping[str, int]:
        nodes = self._state.nodes
        return {name: int(self._state.requested[row, self.slot]) for name, row in nodes.resources.items()}

    @property
    def pods(self) -> Iterable[Pod]:
        return self._state.pods_at(self.slot)
