"""OpenAPI v2 as protobuf has the same content as the JSON document."""

from __future__ import annotations

from typing import Any

from pinnace.serving.discovery.openapi_protobuf import encode_document


def _fields(message: bytes) -> list[tuple[int, Any]]:
    """The fields of a protobuf message, in order: number, and a count or bytes."""
    at = 0
    results: list[tuple[int, Any]] = []

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            results.append((key >> 3, varint()))
        else:
            length = varint() if key & 7 == 2 else 8
            results.append((key >> 3, message[at : at + length]))
            at += length
    return results


def _at(message: bytes, *numbers: int) -> Any:
    """Return the value at a path of field numbers."""
    value: Any = message
    for number in numbers:
        value = dict(_fields(value))[number]
    return value


def test_a_schema_is_written_field_by_field() -> None:
    schema = {
        "description": "d" * 200,
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "array", "items": {"$ref": "#/definitions/B"}, "minItems": 300}},
        "additionalProperties": {"type": "string", "format": "byte"},
        "x-kubernetes-group-version-kind": [{"group": "g"}],
        "nullable": True,
    }
    message = encode_document({"definitions": {"A": schema}})
    assert _at(message, 9, 1, 1) == b"A"
    written = _at(message, 9, 1, 2)
    assert [number for number, _ in _fields(written)] == [4, 22, 19, 25, 21, 31]
    assert _at(written, 4) == b"d" * 200
    assert _at(written, 22, 1) == b"object"
    assert _at(written, 25, 1, 1) == b"a"
    assert _at(written, 25, 1, 2, 23, 1, 1) == b"#/definitions/B"
    assert _at(written, 25, 1, 2, 15) == 300
    assert _at(written, 21, 1, 2) == b"byte"
    assert _at(written, 31, 1) == b"x-kubernetes-group-version-kind"
    assert _at(written, 31, 2, 2) == b'[{"group":"g"}]'


def test_an_operation_is_written_with_its_parameters_and_responses() -> None:
    operation = {
        "operationId": "create",
        "parameters": [
            {"name": "body", "in": "body", "required": True, "schema": {"$ref": "#/definitions/A"}},
        ],
        "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/A"}}},
    }
    shared = [{"name": "namespace", "in": "path", "required": True, "type": "string"}]
    item = {"post": operation, "parameters": shared}
    message = encode_document({"swagger": "2.0", "paths": {"/a": item}})
    path = _at(message, 8, 2)
    assert _at(path, 1) == b"/a"
    assert _at(path, 2, 4, 5) == b"create"
    assert _at(path, 2, 4, 8, 1, 1, 5, 1) == b"#/definitions/A"
    assert _at(path, 2, 4, 9, 1, 1) == b"200"
    assert _at(path, 2, 4, 9, 1, 2, 1, 2, 1, 1) == b"#/definitions/A"
    assert _at(path, 2, 9, 1, 2, 4, 4) == b"namespace"


def test_security_is_written() -> None:
    definition = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
    message = encode_document({"securityDefinitions": definition, "security": [{"BearerToken": []}]})
    assert _at(message, 13, 1, 2, 2, 2) == b"authorization"
    assert _at(message, 12, 1, 1) == b"BearerToken"
