"""DefaultPreemption: find the node where the least important pods would have to leave for a pod to fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from pinnace.model import selectors
from pinnace.model.selectors import LabelSelector
from pinnace.model.typed_objects import PodDisruptionBudget
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import Diagnosis
from pinnace.scheduler.framework.plugin import Filters, Nomination, Plugin
from pinnace.scheduler.framework.status import Code, Refusal, unresolvable, unschedulable
from pinnace.scheduler.state.arrays import Slots, grow
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.pods import Pod


class Budgets:
    """All budgets of the cluster."""

    def __init__(self, lookups: Lookups) -> None:
        self._budgets = [(budget, _selector_of(budget)) for budget in lookups.all(PodDisruptionBudget)]

    def split(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Return the pods whose eviction would violate a budget, and the others, in the order given."""
        if not self._budgets:
            return [], list(pods)
        allowed = [(budget.get("status") or {}).get("disruptionsAllowed") or 0 for budget, _ in self._budgets]
        violating: list[Pod] = []
        others: list[Pod] = []
        for pod in pods:
            is_violated = False
            for at, (budget, selector) in enumerate(self._budgets):
                if not _covers(budget, selector, pod):
                    continue
                allowed[at] -= 1
                is_violated = is_violated or allowed[at] < 0
            (violating if is_violated else others).append(pod)
        return violating, others


def _selector_of(budget: PodDisruptionBudget) -> LabelSelector:
    """Return the selector of a budget. A missing or empty one matches no pod here."""
    try:
        selector = selectors.from_object((budget.get("spec") or {}).get("selector"))
    except ValueError:
        return selectors.NOTHING
    return selectors.NOTHING if selector.matches_everything else selector


def _covers(budget: PodDisruptionBudget, selector: LabelSelector, pod: Pod) -> bool:
    if not pod.labels or budget["metadata"].get("namespace") != pod.namespace:
        return False
    if pod.name in ((budget.get("status") or {}).get("disruptedPods") or {}):
        return False  # The API server has counted it already.
    return selector.matches(pod.labels)


_OFFSET = 2**31


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that must leave one node, the most important first."""

    pods: tuple[Pod, ...]
    violations: int
    order: tuple[int, int, int, int, float]
    """Compares less for the better node: fewer violated budgets, a lower highest priority, a lower sum of priorities,
    fewer victims, a later start of the most important ones. All are exact as 64-bit floating-point numbers."""


def victims_of(pods: Sequence[Pod], violations: int) -> Victims:
    highest = pods[0].priority
    started = min(
        (datetime.fromisoformat(pod.started).timestamp() for pod in pods if pod.priority == highest and pod.started),
        default=float("inf"),
    )
    order = (violations, highest, sum(pod.priority + _OFFSET for pod in pods), len(pods), -started)
    return Victims(tuple(pods), violations, order)


def select_by_filters(
    cycle: Cycle, filters: Filters, slot: int, ordered: Sequence[Pod], budgets: Budgets
) -> Victims | Refusal:
    """Take all pods away, then give back as many as fit beside the waiting pod, the most important first."""
    state = cycle.state
    with state.without(ordered):
        refusal = filters.refusal_at(cycle, slot)
        if refusal is not None:
            return refusal

        def can_stay(pod: Pod) -> bool:
            state.give_back(pod, slot)
            if filters.refusal_at(cycle, slot) is None:
                return True
            state.take_again(pod)
            return False

        return _reprieve(ordered, budgets, can_stay)


def select_by_resources(cycle: Cycle, slot: int, ordered: Sequence[Pod], budgets: Budgets) -> Victims | Refusal:
    """Do the same for a pod that needs nothing but resources, in plain integers: 20 µs instead of 1 ms."""
    state, template = cycle.state, cycle.template
    nodes = state.nodes
    needs = {name: amount for name, amount in template.requests.items() if amount > 0}
    needs["pods"] = 1
    rows = {name: nodes.row_of(name) for name in needs}
    only = np.array([slot], dtype=np.intp)
    offered = {name: int(nodes.allocatable[row, slot]) for name, row in rows.items()}
    free = {
        name: offered[name]
        - int(state.requested[row, slot])
        - int(np.sum(state.nominations.requested(template.priority, row, only)))
        for name, row in rows.items()
    }
    for pod in ordered:
        _give(free, pod, 1)
    lacking = [name for name, amount in needs.items() if amount > free[name]]
    if lacking:
        is_hopeless = any(needs[name] > offered[name] for name in lacking if name != "pods")
        reasons = tuple("Too many pods" if name == "pods" else f"Insufficient {name}" for name in lacking)
        code = Code.UNRESOLVABLE if is_hopeless else Code.UNSCHEDULABLE
        return Refusal(code, reasons, "NodeResourcesFit")

    def can_stay(pod: Pod) -> bool:
        _give(free, pod, -1)
        if all(amount <= free[name] for name, amount in needs.items()):
            return True
        _give(free, pod, 1)
        return False

    return _reprieve(ordered, budgets, can_stay)


def _give(free: dict[str, int], pod: Pod, by: int) -> None:
    free["pods"] += by
    for name, amount in pod.requests.items():
        if name in free:
            free[name] += by * amount


def _reprieve(ordered: Sequence[Pod], budgets: Budgets, can_stay: Callable[[Pod], bool]) -> Victims | Refusal:
    """Let pods stay while the waiting pod still fits: first those whose budget would be violated."""
    violating, others = budgets.split(ordered)
    leaving = [pod for pod in violating if not can_stay(pod)]
    violations = len(leaving)
    leaving += [pod for pod in others if not can_stay(pod)]
    if not leaving:
        return Refusal(Code.UNSCHEDULABLE, ("expected at least one victim pod",))
    if violating and others:
        rank = {pod.uid: at for at, pod in enumerate(ordered)}
        leaving.sort(key=lambda pod: rank[pod.uid])
    return victims_of(leaving, violations)


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
        candidates: Slots = slots[self._kinds[slots] == _CANDIDATE]
        return candidates

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


class DefaultPreemption(Plugin):
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
        candidate = self._find(cycle, filters, potential, known) if len(potential) else None
        if candidate is None:
            return self._explain(cycle.state.nodes.count, known.count_refusals(potential))
        slot, chosen = candidate
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
        candidates: Slots = rolled[:0]
        for begin in range(0, len(rolled), wanted):  # Mostly the first are enough.
            candidates = np.concatenate((candidates, known.candidates(rolled[begin : begin + wanted], select)))
            if len(candidates) >= wanted and (harmless := known.first_harmless(candidates)) >= 0:
                return known.best(candidates[: max(wanted, harmless + 1)])
        return known.best(candidates) if len(candidates) else None

    def _known_victims(self, cycle: Cycle, filters: Filters) -> _KnownVictims:
        """Return the results of earlier attempts that are still valid. Filters may look at other nodes, too: none."""
        if filters.needs_only_resources(cycle):
            known: _KnownVictims = cycle.template.cached.setdefault((self.name, "victims"), _KnownVictims())
        else:
            known = _KnownVictims()
        known.refresh(cycle.state)
        return known

    def _explain(self, total: int, refusals: Counter[str]) -> Refusal:
        unfit = refusals.pop("", 0)
        if unfit < total:
            refusals[_NOT_HELPFUL] += total - unfit
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
