"""Decode values of a document to CEL values where an expression uses them.

A document has no timestamps, durations or bytes, only strings; and it may write 1 for the double 1.0. Whole objects are
never converted: each value is decoded where an expression uses it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from pinnace.schema.cel.declarations import Declaration
from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.times import parse_date, parse_timestamp, parse_worded_duration
from pinnace.schema.cel.tree import CelCall, CelNode, Comprehension, Ident, Literal, Select, children
from pinnace.schema.cel.types import is_optional
from pinnace.schema.cel.values import Duration, Optional, Timestamp, equals, some

Scope = Mapping[str, Declaration | None]
Decode = Callable[[Any], Any]


def annotate(node: CelNode, scope: Scope) -> None:
    """Set the declaration of each node whose value comes undecoded from a document."""
    match node:
        case Ident():
            node.declaration = scope.get(node.name)
        case Select():
            annotate(node.operand, scope)
            if not node.is_test:
                node.declaration = _part(node.operand.declaration, node.field_name)
        case CelCall(function="_?._", arguments=[operand, Literal() as name]):
            annotate(operand, scope)
            node.declaration = _part(operand.declaration, name.value)
        case CelCall(function="_[_]" | "_[?_]", target=None):
            _annotate_all(node.arguments, scope)
            whole = node.arguments[0].declaration
            node.declaration = whole.element if whole is not None else None
        case CelCall(function="_?_:_"):
            _annotate_all(node.arguments, scope)
            _, truthy, falsy = node.arguments
            if truthy.declaration is falsy.declaration:
                node.declaration = truthy.declaration
        case Comprehension():
            _annotate_loop(node, scope)
        case _:
            _annotate_all(list(children(node)), scope)


def _annotate_all(nodes: list[CelNode], scope: Scope) -> None:
    for node in nodes:
        annotate(node, scope)


def _annotate_loop(node: Comprehension, scope: Scope) -> None:
    annotate(node.range, scope)
    annotate(node.initial, scope)
    ranged = node.range.declaration
    element = ranged.element if ranged is not None else None
    is_map = ranged is not None and ranged.key is not None
    variables = {node.variable: None if is_map or node.second else element}
    if node.second:
        variables[node.second] = element
    outer = {**scope, node.accumulator: node.initial.declaration if node.is_binding else None}
    inner = {**outer, **variables}
    annotate(node.condition, inner)
    annotate(node.step, inner)
    annotate(node.result, outer)
    node.declaration = node.result.declaration if node.is_binding else None


def _part(whole: Declaration | None, name: str) -> Declaration | None:
    if whole is None:
        return None
    return whole.element if whole.element is not None else whole.fields.get(name)


def spelling(node: CelNode, name: str) -> str:
    """Return the document's name of a field that CEL writes as `name`."""
    type_ = node.type.parameters[0] if is_optional(node.type) else node.type
    return type_.declaration.spelling(name) if type_.declaration is not None else name


def may_be_null(node: CelNode, name: str) -> bool:
    """Return whether the schema allows null for a field of the node's value."""
    type_ = node.type.parameters[0] if is_optional(node.type) else node.type
    declared = type_.declaration.fields.get(name) if type_.declaration is not None else None
    return declared is not None and declared.schema.nullable


def node_decoder(node: CelNode) -> Decode | None:
    """Return the decoder of the node's value; None if it needs none."""
    if node.declaration is None or not node.declaration.needs_decoding:
        return None
    decode = decoder(node.declaration)
    if not is_optional(node.type):
        return decode

    def decode_content(value: Any) -> Any:
        return some(decode(value.content)) if type(value) is Optional and value.present else value

    return decode_content


