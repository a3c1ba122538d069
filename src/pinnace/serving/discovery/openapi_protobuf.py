"""OpenAPI v2 as protobuf, which Go clients ask for: the messages of gnostic's OpenAPIv2.proto.

Only fields of Kubernetes' documents are written; keys without a protobuf field are left out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from pinnace.model.objects import Object
from pinnace.process.varint import encode_varint

Encode = Callable[[int, Any], bytes]
"""Write a value as the field of this number."""


def encode_document(document: Object, paths: Iterable[bytes] = (), schemas: Iterable[bytes] = ()) -> bytes:
    """Encode a document. Paths and schemas that are not in it are given as entries of JSON objects.

    Each is decoded on its own: decoding a large text at once would hold the interpreter's lock.
    """
    encoded = [_message(_DOCUMENT, document)]
    for number, (inner, encode), entries in ((8, (2, _of(_PATH)), paths), (9, (1, _schema), schemas)):
        fields = [field for entry in entries for field in _entries(inner, orjson.loads(b"{%b}" % entry), encode)]
        encoded += [_chunk(number, b"".join(fields))] if fields else []
    return b"".join(encoded)


def _chunk(number: int, payload: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(payload)) + payload


def _text(number: int, value: Any) -> bytes:
    return _chunk(number, str(value).encode("utf-8", "replace"))


def _texts(number: int, values: Any) -> bytes:
    return b"".join(_text(number, value) for value in values)


def _flag(number: int, value: Any) -> bytes:
    return encode_varint(number << 3) + b"\x01" if value else b""


def _count(number: int, value: Any) -> bytes:
    return encode_varint(number << 3) + encode_varint(int(value) & (1 << 64) - 1)


def _double(number: int, value: Any) -> bytes:
    return encode_varint(number << 3 | 1) + struct.pack("<d", value)


def _any(number: int, value: Any) -> bytes:
    return _chunk(number, _text(2, orjson.dumps(value, default=dict).decode()))  # The field holds YAML; JSON is YAML.


def _anys(number: int, values: Any) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _message(fields: dict[str, tuple[int, Encode]], value: Object) -> bytes:
    """Encode a message; the field `x-` takes the extensions."""
    parts = []
    for key, inner in value.items():
        known = fields.get(key)
        if known is not None:
            number, encode = known
            parts.append(encode(number, inner))
        elif key.startswith("x-") and "x-" in fields:
            parts.append(_chunk(fields["x-"][0], _text(1, key) + _any(2, inner)))
    return b"".join(parts)


def _of(fields: dict[str, tuple[int, Encode]]) -> Encode:
    return lambda number, value: _chunk(number, _message(fields, value))


def _entries(number: int, values: Object, encode: Encode) -> Iterator[bytes]:
    """Yield the entries of a map: messages with the key as field 1 and the value as field 2."""
    for key, value in values.items():
        yield _chunk(number, _text(1, key) + encode(2, value))


def _named_map(inner_number: int, encode: Encode) -> Encode:
    """Return the encoder of a map that is a message of its own."""
    return lambda number, values: _chunk(number, b"".join(_entries(inner_number, values, encode)))


def _wrap(*numbers: int, encode: Encode) -> Encode:
    """Return the encoder of a value inside messages that hold nothing else, the innermost last."""

    def encode_wrapped(number: int, value: Any) -> bytes:
        payload = encode(numbers[-1], value)
        for outer in reversed(numbers[:-1]):
            payload = _chunk(outer, payload)
        return _chunk(number, payload)

    return encode_wrapped


def _schema(number: int, value: Any) -> bytes:
    return _chunk(number, _message(_SCHEMA, value))


def _schemas(number: int, values: Any) -> bytes:
    return b"".join(_schema(number, value) for value in values)


def _additional(number: int, value: Any) -> bytes:
    return _chunk(number, _flag(2, value) if isinstance(value, bool) else _schema(1, value))


def _type(number: int, value: Any) -> bytes:
    return _chunk(number, _text(1, value))


def _parameters(number: int, values: Any) -> bytes:
    return b"".join(_parameter(number, value) for value in values)


def _parameter(number: int, value: Object) -> bytes:
    if value["in"] == "body":
        written = _chunk(1, _message(_BODY_PARAMETER, value))
    elif value["in"] == "path":
        written = _chunk(2, _chunk(4, _message(_PATH_PARAMETER, value)))
    else:
        written = _chunk(2, _chunk(3, _message(_QUERY_PARAMETER, value)))
    return _chunk(number, _chunk(1, written))


def _security(number: int, values: Any) -> bytes:
    strings: Encode = lambda inner, texts: _chunk(inner, _texts(1, texts))  # noqa: E731
    return b"".join(_chunk(number, b"".join(_entries(1, value, strings))) for value in values)


_extensions: Encode = _any  # A place in the tables; `_message` writes extensions itself.

_SCHEMA: dict[str, tuple[int, Encode]] = {
    "$ref": (1, _text), "format": (2, _text), "title": (3, _text), "description": (4, _text), "default": (5, _any),
    "multipleOf": (6, _double), "maximum": (7, _double), "exclusiveMaximum": (8, _flag), "minimum": (9, _double),
    "exclusiveMinimum": (10, _flag), "maxLength": (11, _count), "minLength": (12, _count), "pattern": (13, _text),
    "maxItems": (14, _count), "minItems": (15, _count), "uniqueItems": (16, _flag), "maxProperties": (17, _count),
    "minProperties": (18, _count), "required": (19, _texts), "enum": (20, _anys),
    "additionalProperties": (21, _additional), "type": (22, _type), "items": (23, _wrap(1, encode=_schema)),
    "allOf": (24, _schemas), "properties": (25, _named_map(1, _schema)), "x-": (31, _extensions),
}  # fmt: skip
_BODY_PARAMETER: dict[str, tuple[int, Encode]] = {
    "description": (1, _text), "name": (2, _text), "in": (3, _text), "required": (4, _flag), "schema": (5, _schema),
}  # fmt: skip
_PATH_PARAMETER: dict[str, tuple[int, Encode]] = {
    "required": (1, _flag), "in": (2, _text), "description": (3, _text), "name": (4, _text), "type": (5, _text),
    "uniqueItems": (19, _flag),
}  # fmt: skip
_QUERY_PARAMETER: dict[str, tuple[int, Encode]] = {
    "required": (1, _flag), "in": (2, _text), "description": (3, _text), "name": (4, _text), "type": (6, _text),
    "uniqueItems": (20, _flag),
}  # fmt: skip
_RESPONSE: dict[str, tuple[int, Encode]] = {"description": (1, _text), "schema": (2, _wrap(1, encode=_schema))}
_OPERATION: dict[str, tuple[int, Encode]] = {
    "tags": (1, _texts), "description": (3, _text), "operationId": (5, _text), "produces": (6, _texts),
    "consumes": (7, _texts), "parameters": (8, _parameters),
    "responses": (9, _named_map(1, _wrap(1, encode=_of(_RESPONSE)))), "schemes": (10, _texts), "x-": (13, _extensions),
}  # fmt: skip
_PATH: dict[str, tuple[int, Encode]] = {
    "get": (2, _of(_OPERATION)), "put": (3, _of(_OPERATION)), "post": (4, _of(_OPERATION)),
    "delete": (5, _of(_OPERATION)), "options": (6, _of(_OPERATION)), "head": (7, _of(_OPERATION)),
    "patch": (8, _of(_OPERATION)), "parameters": (9, _parameters), "x-": (10, _extensions),
}  # fmt: skip
_API_KEY: dict[str, tuple[int, Encode]] = {
    "type": (1, _text), "name": (2, _text), "in": (3, _text), "description": (4, _text),
}  # fmt: skip
_DOCUMENT: dict[str, tuple[int, Encode]] = {
    "swagger": (1, _text), "info": (2, _of({"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _named_map(2, _of(_PATH))), "definitions": (9, _named_map(1, _schema)), "security": (12, _security),
    "securityDefinitions": (13, _named_map(1, _wrap(2, encode=_of(_API_KEY)))),
}  # fmt: skip
