"""Plug-ins written as functions of one pod and one node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from pinnace.model.objects import Object
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import Refusal, unschedulable
from pinnace.scheduler.state.arrays import At, Codes, Integers, slots_of
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
    def taints(self) -> tuple[Object, ...]:
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


class OneNodeFilter:
    """A filter from a function that returns the reason why a node does not fit, or None."""

    depends = Depends.CLUSTER

    def __init__(self, name: str, function: Callable[[Pod, NodeView], str | None]) -> None:
        self.name = name
        self._function = function

    def filter(self, cycle: Cycle, at: At) -> Codes:
        reasons: dict[str, int] = {}
        codes = np.zeros(len(slots_of(at, cycle.state.size)), dtype=np.int32)
        for position, slot in enumerate(slots_of(at, cycle.state.size).tolist()):
            if not cycle.state.nodes.present[slot]:
                continue
            reason = self._function(cycle.pod, NodeView(cycle.state, slot))
            if reason is not None:
                codes[position] = reasons.setdefault(reason, len(reasons) + 1)
        cycle.data[self.name] = list(reasons)
        return codes

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return unschedulable(cycle.data[self.name][code - 1])


class OneNodeScore:
    """A score from a function that returns a number from 0 to 100."""

    depends = Depends.CLUSTER

    def __init__(self, name: str, function: Callable[[Pod, NodeView], float]) -> None:
        self.name = name
        self._function = function

    def score(self, cycle: Cycle, at: At) -> Integers:
        return np.array(
            [
                int(self._function(cycle.pod, NodeView(cycle.state, slot))) if cycle.state.nodes.present[slot] else 0
                for slot in slots_of(at, cycle.state.size).tolist()
            ],
            dtype=np.int64,
        )
