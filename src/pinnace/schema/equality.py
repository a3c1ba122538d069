"""The three ways in which two JSON values can be equal.

`equal_json`            the same JSON text, keys in any order. Python's == calls true and 1 equal; this does not.
`semantically_equal`    null and an empty list count as absent, as in Kubernetes' Semantic.DeepEqual.
`equal_ignoring_empty`  null, "", {} and [] count as absent, and false and 0 where they are Go's zero value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Fields without a pointer in Go: false or 0 is the same as absent. Elsewhere it is a value: runAsUser 0 is root.
_ZERO_IS_ABSENT = frozenset(
    {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "stdin",
        "stdinOnce",
        "tty",
        "readOnly",
        "hostPort",
        "initialDelaySeconds",
        "minReadySeconds",
        "paused",
    }
)


def equal_json(first: Any, second: Any) -> bool:
    return bool(first == second) and equal_json_types(first, second)


def equal_json_types(first: Any, second: Any) -> bool:
    """Return whether two values that Python calls equal have booleans in the same places."""
    if first is second:
        return True
    kind = first.__class__
    if kind is dict:
        return all(equal_json_types(value, second[key]) for key, value in first.items())
    if kind is list:
        return all(map(equal_json_types, first, second))
    return (kind is bool) is (second.__class__ is bool)


def semantically_equal(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return all(semantically_equal(first.get(key), second.get(key)) for key in first.keys() | second.keys())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(semantically_equal, first, second))
    return bool(first == second) or (first in (None, []) and second in (None, []))


def equal_ignoring_empty(first: Any, second: Any) -> bool:
    if first == second:
        return True
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return all(
            equal_ignoring_empty(first.get(key), second.get(key))
            or (key in _ZERO_IS_ABSENT and not first.get(key) and not second.get(key))
            for key in first.keys() | second.keys()
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(equal_ignoring_empty, first, second))
    return _is_empty(first) and _is_empty(second)


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, (dict, list)) and not value)
