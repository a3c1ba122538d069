"""Field sets of a value, and of the differences between two values, by a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pinnace.process.work_slices import give_way
from pinnace.schema.equality import equal_json, equal_json_types
from pinnace.schema.merge.field_sets import FieldSet, refusing_depth
from pinnace.schema.merge.structure import ANY, ATOMIC, LIST, MAP, MergeNode, structure
from pinnace.schema.shape import Schema
from pinnace.schema.text_cache import MOST_CACHED

_MISSING: Any = object()
_NOTHING: FieldSet = {}
_ELEMENT = "f:".__add__


class Changes(NamedTuple):
    """The differences between two values. No path is in more than one of the sets."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet


@refusing_depth
def of(value: Any, schema: Schema) -> FieldSet:
    """Return every field that the manager of this applied configuration owns.

    Structs are owned through their fields only; entries of maps and items of lists are members themselves.
    Raise ValueError if an item of an associative list lacks its key.
    """
    return fields_of(structure(schema), value)


def fields_of(node: MergeNode, value: Any) -> FieldSet:
    """Return the same as `of`, for a node of the structure."""
    give_way()
    node = node.view_for(value)
    if node.shape == MAP:
        return _fields_of_map(node, value) if value.__class__ is dict else {}
    if node.shape == LIST:
        return _fields_of_list(node, value) if value.__class__ is list else {}
    return {}


def _fields_of_map(node: MergeNode, value: dict[str, Any]) -> FieldSet:
    out: FieldSet = {}
    declared, rest = node.fields, None
    for key, child_value in value.items():
        kind = child_value.__class__
        if kind is not dict and kind is not list:
            out["f:" + key] = {}
            continue
        child = declared.get(key)
        is_declared = child is not None
        if child is None:
            child = rest = rest or node.rest
        if child.shape == ANY:
            child = child.view_for(child_value)
        if child.shape <= ATOMIC:
            out["f:" + key] = {}
            continue
        below = _fields_of_map(child, child_value) if kind is dict else _fields_of_list(child, child_value)
        if below:
            out["f:" + key] = below if is_declared else {".": {}, **below}
        elif not is_declared or (kind is dict and not child_value):
            out["f:" + key] = {}
    return out


def _fields_of_list(node: MergeNode, value: list[Any]) -> FieldSet:
    out: FieldSet = {}
    item_node = node.item
    for item in value:
        give_way()
        element = node.element_of(item)
        if element in out:
            out[element] = {}  # Of items with the same key, only the key is owned, none of their fields.
        elif item.__class__ is dict and item_node.view_for(item).shape == MAP:
            out[element] = {".": {}, **_fields_of_map(item_node.view_for(item), item)}
        else:
            out[element] = {}
    return out


def everything(node: MergeNode, value: Any) -> FieldSet:
    """Return the fields below a new value: unlike with `of`, every place is a member, structs and lists too."""
    kind = value.__class__
    if (kind is not dict and kind is not list) or not value:
        return _NOTHING
    give_way()
    if node.shape == ANY:
        node = node.view_for(value)
    if node.shape <= ATOMIC:
        return _NOTHING
    out: FieldSet = {".": {}}
    if kind is list:
        item_node, element_of = node.item, node.element_of
        for item in value:
            element = element_of(item)
            out[element] = _NOTHING if element in out else everything(item_node, item)
        return out
    out.update(dict.fromkeys(map(_ELEMENT, value), _NOTHING))
    declared = node.fields
    for key, child_value in value.items():
        child_kind = child_value.__class__
        if child_value and (child_kind is dict or child_kind is list):
            child = declared.get(key) or node.rest
            if child.shape > ATOMIC:
                out["f:" + key] = everything(child, child_value)
    return out


Outline = tuple[Any, ...]


class OutlineTooLong(Exception):
    """The value has a list of so many items that its outline is not worth keeping."""


def outline(node: MergeNode, value: Any) -> Outline:
    """Return the shape of a value without its scalars: values with the same outline have the same `everything`.

    Raise OutlineTooLong if there are too many items.
    """
    if node.shape == ANY:
        node = node.view_for(value)
    if node.shape <= ATOMIC:
        return ()
    if value.__class__ is list:
        if len(value) > MOST_CACHED:
            raise OutlineTooLong
        item_node, element_of = node.item, node.element_of
        return tuple([(element_of(item), outline(item_node, item) if _has_inside(item) else ()) for item in value])
    parts: list[Any] = [*value]
    declared = node.fields
    for key, child_value in value.items():
        child_kind = child_value.__class__
        if (child_kind is dict or child_kind is list) and child_value:
            child = declared.get(key) or node.rest
            if child.shape > ATOMIC:
                parts.append((key, outline(child, child_value)))
    return tuple(parts)


def _has_inside(value: Any) -> bool:
    return bool(value) and value.__class__ in (dict, list)


@refusing_depth
def find_changes(old: Any, new: Any, schema: Schema) -> Changes:
    """Return the fields that differ between two values of one schema. Raise ValueError if an item lacks its key."""
    changes = Changes({}, {}, {})
    _compare_maps(structure(schema), old, new, *changes)
    return changes


