"""The table of field numbers is whole: every field of every built-in kind is in it, with its type."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pinnace.kinds.catalog import resources
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.golang.field_numbers import fields_of, message_of, messages
from pinnace.kinds.runtime_config import RuntimeConfig
from pinnace.model.objects import Kind
from pinnace.schema.golang.protobuf import LIST, MAP, TYPES, ProtobufField
from pinnace.schema.shape import Schema

UNIONS = {f"apiextensions.v1.JSONSchemaPropsOr{what}" for what in ("Array", "Bool", "StringArray")}
MATCH_CONDITION = "admissionregistration.v1alpha1.MatchCondition"
RENAMED = {
    MATCH_CONDITION: "admissionregistration.v1.MatchCondition",
    # Since 1.26 and 1.29 these fields have types of their own, with the same numbers.
    "core.v1.LoadBalancerStatus": "networking.v1.IngressLoadBalancerStatus",
    "core.v1.TypedLocalObjectReference": "core.v1.TypedObjectReference",
    "core.v1.ResourceRequirements": "core.v1.VolumeResourceRequirements",
}
SCALARS = {"string": "string", "boolean": "bool", "number": "double"}


def _json_fields(message: str) -> Iterator[ProtobufField]:
    """The fields as JSON shows them."""
    for field in fields_of(message):
        if field.name:
            yield field
        else:
            yield from _json_fields(field.type)


def _type(schema: Schema) -> str:
    if schema.preserves_unknown:
        return "raw"
    if schema.is_int_or_string:
        return "intorstring"
    if schema.is_quantity:
        return "quantity"
    if schema.format == "date-time":
        return "microtime" if schema.go_name == "MicroTime" else "time"
    if schema.format == "byte":
        return "bytes"
    if schema.type == "array":
        return "strings"
    if schema.type == "integer":
        return schema.format
    return SCALARS.get(schema.type) or _message(schema.name)


def _message(name: str) -> str:
    return ".".join(name.split(".")[-3:])


def _expected(schema: Schema) -> tuple[str, str]:
    if schema.type == "array" and schema.items is not None:
        return _type(schema.items), LIST
    if schema.additional is not None and not schema.name:
        return _type(schema.additional), MAP
    return _type(schema), ""


def _reachable(definitions: Definitions, name: str, seen: set[str]) -> None:
    if name in seen:
        return
    seen.add(name)
    for child in definitions.schema(name).properties.values():
        for schema in (child, child.items, child.additional):
            if schema is not None and schema.name and schema.properties:
                _reachable(definitions, schema.name, seen)


def _errs(name: str, schema: Schema) -> Iterator[str]:
    message = _message(name)
    fields = {field.name: field for field in _json_fields(RENAMED[message] if message == MATCH_CONDITION else message)}
    for place, child in schema.properties.items():
        field = fields.get(place)
        if field is None:
            if place not in ("apiVersion", "kind"):
                yield f"{message}.{place} is missing"
            continue
        type, shape = _expected(child)
        is_right = field.type in (type, RENAMED.get(type)) or field.type in UNIONS
        if not is_right or field.shape != shape:
            yield f"{message}.{place} is {field.shape}{field.type}, expected {shape}{type}"


@pytest.mark.parametrize("minor", minors())
def test_every_field_of_every_kind_has_its_number_and_type(minor: str) -> None:
    definitions = Definitions.load(minor)
    names: set[str] = set()
    for resource in resources(definitions, old_versions=False, runtime_config=RuntimeConfig.parse("api/all=true")):
        _reachable(definitions, str(definitions.name_of_kind(resource.kind)), names)
    assert names
    assert not [err for name in names for err in _errs(name, definitions.schema(name))]


@pytest.mark.parametrize("minor", minors())
def test_every_served_kind_can_be_sent_as_protobuf(minor: str) -> None:
    served = list(resources(Definitions.load(minor)))
    kinds = {resource.kind for resource in served} | {sub.kind for resource in served for sub in resource.subresources}
    unknown = {kind for kind in kinds if message_of(kind) is None and not kind.name.endswith("Options")}
    assert not unknown


def test_the_table_is_closed_and_unambiguous() -> None:
    known = set(messages())
    for message in known:
        fields = fields_of(message)
        assert len({field.number for field in fields}) == len(fields), message
        names = [field.name for field in _json_fields(message)]
        assert len(set(names)) == len(names), message
        assert {field.type for field in fields} <= known | TYPES, message


def test_custom_kinds_have_no_message() -> None:
    assert message_of(Kind("core.example.com", "v1", "Pod")) is None
    assert message_of(Kind("", "v1", "Boat")) is None
