"""The errors of a custom resource's values. The tables hold the answers of a real kube-apiserver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.model import names
from pinnace.model.field_errors import FieldError
from pinnace.model.metadata import validate_metadata
from pinnace.schema.crd.prune_and_default import PrunerAndDefaulter
from pinnace.schema.validation.explain import explain
from pinnace.schema.validation.validate import Compiler, SchemaValidator

CASES = orjson.loads((Path(__file__).parent / "value_cases.json").read_bytes())
RATCHETED = orjson.loads((Path(__file__).parent / "ratchet_cases.json").read_bytes())


def errors_inside(obj: dict[str, Any], path: str) -> list[FieldError]:
    metadata = {"name": "fakename", **obj.get("metadata", {})}
    rule = names.path_segment
    return validate_metadata({"metadata": metadata}, namespaced="namespace" in metadata, name_rule=rule, path=path)


def holding(schema: dict[str, Any]) -> dict[str, Any]:
    """A kind whose spec has one field."""
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": {"f": schema}}}}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        pytest.param(
            case["schema"], value["value"], value["errors"], id=f"{number}-{orjson.dumps(value['value']).decode()}"
        )
        for number, case in enumerate(CASES)
        for value in case["values"]
    ],
)
def test_a_value_has_the_errors_that_kubernetes_finds(schema: Any, value: Any, expected: list[list[str]]) -> None:
    obj = {"apiVersion": "a.example.com/v1", "kind": "A", "metadata": {"name": "x"}, "spec": {"f": value}}
    kind = holding(schema)
    PrunerAndDefaulter(kind).prune_and_default(obj)
    assert sorted(map(list, SchemaValidator(kind, validate_metadata=errors_inside).validate(obj))) == sorted(expected)


def test_errors_of_a_status_start_with_its_path() -> None:
    status = SchemaValidator(
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["m"]}, under="status"
    )
    assert [str(err) for err in status.validate({"n": "x"})] == [
        'status.n: Invalid value: "string": n in body must be of type integer: "string"',
        "status.m: Required value",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(case["change"], case["errors"], id=orjson.dumps(case["change"]).decode())
        for case in RATCHETED["updates"]
    ],
)
def test_an_update_is_not_blamed_for_what_it_does_not_touch(change: Any, expected: list[list[str]]) -> None:
    """The schema became strict after the old object was stored, which would be rejected almost everywhere today."""
    kind, old = RATCHETED["schema"], {"spec": RATCHETED["old"]}
    new = {"spec": {**RATCHETED["old"], **change}}
    PrunerAndDefaulter(kind).prune_and_default(new)
    errs = SchemaValidator(kind).validate_update(new, old)
    assert sorted(map(list, errs)) == expected


LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3, width=16) | st.sampled_from(["", "a", "ab", "1"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "maximum": st.integers(-2, 2),
        "minimum": st.integers(-2, 2) | st.floats(-2, 2, width=16),
        "exclusiveMinimum": st.booleans(),
        "multipleOf": st.integers(1, 2),
        "maxLength": st.integers(0, 2),
        "minLength": st.integers(0, 2),
        "pattern": st.sampled_from(["^a", "b$", "1"]),
        "format": st.sampled_from(["int32", "date", "duration", "float", "nonsense"]),
        "enum": st.lists(LEAVES, min_size=1, max_size=3),
        "required": st.lists(st.sampled_from("abc"), max_size=2),
        "maxItems": st.integers(0, 2),
        "minItems": st.integers(0, 2),
        "maxProperties": st.integers(0, 2),
        "minProperties": st.integers(0, 2),
    },
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "object", "array"])


def _with_inside(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    inside = st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "nullable": st.booleans(),
            "x-kubernetes-int-or-string": st.just(True),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
        },
    )
    return st.builds(lambda bounds, rest: {**bounds, **rest}, BOUNDS, inside)


SCHEMAS = _with_inside(st.recursive(BOUNDS, _with_inside, max_leaves=4))


@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=4))
def test_the_compiled_check_and_the_explanation_agree(schema: dict[str, Any], values: list[Any]) -> None:
    fits = Compiler().fits(schema)
    for value in values:
        assert fits(value) == (not explain(schema, value)), value
