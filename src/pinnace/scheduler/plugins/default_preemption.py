"""DefaultPreemption: find the node where the least important pods would have to leave for a pod to fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import Diagnosis
from pinnace.scheduler.framework.plugin import Filters, Nomination
from pinnace.scheduler.framework.status import Code, Refusal, unresolvable, unschedulable
from pinnace.scheduler.plugins.budgets import Budgets
from pinnace.scheduler.plugins.victims import Victims, select_by_filters, select_by_resources
from pinnace.scheduler.state.arrays import Slots, grow
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod

_MOST_CHANGES = 4096
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")


_ORDER = 5
"""The number of elements of `Victims.order`."""
_UNKNOWN, _REFUSED, _CANDIDATE = 0, 1, 2


class _KnownVictims:
    """The results of earlier attempts of one template by slot, valid until the pods of the node change."""

    def __init__(self) -> None:
        self._node_position = -1
        self._pod_position = -1
        self._budgets = -1
        self._by_slot: dict[int, Victims | Refusal] = {}
        self._kinds: npt.NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self._orders: npt.NDArray[np.float64] = np.zeros((_ORDER, 0), dtype=np.float64)
        """The elements of `Victims.order`, one row each."""

    def refresh(self, state: ClusterState) -> None:
        """Forget the nodes that have changed."""
        nodes = state.nodes.log.since(self._node_position, _MOST_CHANGES) if self._node_position >= 0 else None
        pods = state.pod_log.since(self._pod_position, _MOST_CHANGES) if self._pod_position >= 0 else None
        version = state.lookups.version("PodDisruptionBudget")
        if len(self._kinds) < state.size:
            self._kinds = grow(self._kinds, 2 * state.size)
            self._orders = grow(self._orders, 2 * state.size)
        if nodes is None or pods is None or version != self._budgets:
            self._by_slot.clear()
            self._kinds[:] = _UNKNOWN
        else:
            for slot in {*nodes, *pods}:
                self._by_slot.pop(slot, None)
                self._kinds[slot] = _UNKNOWN
        self._node_position, self._pod_position = state.nodes.log.position, state.pod_log.position
        self._budgets = version

    def candidates(self, slots: Slots, select: Callable[[int], Victims | Refusal]) -> Slots:
        """Return the slots that preemption can free; `select` is called for those that are not known."""
        for slot in slots[self._kinds[slots] == _UNKNOWN].tolist():
            result = self._by_slot[slot] = select(slot)
            if isinstance(result, Refusal):
                self._kinds[slot] = _REFUSED
            else:
                self._kinds[slot] = _CANDIDATE
                self._orders[:, slot] = result.order
        found: Slots = slots[self._kinds[slots] == _CANDIDATE]
        return found

    def first_harmless(self, slots: Slots) -> int:
        """Return the position of the first candidate that violates no budget; -1 if there is none."""
        harmless = np.flatnonzero(self._orders[0, slots] == 0)
        return int(harmless[0]) if len(harmless) else -1

    def best(self, slots: Slots) -> tuple[int, Victims]:
        """Return the best of the candidates, the first of equal ones."""
        for row in self._orders:
            if len(slots) > 1:
                values = row[slots]
                slots = slots[values == values.min()]
        slot = int(slots[0])
        victims = self._by_slot[slot]
        assert isinstance(victims, Victims), "only candidates are asked for"
        return slot, victims

    def count_refusals(self, slots: Slots) -> Counter[str]:
        """Count the reasons why preemption frees none of these slots; the key "" counts the slots."""
        refusals: Counter[str] = Counter()
        for slot in slots.tolist():
            result = self._by_slot[slot]
            if isinstance(result, Refusal):
                refusals.update(result.reasons)
                refusals[""] += 1
        return refusals


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
        known = self._known_victims(cycle, filters)
        found = self._find(cycle, filters, potential, known) if len(potential) else None
        if found is None:
            return self._explain(cycle.state.nodes.count, known.count_refusals(potential))
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
        self, cycle: Cycle, filters: Filters, potential: Slots, known: _KnownVictims
    ) -> tuple[int, Victims] | None:
        """Return the best of enough candidates, sought from a random node on; None if there is none."""
        wanted = min(max(len(potential) * self._percentage // 100, self._absolute), len(potential))
        offset = cycle.random.randrange(len(potential))
        budgets = Budgets(cycle.state.lookups)
        by_resources = filters.needs_only_resources(cycle)

        def select(slot: int) -> Victims | Refusal:
            return _select(cycle, filters, slot, budgets, by_resources=by_resources)

        rolled = np.concatenate((potential[offset:], potential[:offset]))
        found: Slots = rolled[:0]
        for begin in range(0, len(rolled), wanted):  # Mostly the first are enough.
            found = np.concatenate((found, known.candidates(rolled[begin : begin + wanted], select)))
            if len(found) >= wanted and (harmless := known.first_harmless(found)) >= 0:
                return known.best(found[: max(wanted, harmless + 1)])
        return known.best(found) if len(found) else None

    def _known_victims(self, cycle: Cycle, filters: Filters) -> _KnownVictims:
        """Return the results of earlier attempts that are still valid. Filters may look at other nodes, too: none."""
        if filters.needs_only_resources(cycle):
            known: _KnownVictims = cycle.template.cached.setdefault((self.name, "victims"), _KnownVictims())
        else:
            known = _KnownVictims()
        known.refresh(cycle.state)
        return known

    def _explain(self, total: int, refusals: Counter[str]) -> Refusal:
        asked = refusals.pop("", 0)
        if asked < total:
            refusals[_NOT_HELPFUL] += total - asked
        reasons = sorted(f"{count} {reason}" for reason, count in refusals.items())
        return unresolvable(f"preemption: 0/{total} nodes are available: {', '.join(reasons)}.", plugin=self.name)


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
