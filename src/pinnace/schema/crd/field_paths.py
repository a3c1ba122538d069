"""Simple paths into a schema, such as .spec.color: of selectable fields, and `fieldPath` of CEL rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pinnace.schema.shape import Raw

_TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|'.*|[.\[\]]|[^.\[\]]+", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class SchemaPlace(NamedTuple):
    """The target of a path: the fields on the way, the path as in error messages, and the schema there."""

    fields: tuple[str, ...]
    path: str
    schema: Raw | None


def place_of(path: str, schema: Raw, *, allows_brackets: bool = True) -> SchemaPlace:
    """Follow a path through a schema. Raise ValueError with Kubernetes' message."""
    tokens = iter(_TOKEN.findall(path))
    fields: list[str] = []
    written = ""
    here: Raw | None = schema
    for token in tokens:
        match token:
            case "[" if not allows_brackets:
                raise ValueError("array notation is not allowed")
            case "[":
                name = _unquote(_next(tokens))
            case ".":
                name = _next(tokens)
            case _:
                raise ValueError(f"expected [ or . but got: {token}")
        here, is_key = _step(here, name)
        written += f"[{name}]" if is_key else f".{name}" if written else name
        fields.append(name)
        if token == "[" and (closing := _next(tokens)) != "]":
            raise ValueError(f"expected ] but got {closing}")
    return SchemaPlace(tuple(fields), written, here)


def _next(tokens: Iterator[str]) -> str:
    for token in tokens:
        return token
    raise ValueError("unexpected end of JSON path")


def _unquote(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise ValueError(f"expected single quoted string but got {token}")

    def plain(escape: re.Match[str]) -> str:
        if escape[1] not in _ESCAPED:
            raise ValueError(f"invalid string literal: invalid escape char {escape[0]}")
        return _ESCAPED[escape[1]]

    return _ESCAPE.sub(plain, token[1:-1])


def _step(schema: Raw | None, name: str) -> tuple[Raw | None, bool]:
    """Return the schema of the field, and whether the name is a key of a map."""
    properties, additional = (schema or {}).get("properties"), (schema or {}).get("additionalProperties")
    if properties:
        if name not in properties:
            raise ValueError("does not refer to a valid field")
        return properties[name], False
    if additional is not None and additional is not False:
        return (additional if isinstance(additional, Mapping) else None), True
    raise ValueError("does not refer to a valid field")
