"""The columns that a definition adds to what kubectl prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pinnace.kinds import cells
from pinnace.model.jsonpath import Cell, JsonPathError, column
from pinnace.model.objects import Object
from pinnace.model.resources import Column

NAME = Column(
    "Name",
    "string",
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    cells.name,
    format="name",
)
_AGE = {
    "name": "Age",
    "type": "date",
    "description": (
        "CreationTimestamp is a timestamp representing the server time when this object was created. It is not "
        "guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It "
        "is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More "
        "info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
    ),
    "jsonPath": ".metadata.creationTimestamp",
}


def columns_of(said: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return the columns: the name, then those of the definition, or the age if it has none."""
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


def _cell(path: str, type_: str) -> Cell:
    compiled: list[Cell] = []  # Compiled when first printed: most columns never are.

    def value(obj: Object, now: datetime) -> Any:
        if not compiled:
            compiled.append(_compile(path, type_))
        return compiled[0](obj, now)

    return value


def _compile(path: str, type_: str) -> Cell:
    try:
        return column(path, type_, since=cells.since)
    except JsonPathError:
        return lambda obj, now: None  # Kubernetes accepts such a path when it is written, and shows nothing.
