"""Correlate parts of a new object with parts of the old one: unchanged parts are not validated again (ratcheting)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from pinnace.process.work_slices import give_way
from pinnace.schema.shape import Raw


class _Unrelated:
    """The value has no counterpart in the old object."""

    def __repr__(self) -> str:
        return "UNRELATED"


UNRELATED: Any = _Unrelated()


class OldItems:
    """The old items of a list of type map, by their keys. Items of other lists have no counterpart."""

    def __init__(self, schema: Raw, old: Any) -> None:
        self._keys: tuple[str, ...] = ()
        self._items: dict[Hashable, Any] = {}
        if old.__class__ is list and schema.get("x-kubernetes-list-type") == "map":
            self._keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            for item in old:
                if (key := self._key(item)) is not None:
                    self._items.setdefault(key, item)

    def of(self, item: Any) -> Any:
        return self._items.get(self._key(item), UNRELATED) if self._items else UNRELATED

    def _key(self, item: Any) -> Hashable:
        """Return the key of an item; None if a key field is missing."""
        if item.__class__ is not dict:
            return None
        values = tuple(item.get(key) for key in self._keys)
        if any(value is None or value.__class__ in (dict, list) for value in values):
            return None
        return tuple((value.__class__, value) for value in values)


def schema_of_key(schema: Raw, key: str) -> Raw | None:
    known: Raw | None = (schema.get("properties") or {}).get(key)
    if known is not None:
        return known
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, Mapping) else None


def is_same(new: Any, old: Any, schema: Raw) -> bool:
    """Return whether nothing changed. Lists of type map may change their order; unknown fields count as changed."""
    if new.__class__ is not old.__class__:
        return False
    if new.__class__ is dict:
        give_way()
        return len(new) == len(old) and all(_is_same_field(key, new, old, schema) for key in new)
    if new.__class__ is list:
        return len(new) == len(old) and _are_same_items(new, old, schema)
    return bool(new == old)


def _is_same_field(key: str, new: Raw, old: Raw, schema: Raw) -> bool:
    known = schema_of_key(schema, key)
    return known is not None and key in old and is_same(new[key], old[key], known)


def _are_same_items(new: list[Any], old: list[Any], schema: Raw) -> bool:
    items = schema.get("items")
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(items, Mapping):
        return is_identical(new, old)
    before = OldItems(schema, old)
    return all((was := before.of(item)) is not UNRELATED and is_same(item, was, items) for item in new)


def is_identical(new: Any, old: Any) -> bool:
    """Return whether two JSON values are equal; 1 is neither 1.0 nor true."""
    if new.__class__ is not old.__class__:
        return False
    if new.__class__ is dict:
        return new.keys() == old.keys() and all(is_identical(new[key], old[key]) for key in new)
    if new.__class__ is list:
        return len(new) == len(old) and all(map(is_identical, new, old))
    return bool(new == old)


def freeze(value: Any) -> Hashable:
    """Return a value that can be hashed, equal for two JSON values if and only if they are identical."""
    if value.__class__ is dict:
        give_way()
        return dict, frozenset((key, freeze(inner)) for key, inner in value.items())
    if value.__class__ is list:
        return list, tuple(map(freeze, value))
    return value.__class__, value
