"""The errors of a CustomResourceDefinition's schema. The table holds the answers of a real kube-apiserver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from pinnace.model import names
from pinnace.model.metadata import validate_metadata
from pinnace.schema.crd.definition import strictness_after, unknown_formats, validate_schema
from pinnace.schema.crd.field_paths import place_of
from pinnace.schema.crd.structural import StructuralCondition, non_structural_condition
from pinnace.schema.field_errors import FieldError

CASES = orjson.loads((Path(__file__).parent / "schema_cases.json").read_bytes())


def errors_inside(obj: dict[str, Any], path: str) -> list[FieldError]:
    metadata = {"name": "fakename", **obj.get("metadata", {})}
    rule = names.path_segment
    return validate_metadata({"metadata": metadata}, namespaced="namespace" in metadata, name_rule=rule, path=path)


@pytest.mark.parametrize("case", [pytest.param(case, id=str(number)) for number, case in enumerate(CASES)])
def test_a_schema_has_the_errors_that_kubernetes_finds(case: dict[str, Any]) -> None:
    errs = validate_schema(case["schema"], "$", has_status=case["hasStatus"], validate_metadata=errors_inside)
    assert sorted(map(list, errs)) == sorted(case["errors"])


def holding(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}


def test_the_rules_of_a_default_are_asked_only_if_its_values_are_right() -> None:
    command = []

    def validate_rule(schema: Any, value: Any, path: str, is_object: bool) -> list[FieldError]:
        command.append((value, path, is_object))
        return [FieldError(path, "FieldValueInvalid", "no")]

    schema = holding(right={"type": "string", "default": "a"}, wrong={"type": "string", "default": 1})
    errs = validate_schema(schema, "$", validate_rule=validate_rule)
    here = "$.properties[spec].properties[right].default"
    assert command == [("a", here, False)]
    assert [err.field for err in errs] == [here, "$.properties[spec].properties[wrong].default"]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(holding(a={}), id="a type is missing"),
        pytest.param(holding(a={"type": "foo"}), id="a type is unknown"),
        pytest.param(holding(a={"type": "object", "default": {"b": 1}}), id="a default has unknown fields"),
        pytest.param(
            holding(a={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
            id="the items of a set can be merged",
        ),
        pytest.param(
            holding(
                a={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": True}}
            ),
            id="an item of a set can be null",
        ),
    ],
)
def test_an_update_is_not_held_to_a_rule_that_was_broken_before(broken: dict[str, Any]) -> None:
    assert validate_schema(broken, "$")
    assert not validate_schema(broken, "$", strictness=strictness_after([broken]))


def test_all_rules_hold_after_a_sound_definition() -> None:
    strict = strictness_after([holding(a={"type": "string", "default": "x"})])
    assert validate_schema(holding(a={}), "$", strictness=strict)


def test_formats_that_are_not_checked_are_named_once() -> None:
    schema = holding(
        a={"type": "string", "format": "date-time"},
        b={"type": "string", "format": "color"},
        c={"type": "array", "items": {"type": "integer", "format": "uint8"}},
        d={"type": "object", "additionalProperties": {"type": "string", "format": "color"}},
        e={"type": "boolean", "format": "date"},
    )
    assert unknown_formats(schema) == ["color", "uint8", "date"]


def test_the_condition_names_every_version_that_is_not_structural() -> None:
    sound, unsound = holding(a={"type": "string"}), {"type": "object", "properties": {"a": {}, "b": {}}}
    assert non_structural_condition([("v1", sound), ("v2", None)], preserves_unknown=False) is None
    missing = "Required value: must not be empty for specified object fields"
    here = "spec.versions[1].schema.openAPIV3Schema.properties"
    assert non_structural_condition([("v1", sound), ("v2", unsound)], preserves_unknown=False) == StructuralCondition(
        "True", "Violations", f"[{here}[a].type: {missing}, {here}[b].type: {missing}]"
    )
    assert non_structural_condition([("v1", sound)], preserves_unknown=True) == StructuralCondition(
        "True", "Violations", "spec.preserveUnknownFields: Invalid value: true: must be false"
    )
    assert non_structural_condition([("v1", {"$ref": "x"})], preserves_unknown=False) == StructuralCondition(
        "Unknown",
        "StructuralError",
        "failed to check validation schema for version v1: OpenAPIV3Schema '$ref' is not supported",
    )


PLACES = holding(a={"type": "string"}, m={"type": "object", "additionalProperties": {"type": "integer"}})


@pytest.mark.parametrize(
    ("path", "message", "type"),
    [
        (".spec.a", "spec.a", "string"),
        (".spec['a']", "spec.a", "string"),
        (".spec.m.key", "spec.m[key]", "integer"),
        (".spec.m['k\\'y.z']", "spec.m[k'y.z]", "integer"),
    ],
)
def test_a_path_leads_to_a_schema(path: str, message: str, type: str) -> None:
    place = place_of(path, PLACES)
    assert (place.path, place.schema and place.schema["type"]) == (message, type)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".spec.b", "does not refer to a valid field"),
        (".spec.a.b", "does not refer to a valid field"),
        ("spec", "expected [ or . but got: spec"),
        (".spec.", "unexpected end of JSON path"),
        (".spec[0]", "expected single quoted string but got 0"),
        (".spec['a'", "unexpected end of JSON path"),
        (".spec['a'.", "expected ] but got ."),
        (r".spec['\q']", r"invalid string literal: invalid escape char \q"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        place_of(path, PLACES)


def test_brackets_can_be_ruled_out() -> None:
    with pytest.raises(ValueError, match="array notation is not allowed"):
        place_of(".spec['a']", PLACES, allows_brackets=False)
