"""Sorts objects by a path, as `--sort-by` does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, TypeVar

from pinnace.cli.kubectl.formats import parse_relaxed_path
from pinnace.cli.session import CommandError
from pinnace.model import quantity
from pinnace.model.jsonpath import JsonPathError
from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote, type_name

Item = TypeVar("Item")


class NoSuchField(CommandError):
    """None of the objects has the field to sort by."""


def sort_items(items: list[Item], path: str, object_of: Callable[[Item], Object]) -> list[Item]:
    """Return the items sorted by the value at the path. Raise NoSuchField, or CommandError for values without an order.

    Items without a value come first, the last of them at the top, as in kubectl's output.
    """
    find = parse_relaxed_path(path)
    try:
        found = [(find(object_of(item)) or [None])[0] for item in items]
    except JsonPathError as error:
        raise CommandError(str(error)) from None
    with_it = [(value, item) for value, item in zip(found, items, strict=True) if value is not None]
    if items and not with_it:
        shown = path.strip("{}").removeprefix(".")
        raise NoSuchField(f"couldn't find any field with path {quote('{.' + shown + '}')} in the list of objects")
    with_it.sort(key=lambda pair: cmp_to_key(_compare)(pair[0]))
    without = [item for value, item in zip(found, items, strict=True) if value is None]
    return [*reversed(without), *(item for _, item in with_it)]


def _compare(one: Any, other: Any) -> int:
    if isinstance(one, str) and isinstance(other, str):
        with contextlib.suppress(quantity.InvalidQuantity):
            one, other = quantity.parse(one), quantity.parse(other)
    try:
        return int(one > other) - int(one < other)
    except TypeError:
        raise CommandError(f"unsortable type: {type_name(one)}") from None
