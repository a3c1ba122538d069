"""Arrays over all nodes, for functions that score or filter them at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pinnace.model.objects import Object
from pinnace.scheduler.framework.one_node import NodeView
from pinnace.scheduler.state.arrays import At, Integers, Mask, Slots, slots_of
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.nodes import PODS

Texts = npt.NDArray[np.object_]


class NodeArrays:
    """Some nodes, in a fixed order: every array has one element for each. Do not change the arrays."""

    __slots__ = ("_state", "slots")

    def __init__(self, state: ClusterState, at: At) -> None:
        self._state = state
        slots = slots_of(at, state.size)
        self.slots: Slots = slots if state.nodes.count == state.size else slots[state.nodes.present[slots]]

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, position: int) -> NodeView:
        """Return one node."""
        return NodeView(self._state, int(self.slots[position]))

    @property
    def names(self) -> list[str]:
        names = self._state.nodes.names
        return [names[slot] for slot in self.slots.tolist()]

    # Labels

    def label(self, key: str, default: str = "") -> Texts:
        """Return the values of a label."""
        column = self._state.nodes.labels.column(key)
        values = np.array([*column.values, default], dtype=np.object_)
        return values[column.codes(self._state.size)[self.slots]]

    def has_label(self, key: str, *values: str) -> Mask:
        """Return which nodes have a label; with values, which have one of them."""
        operator = "In" if values else "Exists"
        return self._state.nodes.labels.match(key, operator, values, self.slots)

    def label_number(self, key: str, default: float = 0.0) -> npt.NDArray[np.float64]:
        """Return the values of a label as numbers; the default for nodes without it or with another text."""
        column = self._state.nodes.labels.column(key)
        numbers = np.array([*(_number(value, default) for value in column.values), default], dtype=np.float64)
        return numbers[column.codes(self._state.size)[self.slots]]

    # Resources: thousandths of a cpu, bytes, and whole units of all others

    def allocatable(self, resource: str) -> Integers:
        nodes = self._state.nodes
        row = nodes.resources.get(resource)
        return nodes.allocatable[row, self.slots] if row is not None else np.zeros(len(self), dtype=np.int64)

    def requested(self, resource: str) -> Integers:
        """Return the requests of the pods on each node."""
        row = self._state.nodes.resources.get(resource)
        return self._state.requested[row, self.slots] if row is not None else np.zeros(len(self), dtype=np.int64)

    def free(self, resource: str) -> Integers:
        return self.allocatable(resource) - self.requested(resource)

    @property
    def pod_count(self) -> Integers:
        """The number of pods on each node."""
        counted: Integers = self._state.requested[PODS, self.slots]
        return counted

    # Others

    @property
    def unschedulable(self) -> Mask:
        return self._state.nodes.unschedulable[self.slots]

    def taints(self) -> Sequence[tuple[Object, ...]]:
        """Return the taints of each node."""
        sets = self._state.nodes.taint_sets
        return [sets[position] for position in self._state.nodes.taints[self.slots].tolist()]


def _number(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default
