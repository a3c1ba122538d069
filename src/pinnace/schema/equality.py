"""When two JSON values are one: Python takes true for 1 and false for 0, and no client of Kubernetes does."""

from __future__ import annotations

from typing import Any


def same(first: Any, second: Any) -> bool:
    return bool(first == second) and identical(first, second)


def identical(first: Any, second: Any) -> bool:
    """Whether two values that Python takes for equal are so in JSON, too."""
    if first is second:
        return True
    kind = first.__class__
    if kind is dict:
        return all(identical(value, second[key]) for key, value in first.items())
    if kind is list:
        return all(map(identical, first, second))
    return (kind is bool) is (second.__class__ is bool)
