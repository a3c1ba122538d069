"""kubectl's three-way patch, which changes a live object to the state in a file.

It compares three states: `original`, the last applied one, `modified`, the one to apply, and `current`, the live one.
Fields of `modified` are set; fields of `original` that are not in `modified` are removed; fields that others have added
to `current` stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

_DELETE = "$patch"
_ORDER = "$setElementOrder/"
_DROP = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"


def merge_patch(original: Object, modified: Object, current: Object) -> Object:
    """Return a JSON merge patch, for kinds whose schema does not say how to merge lists."""
    return _join(_removals(original, modified), _additions(current, modified))


def _additions(current: Object, modified: Object) -> Object:
    patch: Object = {}
    for key, value in modified.items():
        if value is None:
            continue
        known = current.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            inner = _additions(known, value)
            if inner:
                patch[key] = inner
        elif key not in current or known != value or type(known) is not type(value):
            patch[key] = value
    return patch


def _removals(original: Object, modified: Object) -> Object:
    patch: Object = {}
    for key, value in original.items():
        wanted = modified.get(key)
        if wanted is None:
            patch[key] = None
        elif isinstance(value, dict) and isinstance(wanted, dict):
            inner = _removals(value, wanted)
            if inner:
                patch[key] = inner
    return patch


def strategic_patch(original: Object, modified: Object, current: Object, schema: Schema) -> Object:
    """Return a strategic merge patch: lists are merged by the keys that the schema names."""
    added = _Difference(removes=False).of_maps(current, modified, schema)
    removed = _Difference(removes=True).of_maps(original, modified, schema)
    return _join(removed, added, schema)


class _Difference:
    """One half of the patch: what to set, or what to remove."""

    def __init__(self, *, removes: bool) -> None:
        self._removes = removes

    def of_maps(self, old: Object, new: Object, schema: Schema | None) -> Object:
        patch: Object = {}
        for key, value in new.items():
            if key not in old:
                if not self._removes and value is not None:
                    patch[key] = value
                continue
            field = _field(schema, key)
            strategy = field.patch_strategy if field is not None else frozenset()
            known = old[key]
            if isinstance(value, dict) and isinstance(known, dict) and "replace" not in strategy:
                inner = self.of_maps(known, value, field)
                if inner:
                    patch[key] = inner
                    if "retainKeys" in strategy:
                        inner[_RETAIN] = sorted(name for name, held in value.items() if held is not None)
            elif isinstance(value, list) and isinstance(known, list) and "merge" in strategy and field is not None:
                self._of_lists(patch, key, known, value, field)
            elif not self._removes and (known != value or type(known) is not type(value)):
                patch[key] = value
        if self._removes:
            patch |= {key: None for key in old if key not in new or new[key] is None}
        return patch

    def _of_lists(self, patch: Object, key: str, old: list[Any], new: list[Any], field: Schema) -> None:
        if not old:
            if new and not self._removes:
                patch[key] = new
            return
        if not isinstance((new or old)[0], dict):
            changed = [item for item in old if item not in new] if self._removes else [i for i in new if i not in old]
            if changed:
                patch[(_DROP if self._removes else "") + key] = changed
            if changed or (not self._removes and old != new):
                patch[_ORDER + key] = new
            return
        by = field.patch_merge_key
        items = self._of_items(old, new, by, field.items)
        is_reordered = [item.get(by) for item in old] != [item.get(by) for item in new]
        if items:
            patch[key] = items
        if items or (is_reordered and not self._removes):
            patch[_ORDER + key] = [{by: item.get(by)} for item in new]

    def _of_items(self, old: list[Object], new: list[Object], by: str, schema: Schema | None) -> list[Object]:
        known = {item.get(by): item for item in old}
        wanted = {item.get(by) for item in new}
        items: list[Object] = []
        for item in new:
            if item.get(by) not in known:
                items += [] if self._removes else [item]
                continue
            inner = self.of_maps(known[item.get(by)], item, schema)
            if inner:
                items.append({by: item.get(by), **inner})
        if self._removes:
            items += [{_DELETE: "delete", by: name} for name in known if name not in wanted]
        return items


def _join(first: Object, second: Object, schema: Schema | None = None) -> Object:
    """Join two patches that do not contradict each other."""
    joined = dict(first)
    for key, value in second.items():
        known = joined.get(key)
        field = _field(schema, key)
        if isinstance(known, dict) and isinstance(value, dict):
            joined[key] = _join(known, value, field)
        elif isinstance(known, list) and isinstance(value, list) and field is not None and field.patch_merge_key:
            joined[key] = _join_items(known, value, field.patch_merge_key, field.items)
        else:
            joined[key] = value
    return joined


def _join_items(first: list[Object], second: list[Object], by: str, schema: Schema | None) -> list[Object]:
    known = {item.get(by): item for item in first}
    joined = [_join(known.pop(item.get(by), {}), item, schema) for item in second]
    return [*joined, *known.values()]


def _field(schema: Schema | None, key: str) -> Schema | None:
    if schema is None:
        return None
    find: Callable[[str], Schema | None] = schema.properties.get
    return find(key) or schema.additional
