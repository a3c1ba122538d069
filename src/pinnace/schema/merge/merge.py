"""Structured merge: merge an applied configuration into an object, and remove fields from it, by a schema.

No function changes its arguments; results share parts with them, so treat both as frozen.
"""

from __future__ import annotations

from typing import Any

from pinnace.process.work_slices import give_way
from pinnace.schema.golang.text import format_syntax, format_value
from pinnace.schema.merge.field_sets import FieldSet, format_element, refusing_depth
from pinnace.schema.merge.structure import ATOMIC, LIST, MAP, MergeNode, structure
from pinnace.schema.shape import Schema

_GO_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string"}


@refusing_depth
def merge(live: Any, applied: Any, schema: Schema) -> Any:
    """Merge `applied` into `live`: remove nothing, leaves of `applied` win, items of associative lists match by key.

    Items are in the order of `applied`; those of `live` alone keep their place among them.
    Raise ValueError if `applied` has two items of one key, or one without a key.
    """
    return _merge(structure(schema), live, applied)


def _merge(node: MergeNode, live: Any, applied: Any) -> Any:
    give_way()
    node = node.view_for(applied)
    if node.shape == MAP:
        olds, news = (live if live.__class__ is dict else {}), (applied if applied.__class__ is dict else {})
        return _merge_maps(node, olds, news) if olds or news else applied
    if node.shape == LIST:
        old, new = (live if live.__class__ is list else []), (applied if applied.__class__ is list else [])
        return _merge_lists(node, old, new) if old or new else applied
    return applied


def _merge_maps(node: MergeNode, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    out = dict(live)
    declared = node.fields
    for key, value in applied.items():
        out[key] = _merge(declared.get(key) or node.rest, live[key], value) if key in live else value
    return out


def _merge_lists(node: MergeNode, live: list[Any], applied: list[Any]) -> list[Any]:
    news = index(node, applied)
    live_elements = [node.element_of(item) for item in live]
    olds: dict[str, Any] = {}
    for element, item in zip(live_elements, live, strict=True):
        olds[element] = None if element in olds else item  # With a duplicate key: it may be the wrong one.
    new_elements = list(news)
    shared = iter([element for element in new_elements if element in olds])
    awaited = next(shared, None)
    out: list[Any] = []
    taken: set[str] = set()

    def take(element: str) -> None:
        taken.add(element)
        value = news[element]
        out.append(_merge(node.item, olds[element], value) if olds.get(element) is not None else value)

    at_live = at_new = 0
    while at_live < len(live_elements) or at_new < len(new_elements):
        if at_live < len(live_elements) and at_new < len(new_elements):
            element = live_elements[at_live]
            if element == new_elements[at_new]:
                take(element)
                at_live, at_new, awaited = at_live + 1, at_new + 1, next(shared, None)
                continue
            if element in news and awaited is not None and awaited != element:
                at_live += 1  # In both, but at another place in the applied order.
                continue
        if at_live < len(live_elements):
            element = live_elements[at_live]
            if element not in news:
                out.append(live[at_live])
                at_live += 1
                continue
            if element in taken:
                at_live += 1
        if at_new < len(new_elements):
            element = new_elements[at_new]
            take(element)
            at_new += 1
            if awaited == element:
                awaited = next(shared, None)
    return out


def index(node: MergeNode, items: list[Any]) -> dict[str, Any]:
    """Return the items by their path element. Raise ValueError for a missing or duplicate key."""
    items_by_element: dict[str, Any] = {}
    for number, item in enumerate(items):
        try:
            element = node.element_of(item)
        except ValueError as err:
            raise ValueError(f"element {number}: {err}") from None
        if element in items_by_element:
            raise ValueError(f"duplicate entries for key {format_element(element)}")
        items_by_element[element] = item
    return items_by_element


@refusing_depth
def remove(value: Any, fields: FieldSet, schema: Schema) -> Any:
    """Return the value without the members of the set and everything below them.

    A place that is no member itself but loses everything below it becomes null, as on a real server: the kind decides
    what that means.
    """
    return _remove(structure(schema), value, fields)


def _remove(node: MergeNode, value: Any, fields: FieldSet) -> Any:
    if not fields or not value:
        return value
    give_way()
    node = node.view_for(value)
    if node.shape == MAP and value.__class__ is dict:
        left = {}
        for key, child in value.items():
            below = fields.get("f:" + key)
            if below is None:
                left[key] = child
            elif below and "." not in below:
                left[key] = _remove(node.fields.get(key) or node.rest, child, below)
        return left or None
    if node.shape == LIST and value.__class__ is list:
        items = []
        for item in value:
            below = fields.get(node.element_of(item))
            if below is None:
                items.append(item)
            elif below and "." not in below:
                items.append(_remove(node.item, item, below))
        return items or None
    return None if node.shape == ATOMIC else value


@refusing_depth
def errs(value: Any, schema: Schema) -> list[str]:
    """Return why a value cannot be applied: undeclared fields, wrong types, missing or duplicate keys.

    Messages are Kubernetes' own, each with its path.
    """
    errors: list[str] = []
    _check(structure(schema), value, "", errors)
    return errors


def join_errors(errors: list[str]) -> str:
    """Join several errors to one message."""
    return errors[0] if len(errors) == 1 else "\n".join(["errors:", *(f"  {err}" for err in errors)])


def _check(node: MergeNode, value: Any, path: str, errors: list[str]) -> None:
    prefix = f"{path}: " if path else ""
    if value is None:
        return
    give_way()
    if node.is_map and value.__class__ is dict:
        for key, child_value in value.items():
            child = node.fields.get(key) or node.element
            if child is None:
                errors.append(f"{path}.{key}: field not declared in schema")
                return
            _check(child, child_value, f"{path}.{key}", errors)
    elif node.is_list and value.__class__ is list:
        _check_items(node, value, path, errors)
    elif node.scalar:
        err = _check_scalar(node.scalar, value)
        if err:
            errors.append(prefix + err)
    else:
        errors.append(f"{prefix}expected {'map' if node.is_map else 'list'}, got &{{{format_value(value)}}}")


def _check_items(node: MergeNode, items: list[Any], path: str, errors: list[str]) -> None:
    prefix = f"{path}: " if path else ""
    seen: set[str] = set()
    for number, item in enumerate(items):
        if node.list_type == "atomic":
            _check(node.item, item, f"{path}[{number}]", errors)
            continue
        try:
            element = node.element_of(item)
        except ValueError as err:
            errors.append(f"{prefix}element {number}: {err}")
            return
        if element in seen:
            errors.append(f"{prefix}duplicate entries for key {format_element(element)}")
        seen.add(element)
        _check(node.item, item, path + format_element(element), errors)


def _check_scalar(wanted: str, value: Any) -> str:
    kind = value.__class__
    if wanted == "numeric" and kind not in (int, float):
        return f"expected numeric (int or float), got {_GO_TYPES.get(kind) or _container_type(value)}"
    if wanted == "string" and kind is not str:
        return f"expected string, got &value.valueUnstructured{{Value:{format_syntax(value)}}}"
    if wanted == "boolean" and kind is not bool:
        return f"expected boolean, got &{{{format_value(value)}}}"
    if wanted == "untyped" and kind in (dict, list):
        return f"expected any scalar, got &{{{format_value(value)}}}"
    return ""


def _container_type(value: Any) -> str:
    return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"
