"""Defaults and validation of pod disruption budgets."""

from __future__ import annotations

from pinnace.kinds.apps.rollouts import selector_view, validate_amount, validate_over_all
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import validate_condition, validate_counts
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, not_supported
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector

_BUDGET_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_BUDGET = GoStruct("MinAvailable Selector MaxUnavailable UnhealthyPodEvictionPolicy")


def _default_budget(budget: Object) -> None:
    budget.setdefault("spec", {})
    if "status" in budget:
        for field in _BUDGET_COUNTS:
            budget["status"].setdefault(field, 0)


def _prepare_budget(new: Object, old: Object | None) -> None:
    if old is None:
        new["status"] = dict.fromkeys(_BUDGET_COUNTS, 0)


def _validate_budget(new: Object, old: Object | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        detail = "minAvailable and maxUnavailable cannot be both set"
        shown = {**_BUDGET.view(spec), "Selector": selector_view(spec.get("selector"))}
        errs.append(invalid("spec", shown, detail))
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            validate_amount(spec[field], f"spec.{field}", errs)
            validate_over_all(spec[field], f"spec.{field}", errs)
    errs.extend(validate_label_selector(spec.get("selector"), "spec.selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        supported = ["AlwaysAllow", "IfHealthyBudget"]
        errs.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, supported))
    return errs


def _validate_budget_status(new: Object, old: Object | None) -> list[FieldError]:
    status = new.get("status") or {}
    errs = list(validate_condition(status.get("conditions") or [], "status.conditions"))
    errs += validate_counts(status, _BUDGET_COUNTS, "status")
    return errs


POD_DISRUPTION_BUDGET = Strategy(
    default=_default_budget,
    prepare=_prepare_budget,
    validate=_validate_budget,
    validate_status=_validate_budget_status,
    name_rule=names.path_segment,  # Kubernetes does not check more.
    tracks_generation=True,
    may_update_unconditionally=False,
)
