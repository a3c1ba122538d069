"""Defaults and validation of priority classes."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.kinds.validation.fields import validate_choice, validate_immutable
from pinnace.model.field_errors import FieldError, forbidden, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy

SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
HIGHEST_USER_PRIORITY = 1_000_000_000
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def _default_priority_class(priority_class: Object) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _prepare_priority_class(priority_class: Object, old: Object | None) -> None:
    if old is None:
        priority_class["metadata"]["generation"] = 1


def _validate_priority_class(priority_class: Object, old: Object | None) -> Iterator[FieldError]:
    value, policy = priority_class.get("value", 0), priority_class.get("preemptionPolicy")
    if old is not None:
        if value != old.get("value", 0):
            yield forbidden("value", "may not be changed in an update.")
        yield from validate_immutable(policy, old.get("preemptionPolicy"), "preemptionPolicy")
        return
    name = priority_class["metadata"].get("name", "")
    if name.startswith("system-"):
        if err := _check_system_priority(name, value, bool(priority_class.get("globalDefault"))):
            detail = f"priority class names with 'system-' prefix are reserved for system use only. error: {err}"
            yield forbidden("metadata.name", detail)
    elif value > HIGHEST_USER_PRIORITY:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}")
    if policy == "":
        yield required("preemptionPolicy")
    else:
        yield from validate_choice(policy, PREEMPTION_POLICIES, "preemptionPolicy")


def _check_system_priority(name: str, value: int, is_global_default: bool) -> str:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_global_default else ""


PRIORITY_CLASS = Strategy(
    default=_default_priority_class, prepare=_prepare_priority_class, validate=_validate_priority_class
)
