"""Sorts objects by a path, as `--sort-by` does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, TypeVar

from pinnace.cli.conversation import CommandError
from pinnace.cli.formats import relaxed_path
from pinnace.model import quantity
from pinnace.model.jsonpath import JsonPathError
from pinnace.model.objects import Object
from pinnace.schema.gotext import quoted

Item = TypeVar("Item")


def sorted_by(items: list[Item], path: str, object_of: Callable[[Item], Object]) -> list[Item]:
    """The items in the order of what the path finds in each; those without it come first. Raises CommandError."""
    find = relaxed_path(path)
    try:
        found = [(find(object_of(item)) or [None])[0] for item in items]
    except JsonPathError as problem:
        raise CommandError(str(problem)) from None
    if items and all(value is None for value in found):
        shown = path.strip("{}").removeprefix(".")
        raise CommandError(f"couldn't find any field with path {quoted('{.' + shown + '}')} in the list of objects")
    pairs = list(zip(found, items, strict=True))
    pairs.sort(key=lambda pair: cmp_to_key(_compared)(pair[0]))
    return [item for _, item in pairs]


def _compared(one: Any, other: Any) -> int:
    if one is None or other is None:
        return (other is None) - (one is None)
    if isinstance(one, str) and isinstance(other, str):
        with contextlib.suppress(quantity.InvalidQuantity):
            one, other = quantity.parse(one), quantity.parse(other)
    try:
        return int(one > other) - int(one < other)
    except TypeError:
        raise CommandError(f"unsortable type: {type(one).__name__}") from None
