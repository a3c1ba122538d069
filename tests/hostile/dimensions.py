"""The dimensions in which an object of a built-in kind can grow, found by walking the schemas: lists, maps and texts.

A struct that several kinds use is walked once: its fields are checked by the same code everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pinnace.model.resources import Resource
from pinnace.schema.shape import Schema

MOST_DEPTH = 12
ITEMS, CHARACTERS = 8_000, 400_000
"""The sizes of lists and maps, and of texts."""

Make = Callable[[int], Any]
"""Return a value of a size."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One field of one kind. `build` returns an object in which the field has a size."""

    resource: Resource
    path: str
    size: int
    build: Make

    def __str__(self) -> str:
        return f"{self.resource.kind.name} {self.path}"


def walk(resource: Resource, seen: set[tuple[str, str]]) -> Iterator[Dimension]:
    """Yield the dimensions of a kind. `seen` has the fields of structs that were walked before."""

    def place(value: Make) -> Make:
        return value

    yield from _walk(resource, resource.schema, "", place, seen, 0)


def _walk(
    resource: Resource, schema: Schema, path: str, place: Callable[[Make], Make], seen: set[tuple[str, str]], depth: int
) -> Iterator[Dimension]:
    if depth > MOST_DEPTH:
        return
    for name, child in schema.properties.items():
        field = (schema.name or f"{resource.kind.name}{path}", name)
        if field in seen or (not path and name in ("kind", "apiVersion", "status")):
            continue
        seen.add(field)
        yield from _dimension(resource, child, f"{path}.{name}", _in_struct(schema, name, place), seen, depth)


def _dimension(
    resource: Resource, schema: Schema, path: str, place: Callable[[Make], Make], seen: set[tuple[str, str]], depth: int
) -> Iterator[Dimension]:
    if schema.items is not None:
        item = schema.items
        yield Dimension(resource, f"{path}[]", ITEMS, place(lambda size: [sample(item, n) for n in range(size)]))
        yield from _dimension(
            resource, item, f"{path}[0]", lambda make: place(lambda size: [make(size)]), seen, depth + 1
        )
    elif schema.additional is not None:
        value = schema.additional
        yield Dimension(
            resource, f"{path}{{}}", ITEMS, place(lambda size: {f"k{n}": sample(value, n) for n in range(size)})
        )
        yield from _dimension(
            resource, value, f"{path}{{k}}", lambda make: place(lambda size: {"k": make(size)}), seen, depth + 1
        )
    elif schema.properties:
        yield from _walk(resource, schema, path, place, seen, depth + 1)
    elif schema.type == "string" or schema.is_quantity or schema.is_int_or_string:
        for text in ("a", "0") if schema.is_quantity else ("a",):
            yield Dimension(resource, f"{path} of {text}", CHARACTERS, place(_text_of(text)))


def _text_of(character: str) -> Make:
    return lambda size: character * size


def _in_struct(schema: Schema, name: str, place: Callable[[Make], Make]) -> Callable[[Make], Make]:
    """Return a function that puts the value of one field into a struct with the fields that it must have."""

    def put(make: Make) -> Make:
        others = {other: sample(schema.properties[other], 0) for other in schema.required if other != name}
        return place(lambda size: {**others, name: make(size)})

    return put


def sample(schema: Schema, number: int, depth: int = 0) -> Any:
    """Return a small value; values of different numbers have different names."""
    if schema.items is not None:
        return [sample(schema.items, number, depth + 1)] if depth < 4 else []
    if schema.additional is not None:
        return {}
    if schema.properties:
        wanted = {*schema.required, *schema.list_map_keys} | ({"name"} & schema.properties.keys())
        return {
            name: sample(child, number, depth + 1)
            for name, child in schema.properties.items()
            if name in wanted and depth < 6
        }
    if schema.is_quantity:
        return "1"
    return {"integer": number % 60_000 + 1, "number": 1.0, "boolean": True}.get(schema.type, f"n{number}")
