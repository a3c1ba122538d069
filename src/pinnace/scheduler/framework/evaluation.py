"""The filters and scores of one template, kept between pods: only changed nodes are computed again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.guard import call, filter_codes, score_array
from pinnace.scheduler.framework.plugin import Depends, Plugin
from pinnace.scheduler.state.arrays import ALL, At, Integers, Mask, Slots, grow

_FEW = 8
"""Up to so many changed nodes are computed one by one where a plug-in can: numpy is slow on arrays of one element."""
Changed = At | list[int]
"""ALL, an array of many slots, or a list of few."""


class WeightedScore:
    """A score plug-in with its weight."""

    __slots__ = ("normalizer", "one_by_one", "plugin", "weight")

    def __init__(self, plugin: Plugin, weight: int) -> None:
        self.plugin = plugin
        self.weight = weight
        self.normalizer = plugin if plugin.overrides("normalize") else None
        self.one_by_one = plugin if plugin.overrides("score_one") else None


class LocalFilters:
    """Filters that look at one node alone. Made once for a profile."""

    __slots__ = ("filters", "one_by_one")

    def __init__(self, filters: Sequence[Plugin]) -> None:
        self.filters = filters
        self.one_by_one = filters if all(plugin.overrides("filter_one") for plugin in filters) else None
        """The filters, if each can look at one slot."""


class _Pending:
    """The slots whose values must be computed again."""

    __slots__ = ("_is_all", "_slots")

    def __init__(self) -> None:
        self._is_all = True
        self._slots: set[int] = set()

    def add(self, slots: Iterable[int]) -> None:
        self._slots.update(slots)

    def add_all(self) -> None:
        self._is_all = True

    def take(self) -> Changed | None:
        """Return the slots and forget them; None if there are none."""
        if self._is_all:
            self._is_all = False
            self._slots.clear()
            return ALL
        if not self._slots:
            return None
        few = list(self._slots)
        self._slots.clear()
        return few if len(few) <= _FEW else np.array(few, dtype=np.intp)


class _Score:
    """The scores of one plug-in that looks at one node alone."""

    def __init__(self, weighted: WeightedScore) -> None:
        self.weighted = weighted
        self.plugin = weighted.plugin
        self.pending = _Pending()
        self.by_pods = bool(self.plugin.depends & Depends.PODS)
        self.by_all_nodes = bool(self.plugin.depends & Depends.ALL_NODES)
        self.values: Integers = np.zeros(0, dtype=np.int64)
        self.is_zero = True

    def refresh(self, cycle: Cycle) -> Changed | None:
        """Compute the scores of changed nodes; return their slots."""
        changed = self.pending.take()
        size = cycle.state.size
        if size > len(self.values):
            self.values = grow(self.values, size)
        one_by_one = self.weighted.one_by_one
        if one_by_one is not None and isinstance(changed, list):
            for slot in changed:
                score = call(one_by_one.name, "score", one_by_one.score_one, cycle, slot)
                self.values[slot] = score
                self.is_zero = self.is_zero and not score
        elif changed is not None:
            at = _selection(changed)
            computed = score_array(self.plugin, cycle, at)
            self.values[at] = computed
            self.is_zero = self.is_zero and not computed.any()
        return changed


class _Mask:
    """The nodes that pass some filters that look at one node alone."""

    def __init__(self, local: LocalFilters) -> None:
        self._filters = local.filters
        self._one_by_one = local.one_by_one
        self.pending = _Pending()
        self.values: Mask = np.zeros(0, dtype=np.bool_)
        self.version = 0
        """Grows when a value changes."""

    def refresh(self, cycle: Cycle) -> Mask:
        changed = self.pending.take()
        size = cycle.state.size
        if size > len(self.values):
            self.values = grow(self.values, size)
            self.version += 1
        if self._one_by_one is not None and isinstance(changed, list):
            present = cycle.state.nodes.present
            for slot in changed:
                passes = bool(present[slot]) and not any(
                    call(plugin.name, "filter", plugin.filter_one, cycle, slot) for plugin in self._one_by_one
                )
                if passes != self.values[slot]:
                    self.values[slot] = passes
                    self.version += 1
        elif changed is not None:
            at = _selection(changed)
            passed = cycle.state.nodes.present[at].copy()
            for plugin in self._filters:
                passed &= filter_codes(plugin, cycle, at) == 0
            self.values[at] = passed
            self.version += 1
        return self.values


def _selection(changed: Changed) -> At:
    return np.array(changed, dtype=np.intp) if isinstance(changed, list) else changed


class Feasible(NamedTuple):
    """Nodes that pass filters, as a mask and as slots. Both are shared: do not change them."""

    mask: Mask
    slots: Slots


class Evaluation:
    """All that is kept for one template, or for the templates that differ in nothing that these plug-ins read."""

    def __init__(self, by_node: LocalFilters, by_pods: LocalFilters, scores: Sequence[WeightedScore]) -> None:
        self._by_node = _Mask(by_node)
        self._by_pods = _Mask(by_pods)
        self._scores = [_Score(score) for score in scores]
        self._flat: Integers = np.zeros(0, dtype=np.int64)
        self._skipped: frozenset[str] | None = None
        self._node_position = -1
        self._pod_position = -1
        self._feasible: Feasible | None = None
        self._versions = (-1, -1)

    def feasible(self, cycle: Cycle) -> Feasible:
        """Return the nodes that pass the filters that look at one node alone."""
        self._read_logs(cycle)
        by_node, by_pods = self._by_node.refresh(cycle), self._by_pods.refresh(cycle)
        versions = (self._by_node.version, self._by_pods.version)
        if self._feasible is None or versions != self._versions:
            mask: Mask = (by_node & by_pods)[: cycle.state.size]
            self._feasible, self._versions = Feasible(mask, np.flatnonzero(mask)), versions
        return self._feasible

    def mask_of(self, slots: Slots, size: int) -> Mask:
        """Return a mask of slots; the known one if they are those of `feasible`. It is shared: do not change it."""
        if self._feasible is not None and slots is self._feasible.slots:
            return self._feasible.mask
        mask: Mask = np.zeros(size, dtype=np.bool_)
        mask[slots] = True
        return mask

    def scores(self, cycle: Cycle, skipped: frozenset[str]) -> tuple[Integers, list[tuple[WeightedScore, Integers]]]:
        """Return the weighted sum of the scores that need no normalization, and the others one by one.

        Scores that are 0 everywhere are left out: normalized, they are equal for all nodes.
        """
        self._read_logs(cycle)
        size = cycle.state.size
        if size > len(self._flat):
            self._flat = grow(self._flat, size)
        changed: list[Changed] = [ALL] if skipped != self._skipped else []
        self._skipped = skipped
        others = []
        for scorer in self._scores:
            if scorer.plugin.name in skipped:
                continue
            at = scorer.refresh(cycle)
            if scorer.weighted.normalizer is not None:
                if not scorer.is_zero:
                    others.append((scorer.weighted, scorer.values[:size]))
            elif at is not None:
                changed.append(at)
        if any(isinstance(at, slice) for at in changed):
            self._sum(ALL, skipped)
        else:
            self._sum_some(changed, skipped)
        return self._flat[:size], others

    def _sum_some(self, changed: list[Changed], skipped: frozenset[str]) -> None:
        few: set[int] = set()
        for at in changed:
            if isinstance(at, list):
                few.update(at)
            else:
                self._sum(_selection(at), skipped)
        counted = [
            scorer
            for scorer in self._scores
            if scorer.weighted.normalizer is None and scorer.plugin.name not in skipped
        ]
        for slot in few:
            self._flat[slot] = sum([scorer.weighted.weight * int(scorer.values[slot]) for scorer in counted])

    def _sum(self, at: At, skipped: frozenset[str]) -> None:
        total = np.zeros_like(self._flat[at])
        for scorer in self._scores:
            if scorer.weighted.normalizer is None and scorer.plugin.name not in skipped:
                total += scorer.weighted.weight * scorer.values[: len(self._flat)][at]
        self._flat[at] = total

    def _read_logs(self, cycle: Cycle) -> None:
        """Note the slots that have changed since the last call."""
        node_log, pod_log = cycle.state.nodes.log, cycle.state.pod_log
        if node_log.position == self._node_position and pod_log.position == self._pod_position:
            return
        most = max(4, cycle.state.size // 8)
        nodes = node_log.since(self._node_position, most) if self._node_position >= 0 else None
        pods = pod_log.since(self._pod_position, most) if self._pod_position >= 0 else None
        self._node_position, self._pod_position = node_log.position, pod_log.position
        for pending, by_pods, by_all_nodes in self._all_pending():
            if nodes is None or (by_pods and pods is None) or (nodes and by_all_nodes):
                pending.add_all()
            else:
                pending.add(nodes)
                if by_pods and pods:
                    pending.add(pods)

    def _all_pending(self) -> Iterator[tuple[_Pending, bool, bool]]:
        yield self._by_node.pending, False, False
        yield self._by_pods.pending, True, False
        for scorer in self._scores:
            yield scorer.pending, scorer.by_pods, scorer.by_all_nodes
