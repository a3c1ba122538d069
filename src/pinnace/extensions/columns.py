"""The columns that a definition adds to what kubectl prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pinnace.extensions.json_paths import compile_path, text_of
from pinnace.kinds import cells
from pinnace.model.objects import Object
from pinnace.model.resources import Column

NAME = Column(
    "Name",
    "string",
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically.",
    cells.name,
    format="name",
)
_AGE = {
    "name": "Age",
    "type": "date",
    "description": "CreationTimestamp is a timestamp representing the server time when this object was created.",
    "jsonPath": ".metadata.creationTimestamp",
}


def columns_of(said: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The name, then what the definition asks for; the age where it asks for nothing."""
    return (NAME, *(_column(one) for one in said or (_AGE,)))


def _column(said: Mapping[str, Any]) -> Column:
    path, type_ = str(said["jsonPath"]), str(said["type"])
    return Column(
        str(said["name"]),
        type_,
        str(said.get("description") or f"Custom resource definition column (in JSONPath format): {path}"),
        _cell(path, type_),
        int(said.get("priority") or 0),
        str(said.get("format") or ""),
    )


def _cell(path: str, type_: str) -> Callable[[Object, datetime], Any]:
    compiled: list[Callable[[Any], list[Any]]] = []  # Compiled when first printed: most columns never are.

    def value(obj: Object, now: datetime) -> Any:
        if not compiled:
            compiled.append(compile_path(path))
        found = compiled[0](obj)
        return _shown(found[0], type_, now) if found else None

    return value


def _shown(value: Any, type_: str, now: datetime) -> Any:
    match type_:
        case "string":
            return text_of(value)
        case "integer" if _is_number(value):
            return int(value)
        case "number" if _is_number(value):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            try:
                return cells.since(value, now)
            except (ValueError, TypeError):
                return "<invalid>"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
