"""The filters and scores of one template, kept between pods: only changed nodes are computed again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.guard import filter_codes, score_array
from pinnace.scheduler.framework.plugin import Depends, FilterPlugin, NormalizeScorePlugin, ScorePlugin
from pinnace.scheduler.state.arrays import ALL, At, Integers, Mask, Slots, grow


class WeightedScore:
    """A score plug-in with its weight."""

    __slots__ = ("normalizes", "plugin", "weight")

    def __init__(self, plugin: ScorePlugin, weight: int) -> None:
        self.plugin = plugin
        self.weight = weight
        self.normalizes = isinstance(plugin, NormalizeScorePlugin)


class _Kept:
    """An array of one value per node that follows the changes of nodes."""

    def __init__(self, depends: Depends) -> None:
        self.depends = depends
        self._node_position = -1
        self._pod_position = -1

    def changed(self, cycle: Cycle) -> At | None:
        """Return the slots to compute again; None if nothing has changed."""
        nodes, pods = cycle.state.nodes.log, cycle.state.pod_log
        most = max(4, cycle.state.size // 8)
        node_slots: Slots | None = nodes.since(self._node_position, most) if self._node_position >= 0 else None
        pod_slots: Slots | None = _NONE
        if self.depends & Depends.PODS:
            pod_slots = pods.since(self._pod_position, most) if self._pod_position >= 0 else None
        self._node_position, self._pod_position = nodes.position, pods.position
        if node_slots is None or pod_slots is None or (len(node_slots) and self.depends & Depends.ALL_NODES):
            return ALL
        if len(node_slots):
            pod_slots = np.union1d(node_slots, pod_slots)
        return pod_slots if len(pod_slots) else None


_NONE: Slots = np.zeros(0, dtype=np.intp)


class FeasibleNodes(_Kept):
    """The nodes that pass some filters that look at one node alone."""

    def __init__(self, depends: Depends) -> None:
        super().__init__(depends)
        self.mask: Mask = np.zeros(0, dtype=np.bool_)

    def refresh(self, cycle: Cycle, plugins: Iterable[FilterPlugin]) -> None:
        at = self.changed(cycle)
        size = cycle.state.size
        if size > len(self.mask):
            self.mask = grow(self.mask, size)
        if at is None:
            return
        passed = cycle.state.nodes.present[at].copy()
        for plugin in plugins:
            passed &= filter_codes(plugin, cycle, at) == 0
        self.mask[at] = passed


class KeptScores(_Kept):
    """The scores of one plug-in that looks at one node alone."""

    def __init__(self, depends: Depends) -> None:
        super().__init__(depends)
        self.scores: Integers = np.zeros(0, dtype=np.int64)
        self.is_zero = True

    def refresh(self, cycle: Cycle, plugin: ScorePlugin) -> At | None:
        """Return the slots whose scores were computed."""
        at = self.changed(cycle)
        size = cycle.state.size
        if size > len(self.scores):
            self.scores = grow(self.scores, size)
        if at is not None:
            computed = score_array(plugin, cycle, at)
            self.scores[at] = computed
            self.is_zero = self.is_zero and not computed.any()
        return at


class Evaluation:
    """All that is kept for one template."""

    def __init__(self, filters: Sequence[FilterPlugin], scores: Sequence[WeightedScore]) -> None:
        self._by_node = [one for one in filters if not one.depends & Depends.PODS]
        self._by_pods = [one for one in filters if one.depends & Depends.PODS]
        self._node_mask = FeasibleNodes(Depends.NODE)
        self._pod_mask = FeasibleNodes(Depends.NODE | Depends.PODS)
        self._scores = [(one, KeptScores(one.plugin.depends)) for one in scores]
        self._flat: Integers = np.zeros(0, dtype=np.int64)
        self._scored: frozenset[str] = frozenset()

    def feasible(self, cycle: Cycle) -> Mask:
        """Return the nodes that pass the filters that look at one node alone. Do not change the array."""
        self._node_mask.refresh(cycle, self._by_node)
        self._pod_mask.refresh(cycle, self._by_pods)
        mask: Mask = self._node_mask.mask & self._pod_mask.mask
        return mask[: cycle.state.size]

    def scores(self, cycle: Cycle, skipped: frozenset[str]) -> tuple[Integers, list[tuple[WeightedScore, Integers]]]:
        """Return the weighted sum of the scores that need no normalization, and the others one by one.

        Scores that are 0 everywhere are left out: normalized, they are equal for all nodes.
        """
        size = cycle.state.size
        if size > len(self._flat):
            self._flat = grow(self._flat, size)
        changed: list[At] = []
        others = []
        for weighted, kept in self._scores:
            if weighted.plugin.name in skipped:
                continue
            at = kept.refresh(cycle, weighted.plugin)
            if weighted.normalizes:
                if not kept.is_zero:
                    others.append((weighted, kept.scores[:size]))
            elif at is not None:
                changed.append(at)
        if changed:
            self._sum(changed, skipped)
        return self._flat[:size], others

    def _sum(self, changed: list[At], skipped: frozenset[str]) -> None:
        is_all = any(isinstance(at, slice) for at in changed) or skipped != self._scored
        self._scored = skipped
        at: At = ALL if is_all else np.unique(np.concatenate([one for one in changed if not isinstance(one, slice)]))
        total = np.zeros_like(self._flat[at])
        for weighted, kept in self._scores:
            if not weighted.normalizes and weighted.plugin.name not in skipped:
                total += weighted.weight * kept.scores[: len(self._flat)][at]
        self._flat[at] = total
