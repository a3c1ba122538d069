"""DefaultPreemption: find the node where the least important pods would have to leave for a pod to fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import Diagnosis
from pinnace.scheduler.framework.plugin import Filters, Nomination
from pinnace.scheduler.framework.status import Code, Refusal, unresolvable, unschedulable
from pinnace.scheduler.plugins.budgets import Budgets
from pinnace.scheduler.plugins.victims import Victims, select_by_filters, select_by_resources
from pinnace.scheduler.state.arrays import Slots
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod

_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")


@dataclass(slots=True)
class _KnownVictims:
    """The results of earlier attempts of one template by slot, valid until the pods of the node change."""

    node_position: int = -1
    pod_position: int = -1
    budgets: int = -1
    by_slot: dict[int, Victims | Refusal] = field(default_factory=dict)

    def refresh(self, state: ClusterState) -> None:
        nodes = state.nodes.log.since(self.node_position, 1024) if self.node_position >= 0 else None
        pods = state.pod_log.since(self.pod_position, 1024) if self.pod_position >= 0 else None
        version = state.lookups.version("PodDisruptionBudget")
        if nodes is None or pods is None or version != self.budgets:
            self.by_slot.clear()
        else:
            for slot in (*nodes, *pods):
                self.by_slot.pop(slot, None)
        self.node_position, self.pod_position = state.nodes.log.position, state.pod_log.position
        self.budgets = version


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, *, least_percentage: int = 10, least_absolute: int = 100) -> None:
        """Candidates are sought until there are so many percent of the nodes, and at least so many."""
        self._percentage = least_percentage
        self._absolute = least_absolute

    def post_filter(self, cycle: Cycle, diagnosis: Diagnosis, filters: Filters) -> Nomination | Refusal:
        obstacle = self._obstacle(cycle, diagnosis)
        if obstacle:
            return unschedulable(f"preemption: {obstacle}", plugin=self.name)
        potential = np.flatnonzero(diagnosis.resolvable())
        refusals: Counter[str] = Counter()
        found = self._find(cycle, filters, potential, refusals) if len(potential) else None
        if found is None:
            return self._explain(cycle.state.nodes.count, refusals)
        slot, chosen = found
        return Nomination(cycle.state.nodes.names[slot], chosen.pods, chosen.violations)

    def _obstacle(self, cycle: Cycle, diagnosis: Diagnosis) -> str:
        """Return why a pod may not preempt others now; empty if it may."""
        if cycle.template.spec.get("preemptionPolicy") == "Never":
            return "not eligible due to preemptionPolicy=Never."
        slot = cycle.state.nodes.slot_of.get(cycle.pod.nominated_node, -1)
        if slot < 0:
            return ""
        refusal = diagnosis.of(slot)
        if refusal is not None and refusal.code is Code.UNRESOLVABLE:
            return ""
        for pod in cycle.state.pods_at(slot):
            if pod.priority < cycle.pod.priority and pod.is_preempted:
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _find(
        self, cycle: Cycle, filters: Filters, potential: Slots, refusals: Counter[str]
    ) -> tuple[int, Victims] | None:
        """Return the best of enough candidates, sought from a random node on; None if there is none."""
        wanted = min(max(len(potential) * self._percentage // 100, self._absolute), len(potential))
        offset = cycle.random.randrange(len(potential))
        select = self._selector(cycle, filters)
        best: tuple[int, Victims] | None = None
        found = 0
        has_harmless = False
        for slot in _from(potential, offset, wanted):
            result = select(slot)
            if isinstance(result, Refusal):
                refusals.update(result.reasons)
                refusals[""] += 1
                continue
            found += 1
            has_harmless = has_harmless or not result.violations
            if best is None or result.order < best[1].order:
                best = slot, result
            if has_harmless and found >= wanted:
                break
        return best

    def _selector(self, cycle: Cycle, filters: Filters) -> Callable[[int], Victims | Refusal]:
        """Return a function that selects the victims of a slot; kept results are used while its pods stay the same."""
        budgets = Budgets(cycle.state.lookups)
        if not filters.needs_only_resources(cycle):
            return lambda slot: _select(cycle, filters, slot, budgets, by_resources=False)
        known: _KnownVictims = cycle.template.cached.setdefault((self.name, "victims"), _KnownVictims())
        known.refresh(cycle.state)
        by_slot = known.by_slot

        def select(slot: int) -> Victims | Refusal:
            result = by_slot.get(slot)
            if result is None:
                result = by_slot[slot] = _select(cycle, filters, slot, budgets, by_resources=True)
            return result

        return select

    def _explain(self, total: int, refusals: Counter[str]) -> Refusal:
        asked = refusals.pop("", 0)
        if asked < total:
            refusals[_NOT_HELPFUL] += total - asked
        reasons = sorted(f"{count} {reason}" for reason, count in refusals.items())
        return unresolvable(f"preemption: 0/{total} nodes are available: {', '.join(reasons)}.", plugin=self.name)


def _from(slots: Slots, offset: int, at_once: int) -> Iterator[int]:
    """Yield the slots from a position on, round to it; mostly the first `at_once` are enough."""
    rolled = np.concatenate((slots[offset:], slots[:offset]))
    for begin in range(0, len(rolled), at_once):
        yield from rolled[begin : begin + at_once].tolist()


def _select(cycle: Cycle, filters: Filters, slot: int, budgets: Budgets, *, by_resources: bool) -> Victims | Refusal:
    """Return the least important pods that must leave a node, or why that would not help."""
    potential = [pod for pod in cycle.state.pods_at(slot) if pod.priority < cycle.pod.priority]
    if not potential:
        return _NO_VICTIMS
    ordered = sorted(potential, key=_importance)
    if by_resources:
        return select_by_resources(cycle, slot, ordered, budgets)
    return select_by_filters(cycle, filters, slot, ordered, budgets)


def _importance(pod: Pod) -> tuple[int, bool, str]:
    """Return a key that puts the most important pod first: by priority, then the one that started first."""
    return -pod.priority, not pod.started, pod.started
