"""Pod disruption budgets: which victims would violate one."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.model import selectors
from pinnace.model.objects import Object
from pinnace.model.selectors import LabelSelector
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.pods import Pod


class Budgets:
    """All budgets of the cluster."""

    def __init__(self, lookups: Lookups) -> None:
        self._budgets = [(one, _selector_of(one)) for one in lookups.all("PodDisruptionBudget")]

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


def _selector_of(budget: Object) -> LabelSelector:
    """Return the selector of a budget. A missing or empty one matches no pod here."""
    try:
        selector = selectors.from_object((budget.get("spec") or {}).get("selector"))
    except ValueError:
        return selectors.NOTHING
    return selectors.NOTHING if selector.matches_everything else selector


def _covers(budget: Object, selector: LabelSelector, pod: Pod) -> bool:
    if not pod.labels or budget["metadata"].get("namespace") != pod.namespace:
        return False
    if pod.name in ((budget.get("status") or {}).get("disruptedPods") or {}):
        return False  # The API server has counted it already.
    return selector.matches(pod.labels)
