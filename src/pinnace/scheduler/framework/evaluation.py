"""The filters and scores of one template, kept between pods: only changed nodes are computed again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.guard import filter_codes, score_array
from pinnace.scheduler.framework.plugin import Depends, FilterPlugin, NormalizeScorePlugin, ScorePlugin
from pinnace.scheduler.state.arrays import ALL, At, Integers, Mask, grow


class WeightedScore:
    """A score plug-in with its weight."""

    __slots__ = ("normalizes", "plugin", "weight")

    def __init__(self, plugin: ScorePlugin, weight: int) -> None:
        self.plugin = plugin
        self.weight = weight
        self.normalizes = isinstance(plugin, NormalizeScorePlugin)


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

    def take(self) -> At | None:
        """Return the slots and forget them; None if there are none."""
        if self._is_all:
            self._is_all = False
            self._slots.clear()
            return ALL
        if not self._slots:
            return None
        taken = np.fromiter(self._slots, dtype=np.intp, count=len(self._slots))
        self._slots.clear()
        return taken


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

    def refresh(self, cycle: Cycle) -> At | None:
        """Compute the scores of changed nodes; return their slots."""
        at = self.pending.take()
        size = cycle.state.size
        if size > len(self.values):
            self.values = grow(self.values, size)
        if at is not None:
            computed = score_array(self.plugin, cycle, at)
            self.values[at] = computed
            self.is_zero = self.is_zero and not computed.any()
        return at


class _Mask:
    """The nodes that pass some filters that look at one node alone."""

    def __init__(self, filters: Sequence[FilterPlugin]) -> None:
        self._filters = filters
        self.pending = _Pending()
        self.values: Mask = np.zeros(0, dtype=np.bool_)

    def refresh(self, cycle: Cycle) -> Mask:
        at = self.pending.take()
        size = cycle.state.size
        if size > len(self.values):
            self.values = grow(self.values, size)
        if at is not None:
            passed = cycle.state.nodes.present[at].copy()
            for plugin in self._filters:
                passed &= filter_codes(plugin, cycle, at) == 0
            self.values[at] = passed
        return self.values


class Evaluation:
    """All that is kept for one template."""

    def __init__(self, filters: Sequence[FilterPlugin], scores: Sequence[WeightedScore]) -> None:
        self._by_node = _Mask([one for one in filters if not one.depends & Depends.PODS])
        self._by_pods = _Mask([one for one in filters if one.depends & Depends.PODS])
        self._scores = [_Score(one) for one in scores]
        self._flat: Integers = np.zeros(0, dtype=np.int64)
        self._skipped: frozenset[str] | None = None
        self._node_position = -1
        self._pod_position = -1

    def feasible(self, cycle: Cycle) -> Mask:
        """Return the nodes that pass the filters that look at one node alone."""
        self._read_logs(cycle)
        mask: Mask = self._by_node.refresh(cycle) & self._by_pods.refresh(cycle)
        return mask[: cycle.state.size]

    def scores(self, cycle: Cycle, skipped: frozenset[str]) -> tuple[Integers, list[tuple[WeightedScore, Integers]]]:
        """Return the weighted sum of the scores that need no normalization, and the others one by one.

        Scores that are 0 everywhere are left out: normalized, they are equal for all nodes.
        """
        self._read_logs(cycle)
        size = cycle.state.size
        if size > len(self._flat):
            self._flat = grow(self._flat, size)
        changed: list[At] = [ALL] if skipped != self._skipped else []
        self._skipped = skipped
        others = []
        for one in self._scores:
            if one.plugin.name in skipped:
                continue
            at = one.refresh(cycle)
            if one.weighted.normalizes:
                if not one.is_zero:
                    others.append((one.weighted, one.values[:size]))
            elif at is not None:
                changed.append(at)
        for at in changed[:1] if changed and isinstance(changed[0], slice) else changed:
            self._sum(at, skipped)
        return self._flat[:size], others

    def _sum(self, at: At, skipped: frozenset[str]) -> None:
        total = np.zeros_like(self._flat[at])
        for one in self._scores:
            if not one.weighted.normalizes and one.plugin.name not in skipped:
                total += one.weighted.weight * one.values[: len(self._flat)][at]
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
        for one in self._scores:
            yield one.pending, one.by_pods, one.by_all_nodes
