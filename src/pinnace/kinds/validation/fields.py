"""Checks of one field, shared by many kinds. Each returns the errors that it found, usually none.

Callers take them with `yield from`; pods, which are validated on every write, add them to a list with `errs +=`.
A missing string counts as empty and a missing list as no items, as in Kubernetes.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, TypeVar

from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, FieldError, duplicate, invalid, not_supported, required, too_long
from pinnace.model.names import NameRule
from pinnace.model.typed_objects import Condition
from pinnace.schema.equality import semantically_equal
from pinnace.schema.text_cache import cache_short_texts

NOT_POSITIVE = "must be greater than zero"
NEGATIVE = "must be greater than or equal to 0"
CONDITION_REASON_ERROR = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)

Errors = Sequence[FieldError]
_Value = TypeVar("_Value")
_NO_ERRORS: Errors = ()
_MODE_ERROR = "must be a number between 0 and 0777 (octal), both inclusive"
_LARGEST_ID = 2**31 - 1
_CONTEXT = 3
"""The equal lines around the changes in a diff."""
_MOST_COMPARED = 2_000
"""The most different lines that are compared with each other, which takes quadratic time."""

_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_is_http_path = re.compile(_HTTP_PATH).fullmatch
_is_condition_reason = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?").fullmatch

# The names in pods repeat: replicas share nearly all of them.
dns_label = cache_short_texts(8192)(names.dns_label)
dns_subdomain = cache_short_texts(8192)(names.dns_subdomain)
qualified_name = cache_short_texts(8192)(names.qualified_name)
label_value = cache_short_texts(8192)(names.label_value)
port_name = cache_short_texts(1024)(names.port_name)

# --- names


def find_repeats(values: Sequence[str]) -> list[bool]:
    """Return for each value whether an equal one comes before it."""
    seen: set[str] = set()
    repeated = []
    for value in values:
        repeated.append(value in seen)
        seen.add(value)
    return repeated


def validate_name(value: _Value | None, rule: Callable[[_Value], Iterable[str]], path: str) -> Errors:
    """Return the errors of a name rule, with their path. An absent name has none."""
    wrong = rule(value) if value is not None else None
    return [invalid(path, value, err) for err in wrong] if wrong else _NO_ERRORS


def validate_given_name(value: str | None, rule: NameRule, path: str) -> Errors:
    """Check a name that must not be empty."""
    return validate_name(value, rule, path) if value else [required(path)]


def validate_dns_label(value: str, path: str) -> Errors:
    wrong = dns_label(value)
    return [invalid(path, value, err) for err in wrong] if wrong else _NO_ERRORS


def validate_dns_subdomain(value: str, path: str) -> Errors:
    wrong = dns_subdomain(value)
    return [invalid(path, value, err) for err in wrong] if wrong else _NO_ERRORS


def validate_qualified_name(value: str, path: str) -> Errors:
    wrong = qualified_name(value)
    return [invalid(path, value, err) for err in wrong] if wrong else _NO_ERRORS


def validate_port(port: int | str, path: str) -> Errors:
    """Check a port of a handler: a number, or the name of a container's port."""
    if isinstance(port, int):
        return _NO_ERRORS if 1 <= port <= 65535 else [invalid(path, port, "must be between 1 and 65535, inclusive")]
    return [invalid(path, port, err) for err in port_name(port)]


# --- presence, choices and uniqueness


def validate_required(holder: Mapping[str, Any], fields: Iterable[str], path: str) -> Errors:
    """Return an error for each of the fields that is missing or empty."""
    return [required(f"{path}.{field}") for field in fields if not holder.get(field)]


def validate_choice(value: str | None, supported: Sequence[str], path: str) -> Errors:
    """Check that a value is supported; an absent one is."""
    return _NO_ERRORS if value is None or value in supported else [not_supported(path, value, supported)]


def validate_given_choice(value: str | None, supported: Sequence[str], path: str) -> Errors:
    """Check that a value is given and supported."""
    return validate_choice(value, supported, path) if value else [required(path)]


def validate_unique(values: Sequence[Any], path: str) -> Iterator[FieldError]:
    """Yield an error for each value that repeats an earlier one."""
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            yield duplicate(f"{path}[{index}]", value)
        seen.add(value)


def validate_immutable(new: Any, old: Any, path: str, *, view_of: Callable[[Any], Any] = lambda value: value) -> Errors:
    """`view_of` renders the new value where Kubernetes prints its Go names instead of those on the wire."""
    return _NO_ERRORS if semantically_equal(new, old) else [invalid(path, view_of(new), IMMUTABLE)]


# --- numbers


def validate_range(value: int | None, low: int, high: int, path: str) -> Errors:
    if value is None or low <= value <= high:
        return _NO_ERRORS
    return [invalid(path, value, f"must be between {low} and {high}, inclusive")]


def validate_not_negative(value: int | None, path: str) -> Errors:
    return _NO_ERRORS if value is None or value >= 0 else [invalid(path, value, NEGATIVE)]


