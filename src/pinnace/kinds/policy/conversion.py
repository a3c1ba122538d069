"""Pod disruption budgets as v1beta1 wrote them: an empty selector selected no pod."""

from __future__ import annotations

from typing import Any

from pinnace.model.objects import Object

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


def budget_to_v1(budget: Object) -> Object:
    """Convert an empty selector: it selects no pod in v1beta1, and every pod in v1."""
    spec = budget.get("spec") or {}
    selector = spec.get("selector")
    if _is_empty(selector):
        spec["selector"] = {"matchExpressions": [dict(expression) for expression in _MATCH_NONE]}
    elif _is_only(selector, _MATCH_ALL):
        spec["selector"] = {}
    return budget


def budget_from_v1(budget: Object) -> Object:
    spec = budget.get("spec") or {}
    selector = spec.get("selector")
    if _is_only(selector, _MATCH_NONE):
        spec["selector"] = {}
    elif _is_empty(selector):
        spec["selector"] = {"matchExpressions": [dict(expression) for expression in _MATCH_ALL]}
    return budget
