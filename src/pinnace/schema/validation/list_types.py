"""Find duplicate items in lists of type set and map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from pinnace.process.work_slices import give_way
from pinnace.schema import field_errors
from pinnace.schema.field_errors import FieldError
from pinnace.schema.shape import Raw


def validate_list_type(schema: Raw, value: Any, path: str = "") -> Iterator[FieldError]:
    """Yield an error for every item that is a duplicate in its set or map."""
    if value.__class__ is list:
        yield from _validate_list(schema, value, path)
    elif value.__class__ is dict:
        give_way()
        additional, properties = schema.get("additionalProperties"), schema.get("properties") or {}
        for key, item in value.items():
            if isinstance(additional, Mapping):
                yield from validate_list_type(additional, item, f"{path}[{key}]")
            if key in properties:
                yield from validate_list_type(properties[key], item, f"{path}.{key}" if path else key)


def _validate_list(schema: Raw, items: list[Any], path: str) -> Iterator[FieldError]:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            for index in _find_repeated(items):
                yield field_errors.duplicate(f"{path}[{index}]", items[index])
        case "map":
            yield from _validate_map(schema, items, path)
    below = schema.get("items")
    if isinstance(below, Mapping):
        for index, item in enumerate(items):
            yield from validate_list_type(below, item, f"{path}[{index}]")


def _validate_map(schema: Raw, items: list[Any], path: str) -> Iterator[FieldError]:
    for index, item in enumerate(items):
        if item is not None and item.__class__ is not dict:
            yield field_errors.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            return
    names = schema.get("x-kubernetes-list-map-keys") or ()
    keys = [{name: item[name] for name in names if name in item} if item else {} for item in items]
    for index in _find_repeated(keys):
        yield field_errors.duplicate(f"{path}[{index}]", keys[index])


def _find_repeated(values: Sequence[Any]) -> Iterator[int]:
    """Yield the index where a value occurs for the second time; further ones are not reported."""
    seen: dict[tuple[type, bytes], int] = {}
    for index, value in enumerate(values):
        give_way()
        key = (value.__class__, orjson.dumps(value, option=orjson.OPT_SORT_KEYS))
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            yield index


def may_repeat(items: list[Any]) -> bool:
    """Return False if a set certainly has no duplicates; True if it may have some."""
    try:
        return len(set(items)) != len(items)
    except TypeError:
        return True


def may_repeat_keys(items: list[Any], names: tuple[str, ...]) -> bool:
    """Return False if the keys of a map certainly have no duplicates; True if they may have some."""
    try:
        if len(names) == 1:
            name = names[0]
            return len({item[name] for item in items}) != len(items)
        return len({tuple([item[name] for name in names]) for item in items}) != len(items)
    except (KeyError, TypeError):
        return True