def _compare_maps(
    node: MergeNode, old: dict[str, Any], new: dict[str, Any], added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    if old is new:
        return
    declared = node.fields
    for key, value in new.items():
        was = old.get(key, _MISSING)
        if was is value:
            continue
        kind = value.__class__
        if was is _MISSING:
            if kind is dict or kind is list:
                added["f:" + key] = everything(declared.get(key) or node.rest, value)
            else:
                added["f:" + key] = {}
        elif kind is dict or kind is list or was.__class__ is dict or was.__class__ is list:
            _compare(declared.get(key) or node.rest, "f:" + key, was, value, added, modified, removed)
        elif was != value or (kind is bool) is not (was.__class__ is bool):
            modified["f:" + key] = {}
    for key, value in old.items():
        if key not in new:
            removed["f:" + key] = everything(declared.get(key) or node.rest, value)


def _compare(
    node: MergeNode, element: str, old: Any, new: Any, added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    """Compare two values, of which at least one is a container."""
    give_way()
    if old == new and (not node.leaves_open or equal_json_types(old, new)):
        return  # Most of an object is unchanged, and == in C finds that faster than a walk.
    if node.shape == ANY:
        before, after = node.view_for(old), node.view_for(new)
        if before is not after:
            _compare(before, element, old, new, added, modified, removed)
        node = after
    if node.shape == MAP:
        compare: Callable[..., None] = _compare_maps
        olds: Any = old if old.__class__ is dict else {}
        news: Any = new if new.__class__ is dict else {}
    elif node.shape == LIST:
        compare = _compare_lists
        olds = old if old.__class__ is list else []
        news = new if new.__class__ is list else []
    else:
        modified[element] = {}
        return
    if not olds and not news:
        modified[element] = {}
        return
    changes: tuple[FieldSet, FieldSet, FieldSet] = ({}, {}, {})
    compare(node, olds, news, *changes)
    for below, part in zip(changes, (added, modified, removed), strict=True):
        if below:
            part[element] = below


def _compare_lists(
    node: MergeNode, old: list[Any], new: list[Any], added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    if old is new:
        return
    item_node = node.item
    olds, news = _by_element(node, old), _by_element(node, new)
    if len(olds) < len(old) or len(news) < len(new):
        return _compare_with_duplicates(node, old, new, added, modified, removed)
    for element, item in news.items():
        was = olds.get(element, _MISSING)
        if was is _MISSING:
            added[element] = everything(item_node, item)
        elif was is not item and item.__class__ is dict:
            _compare(item_node, element, was, item, added, modified, removed)
    for element, item in olds.items():
        if element not in news:
            removed[element] = everything(item_node, item)
    return None


def _by_element(node: MergeNode, items: list[Any]) -> dict[str, Any]:
    element_of = node.element_of
    return {element_of(item): item for item in items}


def _compare_with_duplicates(
    node: MergeNode, old: list[Any], new: list[Any], added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    """Compare items that share a key as one leaf: they cannot be matched one by one."""
    olds, news = _group_items(node, old), _group_items(node, new)
    for element in {**olds, **news}:
        before, after = olds.get(element, []), news.get(element, [])
        if len(before) <= 1 and len(after) <= 1:
            if not before:
                added[element] = everything(node.item, after[0])
            elif not after:
                removed[element] = everything(node.item, before[0])
            elif not equal_json(before[0], after[0]):
                _compare(node.item, element, before[0], after[0], added, modified, removed)
        elif len(before) >= 2 and len(after) >= 2:
            if not equal_json(before, after):
                modified[element] = {}
        elif len(before) >= 2:
            if after:
                added[element] = everything(node.item, after[0])
            removed[element] = {}
        else:
            if before:
                removed[element] = everything(node.item, before[0])
            added[element] = {}


def _group_items(node: MergeNode, items: list[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(node.element_of(item), []).append(item)
    return groups


def with_structs(fields: FieldSet, node: MergeNode) -> FieldSet:
    """Return the set with each declared field that has members below it as a member.

    A manager that drops all parts of a struct so drops the struct.
    """
    give_way()
    out: FieldSet = {}
    for element, below in fields.items():
        if not below or element == ".":
            out[element] = below
            continue
        kind, name = element[:2], element[2:]
        if kind == "f:" and node.is_map:
            child = node.fields.get(name)
            inner = with_structs(below, child or node.rest)
            out[element] = inner if child is None or "." in inner else {".": {}, **inner}
        elif kind == "k:" and node.is_list:
            out[element] = with_structs(below, node.item)
        else:
            out[element] = below
    return out


def collapse_atomic(fields: FieldSet, node: MergeNode) -> FieldSet:
    """Return the set after a schema change: the manager of part of a place that became atomic owns all of it."""
    give_way()
    out = fields
    for element, below in fields.items():
        if not below or element == ".":
            continue
        child = _child(node, element)
        if child is None or child.shape == ANY:
            continue
        now = {} if child.shape == ATOMIC else collapse_atomic(below, child)
        if now is not below:
            out = dict(out) if out is fields else out
            out[element] = now
    return out


def _child(node: MergeNode, element: str) -> MergeNode | None:
    if element.startswith("f:") and node.is_map:
        return node.fields.get(element[2:]) or node.element
    return node.item if node.is_list and element[:2] in ("k:", "v:") else None
