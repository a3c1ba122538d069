"""How Go encodes empty fields of the built-in kinds: a table beside this file, read when the first body needs it.

A line is a type and its fields, `core.v1.PodCondition type="" -message lastProbeTime=null`: a field with a value is
always written, and has this value when absent; one with a minus is left out when empty. All others (pointers in Go) are
written as given. The table is that of 1.36 with the new types of 1.37; a type is named by package, version and name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import orjson

from pinnace.kinds.golang.tables import row_of_schema
from pinnace.model.objects import Object
from pinnace.schema.golang.decode import NO_EMPTY_FIELDS, EmptyFields
from pinnace.schema.shape import Schema

TABLE = Path(__file__).with_suffix(".txt")


@cache
def of_type(name: str) -> EmptyFields:
    """Return the fields of a type, by the name of its schema such as io.k8s.api.core.v1.PodCondition; none for types
    that are not in the table."""
    line = row_of_schema(TABLE, name)
    if line is None:
        return NO_EMPTY_FIELDS
    written: list[tuple[str, object]] = []
    left_out: set[str] = set()
    for text in line.split():
        if text[0] == "-":
            left_out.add(text[1:])
        else:
            field, _, zero = text.partition("=")
            written.append((field, orjson.loads(zero)))
    return EmptyFields(tuple(written), frozenset(left_out))


def empty(schema: Schema) -> Object:
    """Return the zero value of the type as Go writes it."""
    made: Object = {}
    for field, zero in of_type(schema.name).written:
        child = schema.properties.get(field)
        if child is not None:
            made[field] = empty(child) if zero == {} else zero
    return made


def empty_status(schema_of: Callable[[], Schema]) -> Callable[[], Object | None]:
    """Return the status of a new object; None if it has none."""

    def status() -> Object | None:
        schema = schema_of()
        is_written = any(field == "status" for field, _ in of_type(schema.name).written)
        return empty(schema.properties["status"]) if is_written else None

    return status
