"""policy: PodDisruptionBudgets. In v1beta1 an empty selector selected no pod."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from pinnace.kinds.apps.rollouts import selector_view, validate_amount, validate_over_all
from pinnace.kinds.cells import AGE, NAME, integer, number_at, reach, string, text
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.rows import GA, STATUS, Row, old
from pinnace.kinds.validation.fields import validate_condition, validate_counts
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, not_supported
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import PodDisruptionBudget, PodDisruptionBudgetStatus


def _or_not_applicable(field: str) -> Any:
    def value(budget: PodDisruptionBudget, now: datetime) -> str:
        amount = reach(budget, "spec", field)
        return "N/A" if amount is None else text(amount)

    return value


EMPTY_SELECTOR = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

_MATCH_NONE = [{"key": EMPTY_SELECTOR, "operator": "Exists"}]
_MATCH_ALL = [{"key": EMPTY_SELECTOR, "operator": "DoesNotExist"}]


def _is_empty(selector: Any) -> bool:
    return isinstance(selector, dict) and not selector.get("matchLabels") and not selector.get("matchExpressions")


def _is_only(selector: Any, expressions: list[Object]) -> bool:
    return (
        isinstance(selector, dict)
        and not selector.get("matchLabels")
        and selector.get("matchExpressions") == expressions
    )


def _budget_to_v1(budget: Object) -> Object:
    """Convert an empty selector: it selects no pod in v1beta1, and every pod in v1."""
    spec = budget.get("spec") or {}
    selector = spec.get("selector")
    if _is_empty(selector):
        spec["selector"] = {"matchExpressions": [dict(expression) for expression in _MATCH_NONE]}
    elif _is_only(selector, _MATCH_ALL):
        spec["selector"] = {}
    return budget


def _budget_from_v1(budget: Object) -> Object:
    spec = budget.get("spec") or {}
    selector = spec.get("selector")
    if _is_only(selector, _MATCH_NONE):
        spec["selector"] = {}
    elif _is_empty(selector):
        spec["selector"] = {"matchExpressions": [dict(expression) for expression in _MATCH_ALL]}
    return budget


_BUDGET_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_BUDGET = GoStruct("MinAvailable Selector MaxUnavailable UnhealthyPodEvictionPolicy")


def _default_budget(budget: Object) -> None:
    budget.setdefault("spec", {})
    if "status" in budget:
        for field in _BUDGET_COUNTS:
            budget["status"].setdefault(field, 0)


def _prepare_budget(new: PodDisruptionBudget, old: PodDisruptionBudget | None) -> None:
    if old is None:
        new["status"] = cast("PodDisruptionBudgetStatus", dict.fromkeys(_BUDGET_COUNTS, 0))


def _validate_budget(new: PodDisruptionBudget, old: PodDisruptionBudget | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        detail = "minAvailable and maxUnavailable cannot be both set"
        view = {**_BUDGET.view(spec), "Selector": selector_view(spec.get("selector"))}
        errs.append(invalid("spec", view, detail))
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


def _validate_budget_status(new: PodDisruptionBudget, old: PodDisruptionBudget | None) -> list[FieldError]:
    status = new.get("status") or {}
    errs = list(validate_condition(status.get("conditions") or [], "status.conditions"))
    errs += validate_counts(status, _BUDGET_COUNTS, "status")
    return errs


ROWS = (
    Row(
        group="policy",
        name="PodDisruptionBudget",
        plural="poddisruptionbudgets",
        columns=(
            NAME,
            string(
                "Min Available",
                "The minimum number of pods that must be available.",
                _or_not_applicable("minAvailable"),
            ),
            string(
                "Max Unavailable",
                "The maximum number of pods that may be unavailable.",
                _or_not_applicable("maxUnavailable"),
            ),
            integer(
                "Allowed Disruptions",
                "Calculated number of pods that may be disrupted at this time.",
                number_at("status.disruptionsAllowed"),
            ),
            AGE,
        ),
        short_names=("pdb",),
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.21",
                removed="1.25",
                replacement="policy/v1",
                to_stored=_budget_to_v1,
                from_stored=_budget_from_v1,
            ),
        ),
        subresources=(STATUS,),
        strategy=Strategy(
            default=_default_budget,
            qualified_finalizers=False,
            prepare=_prepare_budget,
            validate=_validate_budget,
            validate_status=_validate_budget_status,
            name_rule=names.path_segment,  # Kubernetes does not check more.
            tracks_generation=True,
            may_update_unconditionally=False,
        ),
    ),
)
