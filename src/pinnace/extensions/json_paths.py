"""Stands in for the JSONPath of printer columns until that is there: dotted names only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson


def compile_path(path: str) -> Callable[[Any], list[Any]]:
    steps = path.removeprefix("{").removesuffix("}").removeprefix(".").replace("\\.", "\0").split(".")
    names = [step.replace("\0", ".") for step in steps]

    def find(obj: Any) -> list[Any]:
        for name in names:
            if not isinstance(obj, dict) or name not in obj:
                return []
            obj = obj[name]
        return [obj]

    return find


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()
