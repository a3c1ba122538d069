"""The checks that many kinds make of one field, each giving Kubernetes' causes.

A missing string counts as empty and a missing list as no items, as they do on Kubernetes' side of the wire.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, FieldError, duplicate, invalid, not_supported, required, too_long
from pinnace.model.names import NameRule

NOT_POSITIVE = "must be greater than zero"
NEGATIVE = "must be greater than or equal to 0"
CONDITION_REASON_ERROR = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)

_is_condition_reason = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?").fullmatch


def validate_name(value: str, rule: NameRule, path: str) -> Iterator[FieldError]:
    """What a name rule has against a value."""
    return (invalid(path, value, err) for err in rule(value))


def validate_required(holder: Mapping[str, Any], fields: Iterable[str], path: str) -> Iterator[FieldError]:
    """One cause for each of the fields that is missing or empty."""
    return (required(f"{path}.{field}") for field in fields if not holder.get(field))


def validate_choice(value: str | None, supported: Sequence[str], path: str) -> Iterator[FieldError]:
    """A value that was said must be one of those supported; one left out is fine."""
    if value is not None and value not in supported:
        yield not_supported(path, value, supported)


def validate_range(value: int | None, low: int, high: int, path: str) -> Iterator[FieldError]:
    if value is not None and not low <= value <= high:
        yield invalid(path, value, f"must be between {low} and {high}, inclusive")


def validate_not_negative(value: int | None, path: str) -> Iterator[FieldError]:
    if value is not None and value < 0:
        yield invalid(path, value, NEGATIVE)


def semantically_equal(one: Any, other: Any) -> bool:
    """Whether two values mean the same: what is null or an empty list was as good as left out."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(semantically_equal(one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(semantically_equal, one, other))
    return bool(one == other) or (one in (None, []) and other in (None, []))


def validate_immutable(
    new: Any, old: Any, path: str, *, shown: Callable[[Any], Any] = lambda value: value
) -> Iterator[FieldError]:
    """`shown` renders the new value where Kubernetes prints its own Go names instead of those on the wire."""
    if not semantically_equal(new, old):
        yield invalid(path, shown(new), IMMUTABLE)


def in_key_order(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A map as Go prints it."""
    return None if value is None else dict(sorted(value.items()))


def in_wire_order(condition: Mapping[str, Any]) -> dict[str, Any]:
    """A metav1 condition with its fields in the order in which Go prints them."""
    order = ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message")
    return {field: condition[field] for field in order if field in condition}


def validate_unique(values: Sequence[Any], path: str) -> Iterator[FieldError]:
    """Each value that was there before, by its index."""
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            yield duplicate(f"{path}[{index}]", value)
        seen.add(value)


def unified_diff(old: Any, new: Any) -> str:
    """How Kubernetes shows what was changed of something immutable: a unified diff of two indented JSON texts."""
    before, after = (_indented_lines(value) for value in (old, new))
    headed = list(difflib.unified_diff(before, after, n=3))
    return "".join(headed[2:])  # The first two lines would name the files.


def _indented_lines(value: Any) -> list[str]:
    return [f"{line}\n" for line in json.dumps(value, indent=1, ensure_ascii=False).splitlines()]


def validate_condition(conditions: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """What is wrong with a list of metav1 conditions."""
    seen = set()
    for i, condition in enumerate(conditions):
        place, type_, reason = f"{path}[{i}]", condition.get("type", ""), condition.get("reason", "")
        if type_ in seen:
            yield duplicate(f"{place}.type", type_)
        seen.add(type_)
        yield from validate_name(type_, names.qualified_name, f"{place}.type")
        yield from validate_choice(condition.get("status", ""), ("False", "True", "Unknown"), f"{place}.status")
        if condition.get("observedGeneration", 0) < 0:
            generation = condition["observedGeneration"]
            yield invalid(f"{place}.observedGeneration", generation, "must be greater than or equal to zero")
        if not condition.get("lastTransitionTime"):
            yield required(f"{place}.lastTransitionTime")
        if not reason:
            yield required(f"{place}.reason")
        elif not _is_condition_reason(reason):
            yield invalid(f"{place}.reason", reason, CONDITION_REASON_ERROR)
        if len(reason) > 1024:
            yield too_long(f"{place}.reason", 1024)
        if len(condition.get("message", "")) > 32768:
            yield too_long(f"{place}.message", 32768)
