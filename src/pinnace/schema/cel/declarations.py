"""Declare a schema's values for CEL: their types, largest sizes, and the spelling of their fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pinnace.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    object_type,
)
from pinnace.schema.shape import Schema

# The most bytes of a request: no value can be larger.
MAXIMUM_REQUEST = 3 * 1024 * 1024
_UNBOUNDED_STRING = MAXIMUM_REQUEST - 2


@dataclass(eq=False)
class Declaration:
    """One node of a schema as declared for CEL."""

    type: Type
    schema: Schema
    # The most characters, items or entries of a value; 0 where size means nothing.
    most: int = 0
    # The fewest bytes of a value in JSON.
    least_bytes: int = 0
    fields: dict[str, Declaration] = field(default_factory=dict)
    # The fields' names in the document where they differ in CEL: __dash__ for -.
    spellings: dict[str, str] = field(default_factory=dict)
    key: Declaration | None = None
    element: Declaration | None = None
    # Whether an entry selected by name has the largest size of an entry, rather than an unlimited one.
    bounds_entries: bool = False

    @cached_property
    def needs_decoding(self) -> bool:
        """Whether values of the document must be decoded for CEL: timestamps are strings there, 1 may be a double."""
        if self.type.kind in ("double", "timestamp", "duration", "bytes"):
            return True
        if self.element is not None:
            return self.element.needs_decoding
        return any(each.needs_decoding for each in self.fields.values())

    @cached_property
    def holds_nulls(self) -> bool:
        """Whether lists or maps in the value may hold null. A field that is null counts as absent."""
        if self.element is not None:
            return self.element.schema.nullable or self.element.holds_nulls
        return any(field.holds_nulls for field in self.fields.values())

    @cached_property
    def is_unordered(self) -> bool:
        """Whether equality of two values differs from equality of their documents: sets have no order."""
        if self.type.kind == "list" and self.schema.list_type in ("set", "map"):
            return True
        if self.element is not None:
            return self.element.is_unordered
        return any(each.is_unordered for each in self.fields.values())

    def spelling(self, name: str) -> str:
        return self.spellings.get(name, name)


def declaration_of(schema: Schema, *, is_root: bool = False, name: str = "selfType") -> Declaration | None:
    """Return the declaration of a schema; None if CEL cannot use such values.

    `is_root`: the schema is that of a whole resource, whose kind and metadata.name are always declared.
    """
    if schema.is_int_or_string:
        most = _most_characters(schema) if "maxLength" in schema.raw else _UNBOUNDED_STRING
        return Declaration(DYN, schema, most, 1)
    if is_root:
        schema = _with_metadata(schema)
    match schema.type:
        case "array":
            return _list(schema, name)
        case "object":
            return _map(schema, name) if schema.additional is not None else _object(schema, name)
        case "string":
            return _string(schema)
        case "boolean":
            return Declaration(BOOL, schema, 0, 4)
        case "number":
            return Declaration(DOUBLE, schema, 0, 1)
        case "integer":
            return Declaration(INT, schema, 0, 1)
    return None


def _list(schema: Schema, name: str) -> Declaration | None:
    if schema.items is None:
        return None
    items = declaration_of(schema.items, is_root=schema.items.is_embedded_resource, name=f"{name}.@idx")
    if items is None:
        return None
    stated = schema.raw.get("maxItems")
    most = max(0, int(stated)) if stated is not None else (MAXIMUM_REQUEST - 2) // (items.least_bytes + 1)
    return Declaration(list_of(items.type), schema, most, 2, element=items)


def _map(schema: Schema, name: str) -> Declaration | None:
    additional = schema.additional
    assert additional is not None
    values = declaration_of(additional, is_root=additional.is_embedded_resource, name=f"{name}.@elem")
    if values is None:
        return None
    stated = schema.raw.get("maxProperties")
    most = max(0, int(stated)) if stated is not None else (MAXIMUM_REQUEST - 2) // (values.least_bytes + 6)
    # Kubernetes counts keys with length zero; to accept the same rules, so does this.
    key = Declaration(STRING, Schema({"type": "string"}), 0, 2)
    return Declaration(map_of(STRING, values.type), schema, most, 2, key=key, element=values)


def _object(schema: Schema, name: str) -> Declaration:
    fields: dict[str, Declaration] = {}
    spellings: dict[str, str] = {}
    least = 2
    for spelled, child in schema.properties.items():
        escaped = escape(spelled)
        declared = declaration_of(child, is_root=child.is_embedded_resource, name=f"{name}.{escaped or spelled}")
        if declared is None:
            continue
        if escaped is not None:
            fields[escaped] = declared
            if escaped != spelled:
                spellings[escaped] = spelled
                if spelled in RESERVED and spelled not in fields:
                    fields[spelled] = declared  # Both self.namespace and self.__namespace__ are valid.
        if spelled in schema.required and child.default is None:
            least += len(spelled.encode()) + declared.least_bytes + 4
    declaration = Declaration(DYN, schema, 0, least, fields=fields, spellings=spellings)
    declaration.type = object_type(name, declaration)
    return declaration


def _string(schema: Schema) -> Declaration:
    match schema.format:
        case "byte":
            stated = schema.raw.get("maxLength")
            return Declaration(BYTES, schema, max(0, int(stated)) if stated is not None else _UNBOUNDED_STRING, 2)
        case "duration":
            return Declaration(DURATION, schema, 32, 3)
        case "date":
            return Declaration(TIMESTAMP, schema, 12, 12)
        case "date-time":
            return Declaration(TIMESTAMP, schema, 32, 21)
    if "maxLength" in schema.raw:
        return Declaration(STRING, schema, _most_characters(schema), 2)
    choices = schema.raw.get("enum")
    if choices:
        return Declaration(STRING, schema, max((len(str(each).encode()) for each in choices), default=0), 2)
    return Declaration(STRING, schema, _UNBOUNDED_STRING, 2)


def _most_characters(schema: Schema) -> int:
    # A character has up to four bytes, and costs are counted in bytes.
    return max(0, int(schema.raw["maxLength"])) * 4


_TEXT: dict[str, Any] = {"type": "string"}
_METADATA = {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}}


def _with_metadata(schema: Schema) -> Schema:
    """Return the schema of a resource in which rules may use kind, apiVersion and the names, and no other metadata."""
    raw = dict(schema.raw)
    raw["properties"] = {**raw.get("properties", {}), "kind": _TEXT, "apiVersion": _TEXT, "metadata": _METADATA}
    return Schema(raw, schema.resolve, schema.name)


RESERVED = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_EXPANDED = re.compile(r"__|[-./]")
_EXPANSIONS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ALLOWED = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")


def escape(name: str) -> str | None:
    """Return a field's name as CEL writes it; None if it cannot."""
    if name in RESERVED:
        return f"__{name}__"
    if _ALLOWED.fullmatch(name) is None:
        return None
    return _EXPANDED.sub(lambda match: _EXPANSIONS[match.group()], name)
