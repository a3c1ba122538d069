"""Defaults and validation of resource quotas and limit ranges: resource names, and amounts that must be consistent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from pinnace.kinds.pods.resource_amounts import COUNTED, is_extended, is_native, may_overcommit
from pinnace.model import names, quantity
from pinnace.model.field_errors import IMMUTABLE, FieldError, duplicate, forbidden, invalid, required
from pinnace.model.objects import Object
from pinnace.model.quantity import Quantity
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    LimitRange,
    LimitRangeItem,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopedResourceSelectorRequirement,
)

_COMPUTED = frozenset(
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    ]
)
_QUOTA_RESOURCES = COUNTED | _COMPUTED | {"requests.storage"}
_STANDARD_RESOURCES = _QUOTA_RESOURCES | {"storage"}
_CONTAINER_RESOURCES = frozenset(["cpu", "memory", "ephemeral-storage"])

_POD_QUOTA = frozenset(["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"])
_COVERED_BY_SCOPE: Mapping[str, frozenset[str]] = {
    "Terminating": _POD_QUOTA,
    "NotTerminating": _POD_QUOTA,
    "NotBestEffort": _POD_QUOTA,
    "PriorityClass": _POD_QUOTA,
    "CrossNamespacePodAffinity": _POD_QUOTA,
    "BestEffort": frozenset(["pods"]),
    "VolumeAttributesClass": frozenset(["persistentvolumeclaims", "requests.storage"]),
}
_SCOPES_THAT_ONLY_EXIST = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
_CONFLICTING_SCOPES = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})

MOST_SCOPES = 100
"""The most scopes that errors quote, and the most errors that quote them."""
_Value = TypeVar("_Value")
_SCALED_EXACTLY = 9_223_372_036_854_775  # Above this, Kubernetes compares whole units instead of thousandths.


def canonical_amounts(amounts: dict[str, Any] | None) -> None:
    """Make a ResourceList canonical, and no finer than a thousandth."""
    if amounts:
        for name, amount in amounts.items():
            amounts[name] = quantity.canonical_in_list(amount)


def validate_resource_name(name: str, path: str) -> Iterator[FieldError]:
    errs = names.qualified_name(name)
    for err in errs:
        yield invalid(path, name, err)
    if not errs and "/" not in name and name not in _STANDARD_RESOURCES and not _is_huge_page_quota(name):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def validate_quantity(name: str, amount: Any, path: str) -> Iterator[FieldError]:
    """Check an amount of a resource: not negative, and whole for countable resources."""
    parsed = quantity.parse(amount)
    if parsed.amount < 0:
        yield invalid(path, str(parsed), "must be greater than or equal to 0")
    if (name in COUNTED or is_extended(name)) and parsed.milli_value % 1000:
        yield invalid(path, str(parsed), "must be an integer")


def _is_huge_page_quota(name: str) -> bool:
    return name.startswith(("hugepages-", "requests.hugepages-"))


# --- resource quotas


def _default_quota(quota: ResourceQuota) -> None:
    canonical_amounts(quota.setdefault("spec", {}).get("hard"))
    for field in ("hard", "used"):
        canonical_amounts(quota.setdefault("status", {}).get(field))


def _validate_quota(quota: ResourceQuota, old: ResourceQuota | None) -> Iterator[FieldError]:
    spec: ResourceQuotaSpec = quota.get("spec") or {}
    hard: dict[str, str] = spec.get("hard") or {}
    yield from _validate_quota_list(hard, "spec.hard")
    yield from _validate_scope(spec, hard)
    if spec.get("scopeSelector") is not None:
        yield from _validate_scope_selector(spec, hard)
    if old is not None:
        before = (old.get("spec") or {}).get("scopes") or ()
        if set(before) != set(spec.get("scopes") or ()):
            yield invalid("spec.scopes", spec.get("scopes"), IMMUTABLE)


def _validate_quota_status(quota: ResourceQuota, old: ResourceQuota | None) -> Iterator[FieldError]:
    status: ResourceQuotaStatus = quota.get("status") or {}
    for field in ("hard", "used"):
        yield from _validate_quota_list(status.get(field) or {}, f"status.{field}")


def _validate_quota_list(amounts: dict[str, str], path: str) -> Iterator[FieldError]:
    for name, amount in amounts.items():
        yield from validate_resource_name(name, f"{path}[{name}]")
        if "/" not in name and not _is_quota_resource(name):
            yield invalid(f"{path}[{name}]", name, "must be a standard resource for quota")
        yield from validate_quantity(name, amount, f"{path}[{name}]")


def _is_quota_resource(name: str) -> bool:
    return name in _QUOTA_RESOURCES or _is_huge_page_quota(name)


def _validate_scope(spec: ResourceQuotaSpec, hard: dict[str, str]) -> Iterator[FieldError]:
    scopes: Sequence[str] = spec.get("scopes") or ()
    listed = _shorten(scopes)
    not_covered = _count_not_covered(scopes, hard)
    for scope in _shorten(scopes, kept=lambda scope: scope not in _COVERED_BY_SCOPE or bool(not_covered[scope])):
        if scope not in _COVERED_BY_SCOPE:
            yield invalid("spec.scopes", listed, "unsupported scope")
        for _ in range(not_covered[scope]):
            yield invalid("spec.scopes", listed, "unsupported scope applied to resource")
    for pair in _CONFLICTING_SCOPES:
        if pair <= set(scopes):
            yield invalid("spec.scopes", listed, "conflicting scopes")


def _shorten(values: Sequence[_Value], kept: Callable[[_Value], bool] = lambda value: True) -> list[_Value]:
    """Return the first of these values, up to a limit of our own: each error quotes all scopes."""
    return list(islice(filter(kept, values), MOST_SCOPES))


def _count_not_covered(scopes: Iterable[str], hard: dict[str, str]) -> dict[str, int]:
    """Return for each scope the number of quota resources that it does not cover."""
    limited = [name for name in hard if _is_quota_resource(name)]
    return {
        scope: sum(name not in covered for name in limited)
        if (covered := _COVERED_BY_SCOPE.get(scope)) is not None
        else 0
        for scope in set(scopes)
    }


def _validate_scope_selector(spec: ResourceQuotaSpec, hard: dict[str, str]) -> Iterator[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    expressions: Sequence[ScopedResourceSelectorRequirement] = spec["scopeSelector"].get("matchExpressions") or ()
    not_covered = _count_not_covered((expression.get("scopeName", "") for expression in expressions), hard)
    room = MOST_SCOPES
    for expression in expressions:
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        values = expression.get("values") or ()
        if scope not in _COVERED_BY_SCOPE:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        for _ in range(min(not_covered[scope], room)):
            room -= 1
            yield invalid(path, _selector_view(_shorten(expressions)), "unsupported scope applied to resource")
        if scope in _SCOPES_THAT_ONLY_EXIST and operator != "Exists":
            detail = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            yield invalid(f"{path}.operator", operator, detail)
        match operator:
            case "In" | "NotIn":
                if not values:
                    detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                    yield required(f"{path}.values", detail)
            case "Exists" | "DoesNotExist":
                if values:
                    detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                    yield invalid(f"{path}.values", values, detail)
            case _:
                yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    scopes = {expression.get("scopeName", "") for expression in expressions}
    for pair in _CONFLICTING_SCOPES:
        if pair <= scopes:
            yield invalid(path, spec.get("scopes"), "conflicting scopes")


def _selector_view(expressions: Sequence[ScopedResourceSelectorRequirement]) -> Object:
    return {
        "MatchExpressions": [
            {
                "ScopeName": expression.get("scopeName", ""),
                "Operator": expression.get("operator", ""),
                "Values": expression.get("values"),
            }
            for expression in expressions
        ]
    }


def _quota_warnings(quota: ResourceQuota, old: ResourceQuota | None) -> Iterator[str]:
    if old is not None:
        return
    hard: dict[str, str] = (quota.get("spec") or {}).get("hard") or {}
    for name in ("cpu", "memory", "storage", "ephemeral-storage"):
        request_name = f"requests.{name}"
        if request_name not in hard and name in ("cpu", "memory"):
            request_name = name
        limit_name = f"limits.{name}"
        if request_name in hard and limit_name in hard:
            request, limit = quantity.parse(hard[request_name]), quantity.parse(hard[limit_name])
            if request > limit:
                yield f"ResourceQuota {request_name} ({request}) should be less than {limit_name} ({limit})"


RESOURCE_QUOTA = Strategy(
    answers_with_deleted=True,
    default=_default_quota,
    validate=_validate_quota,
    validate_status=_validate_quota_status,
    warnings=_quota_warnings,
)

# --- limit ranges

_LIMIT_LISTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def _default_limits(limit_range: Object) -> None:
    spec: Object = limit_range.setdefault("spec", {})
    spec["limits"] = spec.get("limits") or None  # Kubernetes writes null for an empty list.
    for limit in spec["limits"] or ():
        for field in _LIMIT_LISTS:
            canonical_amounts(limit.get(field))
        if limit.get("type") == "Container":
            default = {**(limit.get("max") or {}), **(limit.get("default") or {})}
            request = {**(limit.get("min") or {}), **default, **(limit.get("defaultRequest") or {})}
            if default:
                limit["default"] = default
            if request:
                limit["defaultRequest"] = request


def _validate_limit_range(limit_range: LimitRange, old: LimitRange | None) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, limit in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{index}]"
        kind = limit.get("type", "")
        yield from _validate_limit_type(kind, f"{path}.type")
        if kind in seen:
            yield duplicate(f"{path}.type", kind)
        seen.add(kind)
        yield from _validate_limit(limit, kind, path)


def _validate_limit_type(kind: str, path: str) -> Iterator[FieldError]:
    errs = names.qualified_name(kind)
    for err in errs:
        yield invalid(path, kind, err)
    if not errs and "/" not in kind and kind not in ("Pod", "Container", "PersistentVolumeClaim"):
        yield invalid(path, kind, "must be a standard limit type or fully qualified")


def _validate_limit(limit: LimitRangeItem, kind: str, path: str) -> Iterator[FieldError]:
    amounts: dict[str, dict[str, Quantity]] = {}
    for field in _LIMIT_LISTS:
        limits: dict[str, str] = limit.get(field) or {}
        amounts[field] = {}
        if kind == "Pod" and field in ("default", "defaultRequest"):
            if limits:
                yield forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
            continue
        for name, amount in limits.items():
            yield from _validate_limited_name(kind, name, f"{path}.{field}[{name}]")
            amounts[field][name] = quantity.parse(amount)
        if field == "defaultRequest" and kind == "PersistentVolumeClaim" and not _bounds_storage(amounts):
            detail = "either minimum or maximum storage value is required, but neither was provided"
            yield required(f"{path}.limits", detail)
    for name in dict.fromkeys(name for field in _LIMIT_LISTS for name in amounts[field]):
        yield from _validate_fit(name, {field: amounts[field].get(name) for field in _LIMIT_LISTS}, path)


def _bounds_storage(amounts: Mapping[str, Mapping[str, Quantity]]) -> bool:
    return "storage" in amounts["min"] or "storage" in amounts["max"]


def _validate_limited_name(kind: str, name: str, path: str) -> Iterator[FieldError]:
    yield from validate_resource_name(name, path)
    if kind not in ("Pod", "Container"):
        return
    if "/" not in name:
        if name not in _CONTAINER_RESOURCES and not name.startswith("hugepages-"):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _validate_fit(name: str, amount: Mapping[str, Quantity | None], path: str) -> Iterator[FieldError]:
    """Check that the limits of one resource are consistent."""
    low, high, default, request = amount["min"], amount["max"], amount["default"], amount["defaultRequest"]
    ratio = amount["maxLimitRequestRatio"]

    def err(field: str, value: Quantity, detail: str) -> FieldError:
        return invalid(f"{path}.{field}[{name}]", str(value), detail)

    for field, given, (less, less_name), (more, more_name) in (
        ("min", low, (low, "min value"), (high, "max value")),
        ("defaultRequest", request, (low, "min value"), (request, "default request value")),
        ("defaultRequest", request, (request, "default request value"), (high, "max value")),
        ("defaultRequest", request, (request, "default request value"), (default, "default limit value")),
        ("default", low, (low, "min value"), (default, "default value")),
        ("default", high, (default, "default value"), (high, "max value")),
    ):
        if given is not None and less is not None and more is not None and less > more:
            yield err(field, given, f"{less_name} {less} is greater than {more_name} {more}")
    if ratio is not None:
        if ratio.amount < 1:
            yield err("maxLimitRequestRatio", ratio, f"ratio {ratio} is less than 1")
        if low is not None and high is not None:
            wanted, possible = _ratios(ratio, low, high)
            if wanted > possible:
                detail = f"ratio {ratio} is greater than max/min = {possible:f}"
                yield err("maxLimitRequestRatio", ratio, detail)
    if default is not None and request is not None and default != request and not may_overcommit(name):
        detail = f"default value {default} must equal to defaultRequest value {request} in {name}"
        yield err("defaultRequest", request, detail)


def _ratios(ratio: Quantity, low: Quantity, high: Quantity) -> tuple[float, float]:
    if max(ratio.value, low.value, high.value) < _SCALED_EXACTLY:
        wanted, least, most = ratio.milli_value / 1000, low.milli_value, high.milli_value
    else:
        wanted, least, most = float(ratio.value), low.value, high.value
    return wanted, most / least if least else float("inf")


LIMIT_RANGE = Strategy(
    default=_default_limits, names_itself=True, validate=_validate_limit_range, may_create_on_update=True
)
