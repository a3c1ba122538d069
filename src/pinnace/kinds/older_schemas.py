"""Derive the schema of an older version from the current one: optional fields, other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinnace.schema.shape import Schema

Change = Callable[[dict[str, Any]], dict[str, Any]]
ITEMS = "[]"


def at(schema: Schema, path: str, change: Change) -> Schema:
    """Return the schema with a change at a dotted path; `[]` steps into a list's items. The rest is shared."""
    steps = tuple(path.split(".")) if path else ()
    return Schema(_change_at(schema, steps, change), schema.resolve, schema.name)


def _change_at(schema: Schema, steps: tuple[str, ...], change: Change) -> dict[str, Any]:
    raw = dict(schema.raw)
    if not steps:
        raw = change(raw)
        if not raw.get("required", True):
            del raw["required"]  # Go writes no empty lists.
        return raw
    step, rest = steps[0], steps[1:]
    if step == ITEMS:
        if schema.items is not None:
            raw["items"] = _change_at(schema.items, rest, change)
        return raw
    child = schema.properties.get(step)
    if child is not None:
        raw["properties"] = {**raw["properties"], step: _change_at(child, rest, change)}
    return raw


def optional(*names: str) -> Change:
    """Return a change that makes fields optional."""

    def change(raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "required": [name for name in raw.get("required", ()) if name not in names]}

    return change


def with_fields(without: tuple[str, ...] = (), **fields: dict[str, Any]) -> Change:
    """Return a change that removes and adds fields."""

    def change(raw: dict[str, Any]) -> dict[str, Any]:
        kept = {name: child for name, child in raw.get("properties", {}).items() if name not in without}
        required = [name for name in raw.get("required", ()) if name not in without]
        return {**raw, "properties": {**kept, **fields}, "required": required}

    return change


def renamed(before: str, now: str) -> Change:
    """Return a change that gives the field `now` its old name `before`."""

    def change(raw: dict[str, Any]) -> dict[str, Any]:
        fields = {before if name == now else name: child for name, child in raw.get("properties", {}).items()}
        required = [before if name == now else name for name in raw.get("required", ())]
        return {**raw, "properties": fields, "required": required}

    return change