def validate_counts(holder: Mapping[str, Any], fields: Iterable[str], path: str) -> Errors:
    """Return an error for each of the fields that is negative."""
    return [
        invalid(f"{path}.{field}", value, NEGATIVE)
        for field in fields
        if (value := holder.get(field)) is not None and value < 0
    ]


def validate_id(holder: Mapping[str, Any], field: str, path: str) -> Errors:
    """Check the ID of a Unix user or group."""
    value = holder.get(field)
    if value is None or 0 <= value <= _LARGEST_ID:
        return _NO_ERRORS
    return [invalid(f"{path}.{field}", value, f"must be between 0 and {_LARGEST_ID}, inclusive")]


def validate_mode(holder: Mapping[str, Any], field: str, path: str) -> Errors:
    """Check the permission bits of a file."""
    value = holder.get(field)
    if value is None or 0 <= value <= 0o777:
        return _NO_ERRORS
    return [invalid(f"{path}.{field}", value, _MODE_ERROR)]


# --- file paths


def has_backsteps(value: str) -> bool:
    return ".." in value and ".." in value.split("/")


def validate_no_backsteps(value: str, path: str) -> Errors:
    return [invalid(path, value, "must not contain '..'")] if has_backsteps(value) else _NO_ERRORS


def validate_relative_path(value: str, path: str) -> Errors:
    if value.startswith("/"):
        return [invalid(path, value, "must be a relative path"), *validate_no_backsteps(value, path)]
    return validate_no_backsteps(value, path)


def validate_unreserved_path(value: str, path: str) -> Errors:
    """Check a relative path whose first part does not begin with two dots: kubelet reserves such names."""
    if ".." not in value and not value.startswith("/"):
        return _NO_ERRORS
    errs = list(validate_relative_path(value, path))
    if value.startswith("..") and not value.startswith("../"):
        errs.append(invalid(path, value, "must not start with '..'"))
    return errs


def validate_domain_path(value: str, path: str) -> Iterator[FieldError]:
    """Check a domain and a path, such as acme.io/foo."""
    if not value:
        yield required(path)
        return
    host, _, rest = value.partition("/")
    if not host or not rest:
        yield invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    yield from validate_name(host, names.dns_subdomain, path)
    if not _is_http_path(rest):
        yield invalid(path, rest, f"Invalid path (regex used for validation is '{_HTTP_PATH}')")


# --- conditions


def validate_condition(conditions: Sequence[Condition], path: str) -> Iterator[FieldError]:
    """Check a list of metav1 conditions."""
    seen = set()
    for i, condition in enumerate(conditions):
        place, type_, reason = f"{path}[{i}]", condition.get("type", ""), condition.get("reason", "")
        if type_ in seen:
            yield duplicate(place, type_)
        seen.add(type_)
        if type_:
            yield from validate_name(type_, names.qualified_name, f"{place}.type")
        else:
            yield required(f"{place}.type", "is required")
        yield from validate_given_choice(condition.get("status", ""), ("False", "True", "Unknown"), f"{place}.status")
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


# --- how values are printed


def in_key_order(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a map in the order in which Go prints it."""
    return None if value is None else dict(sorted(value.items()))


def in_wire_order(condition: Condition) -> dict[str, Any]:
    """Return a metav1 condition with its fields in the order in which Go prints them."""
    order: Final = ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message")
    return {field: condition[field] for field in order if field in condition}


def unified_diff(old: Any, new: Any) -> str:
    """Return a unified diff of two indented JSON texts, as Kubernetes prints a change of immutable fields."""
    before, after = (_indented_lines(value) for value in (old, new))
    first = _count_equal(before, after)
    last = _count_equal(reversed(before[first:]), reversed(after[first:]))
    if len(before) + len(after) - 2 * (first + last) > _MOST_COMPARED:
        return "".join(_one_hunk(before, after, first, last))
    headed = list(difflib.unified_diff(before, after, n=_CONTEXT))
    return "".join(headed[2:])  # The first two lines would name the files.


def _count_equal(before: Iterable[str], after: Iterable[str]) -> int:
    """Return how many lines are equal from the first on."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))


def _one_hunk(before: list[str], after: list[str], first: int, last: int) -> Iterator[str]:
    """Yield a diff in which all lines between equal ones at the beginning and at the end have changed."""
    begin = max(first - _CONTEXT, 0)
    end_before, end_after = len(before) - last, len(after) - last
    tail = before[end_before : end_before + _CONTEXT]
    lengths = (end_before - begin + len(tail), end_after - begin + len(tail))
    yield f"@@ -{begin + 1},{lengths[0]} +{begin + 1},{lengths[1]} @@\n"
    yield from (f" {line}" for line in before[begin:first])
    yield from (f"-{line}" for line in before[first:end_before])
    yield from (f"+{line}" for line in after[first:end_after])
    yield from (f" {line}" for line in tail)


def _indented_lines(value: Any) -> list[str]:
    return [f"{line}\n" for line in json.dumps(value, indent=1, ensure_ascii=False).splitlines()]