def decoder(declaration: Declaration) -> Decode:
    """Return a function from a value of the document to the CEL value. Null stays null."""
    match declaration.type.kind:
        case "double":
            return decode_double
        case "timestamp":
            return decode_date if declaration.schema.format == "date" else decode_timestamp
        case "duration":
            return decode_duration
        case "bytes":
            return decode_bytes
    if not declaration.needs_decoding:
        return _as_is
    if declaration.element is not None:
        decode = decoder(declaration.element)
        if declaration.key is not None:
            return lambda value: {key: decode(each) for key, each in value.items()} if type(value) is dict else value
        return lambda value: [decode(each) for each in value] if type(value) is list else value
    fields = {
        declaration.spelling(name): decoder(each) for name, each in declaration.fields.items() if each.needs_decoding
    }

    def decode_object(value: Any) -> Any:
        if type(value) is not dict:
            return value
        return {key: fields[key](each) if key in fields else each for key, each in value.items()}

    return decode_object


def _as_is(value: Any) -> Any:
    return value


def decode_double(value: Any) -> Any:
    return float(value) if type(value) is int else value


def decode_timestamp(value: Any) -> Timestamp | Any:
    if type(value) is not str:
        return value
    try:
        return parse_timestamp(value, zone_needed=False) if value else Timestamp(0)
    except ValueError as error:
        raise CelError(f"Invalid date-time formatted string {value}: {error}") from None


def decode_date(value: Any) -> Timestamp | Any:
    if type(value) is not str:
        return value
    try:
        return parse_date(value)
    except ValueError as error:
        raise CelError(f"Invalid date formatted string {value}: {error}") from None


def decode_duration(value: Any) -> Duration | Any:
    if type(value) is not str:
        return value
    try:
        return parse_worded_duration(value)
    except ValueError as error:
        raise CelError(f"Invalid duration {value}: {error}") from None


def decode_bytes(value: Any) -> bytes | Any:
    if type(value) is not str:
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CelError(f"Invalid byte formatted string {value}: {error}") from None


def equality(declaration: Declaration) -> Callable[[Any, Any], bool]:
    """Return the equality of two documents of one declaration: sets and lists of type map have no order."""
    if not declaration.is_unordered:
        decode = decoder(declaration)
        return lambda left, right: equals(decode(left), decode(right))
    element = declaration.element
    if element is None:
        return _object_equality(declaration)
    same = equality(element)
    if declaration.key is not None:
        return lambda left, right: (
            left.keys() == right.keys() and all(same(each, right[key]) for key, each in left.items())
        )
    return _list_equality(declaration, same)


def _object_equality(declaration: Declaration) -> Callable[[Any, Any], bool]:
    fields = {declaration.spelling(name): equality(each) for name, each in declaration.fields.items()}

    def same_object(left: Any, right: Any) -> bool:
        if left.keys() != right.keys():
            return False
        return all(fields.get(key, equals)(each, right[key]) for key, each in left.items())

    return same_object


def _list_equality(declaration: Declaration, same: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    match declaration.schema.list_type:
        case "set":
            return lambda left, right: (
                len(left) == len(right) and all(any(same(each, other) for other in left) for each in right)
            )
        case "map":
            keys = declaration.schema.list_map_keys

            def same_entries(left: Any, right: Any) -> bool:
                known = {tuple(entry.get(key) for key in keys): entry for entry in left}
                return len(left) == len(right) and all(
                    (place := tuple(entry.get(key) for key in keys)) in known and same(known[place], entry)
                    for entry in right
                )

            return same_entries
    return lambda left, right: len(left) == len(right) and all(map(same, left, right))


def _unite(left: list[Any], right: list[Any]) -> list[Any]:
    known: Collection[Any] = left
    with suppress(TypeError):  # Items that are lists or maps are compared one by one.
        known = set(left)
    return [*left, *(each for each in right if each not in known)]


def addition(declaration: Declaration) -> Callable[[Any, Any], Any] | None:
    """Return how two lists of one declaration are added; None for plain concatenation."""
    keys = declaration.schema.list_map_keys
    match declaration.schema.list_type if declaration.type.kind == "list" else "":
        case "set":
            return _unite
        case "map":

            def merge(left: Any, right: Any) -> Any:
                places = {tuple(entry.get(key) for key in keys): place for place, entry in enumerate(left)}
                made = list(left)
                for entry in right:
                    place = places.get(tuple(entry.get(key) for key in keys))
                    if place is None:
                        made.append(entry)
                    else:
                        made[place] = entry
                return made

            return merge
    return None
