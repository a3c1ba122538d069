"""Field selectors of the built-in kinds: fields read as text from the stored object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.model.objects import Object

Read = Callable[[Object], str]


def text_at(path: str, default: str = "") -> Read:
    """Return a reader of a dotted path; a missing field reads as `default`, booleans as in Go."""
    steps = path.split(".")

    def read(obj: Object) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
            if value is None:
                return default
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    return read


def fields(*paths: str) -> Mapping[str, Read]:
    return {path: text_at(path) for path in paths}
