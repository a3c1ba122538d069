"""The values of table cells: ages, selectors and lists, formatted as kubectl users know them.

A description that begins with `io.k8s.` names a field of a definition; the field's documentation is the description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from pinnace.model.objects import AnyObject
from pinnace.model.resources import Column
from pinnace.model.typed_objects import Condition, LabelSelector

Value = Callable[[Any, datetime], Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def format_duration(seconds: float) -> str:
    """Format a duration in two or three digits: 90s, 5m12s, 3h, 6d4h, 2y30d."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _format_two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _format_two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _format_two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _format_two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _format_two(seconds: int, large: int, large_sign: str, small: int, small_sign: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_sign}{rest}{small_sign}" if rest else f"{seconds // large}{large_sign}"


def since(moment: str | None, now: datetime) -> str:
    if not moment:
        return UNKNOWN
    return format_duration((now - datetime.fromisoformat(moment)).total_seconds())


def name(obj: AnyObject, now: datetime) -> Any:
    return (obj.get("metadata") or {}).get("name", "")


def age(obj: AnyObject, now: datetime) -> str:
    return since((obj.get("metadata") or {}).get("creationTimestamp"), now)


def created_at(obj: AnyObject, now: datetime) -> Any:
    return (obj.get("metadata") or {}).get("creationTimestamp")


def reach(obj: Any, *steps: str) -> Any:
    """Return the value of nested fields, or None where one is missing."""
    for step in steps:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def at(path: str, default: Any = "") -> Value:
    """Return a reader of the field at a dotted path; `default` where it is missing."""
    steps = path.split(".")

    def value(obj: AnyObject, now: datetime) -> Any:
        reached = reach(obj, *steps)
        return default if reached is None else reached

    return value


def number_at(path: str) -> Value:
    return at(path, 0)


def nonempty_at(path: str, default: str) -> Value:
    """Like `at`, but an empty string counts as missing."""
    value_at = at(path)
    return lambda obj, now: value_at(obj, now) or default


def length_of(path: str) -> Value:
    steps = path.split(".")
    return lambda obj, now: len(reach(obj, *steps) or ())


def text(value: Any) -> str:
    """Return a number or string as Go prints it."""
    return "" if value is None else str(value)


def format_labels(labels: Any) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def format_selector(selector: LabelSelector | None) -> str:
    """Format a label selector as for kubectl's -l; empty for none and for one that selects everything."""
    if not selector:
        return ""
    written = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or ()))
        match expression.get("operator"):
            case "In":
                written.append((key, f"{key} in ({values})"))
            case "NotIn":
                written.append((key, f"{key} notin ({values})"))
            case "Exists":
                written.append((key, key))
            case "DoesNotExist":
                written.append((key, f"!{key}"))
    return ",".join(requirement for _, requirement in sorted(written, key=lambda pair: pair[0]))


def labels_at(path: str) -> Value:
    steps = path.split(".")
    return lambda obj, now: format_labels(reach(obj, *steps))


def selector_at(path: str) -> Value:
    steps = path.split(".")
    return lambda obj, now: format_selector(reach(obj, *steps)) or NONE


def first_of(texts: Iterable[str], count: int, most: int = 3) -> str:
    """Format at most three items, and the number of the others."""
    listed = ",".join(list(texts)[:most])
    return f"{listed} + {count - most} more..." if count > most else listed or UNSET


def condition(obj: AnyObject, kind: str) -> Condition | None:
    conditions = reach(obj, "status", "conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def is_true(obj: AnyObject, kind: str) -> bool:
    stated = condition(obj, kind)
    return stated is not None and stated.get("status") == "True"


NAME = Column("Name", "string", f"{META}.name", name, format="name")
AGE = Column("Age", "string", f"{META}.creationTimestamp", age)
NAME_AND_AGE = (NAME, AGE)
PLAIN = (NAME, Column("Created At", "date", f"{META}.creationTimestamp", created_at))
"""The columns of kinds that define none."""


def string(title: str, description: str, value: Value, *, wide: bool = False) -> Column:
    return Column(title, "string", description, value, priority=1 if wide else 0)


def integer(title: str, description: str, value: Value) -> Column:
    return Column(title, "integer", description, value)


def boolean(title: str, description: str, value: Value) -> Column:
    return Column(title, "boolean", description, value)


def template_columns(path: str) -> tuple[Column, Column]:
    """Return the columns with the containers and images of a pod template, for -o wide."""
    steps = (*path.split("."), "spec", "containers")

    def listed(field: str) -> Value:
        return lambda obj, now: ",".join(text(item.get(field)) for item in reach(obj, *steps) or ())

    return (
        string("Containers", "Names of each container in the template.", listed("name"), wide=True),
        string("Images", "Images referenced by each container in the template.", listed("image"), wide=True),
    )


def replica_columns(package: str, kind: str) -> tuple[Column, ...]:
    return (
        NAME,
        integer("Desired", f"{package}.{kind}Spec.replicas", number_at("spec.replicas")),
        integer("Current", f"{package}.{kind}Status.replicas", number_at("status.replicas")),
        integer("Ready", f"{package}.{kind}Status.readyReplicas", number_at("status.readyReplicas")),
        AGE,
        *template_columns("spec.template"),
    )
