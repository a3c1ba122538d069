"""The smallest set of pods of one node that must leave it for another pod to fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.plugin import Filters
from pinnace.scheduler.framework.status import Code, Refusal
from pinnace.scheduler.plugins.budgets import Budgets
from pinnace.scheduler.state.pods import Pod

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
        (_seconds(pod.started) for pod in pods if pod.priority == highest and pod.started), default=float("inf")
    )
    order = (violations, highest, sum(pod.priority + _OFFSET for pod in pods), len(pods), -started)
    return Victims(tuple(pods), violations, order)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


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
