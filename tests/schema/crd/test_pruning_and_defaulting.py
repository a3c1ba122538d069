"""Pruning and defaulting by schema. The table holds a real server's answers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.growth import is_linear

from pinnace.schema.crd.prune_and_default import PrunerAndDefaulter, unknown_fields
from pinnace.schema.golang import decode
from pinnace.schema.golang.decode import DecodeError
from pinnace.schema.shape import Schema

TEXT = {"type": "string"}
SPEC: dict[str, Any] = {
    "a": {"type": "string", "default": "da"},
    "b": {"type": "integer"},
    "n": {"type": "string", "nullable": True, "default": "dn"},
    "o": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}, "y": TEXT}},
    "od": {
        "type": "object",
        "default": {"y": "q"},
        "properties": {"x": {"type": "integer", "default": 1}, "y": TEXT},
    },
    "l": {
        "type": "array",
        "items": {"type": "object", "properties": {"k": {"type": "string", "default": "dk"}, "z": {"type": "integer"}}},
    },
    "ln": {"type": "array", "items": {"type": "string", "default": "di"}},
    "m": {
        "type": "object",
        "additionalProperties": {"type": "object", "properties": {"p": TEXT, "q": {"type": "string", "default": "dq"}}},
    },
    "ms": {"type": "object", "additionalProperties": TEXT},
    "mt": {"type": "object", "additionalProperties": True},
    "pu": {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"in": {"type": "object", "properties": {"x": TEXT}}},
    },
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "er": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "properties": {"spec": {"type": "object", "properties": {"w": TEXT}}},
    },
    "erp": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "la": {"type": "array", "items": {"type": "array", "items": {"type": "object", "properties": {"v": TEXT}}}},
    "pl": {
        "type": "array",
        "x-kubernetes-preserve-unknown-fields": True,
        "items": {"type": "object", "properties": {"v": TEXT}},
    },
}
KIND = {"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}}}
DEFAULTS = {"a": "da", "n": "dn", "od": {"x": 1, "y": "q"}}
POD = {"apiVersion": "v1", "kind": "Pod"}
METADATA = decode.compile(
    Schema(
        {
            "type": "object",
            "properties": {"name": TEXT, "labels": {"type": "object", "additionalProperties": TEXT}},
        },
        name="io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    ),
    quantity=str,
)

SETTLED = [
    ({}, {}, []),
    ({"a": None, "b": None, "n": None}, {"n": None}, []),
    ({"zz": 1, "o": {"u": 1}, "od": None}, {"o": {"x": 1}}, ["spec.o.u", "spec.zz"]),
    ({"o": {}}, {"o": {"x": 1}}, []),
    ({"od": {}}, {"od": {"x": 1}}, []),
    ({"l": [{}, {"k": None, "z": None, "u": 1}]}, {"l": [{"k": "dk"}, {"k": "dk"}]}, ["spec.l[1].u"]),
    ({"ln": ["x", None]}, {"ln": ["x", "di"]}, []),
    (
        {"m": {"a": {}, "b": {"p": "1", "u": 2}, "c": None}},
        {"m": {"a": {"q": "dq"}, "b": {"p": "1", "q": "dq"}}},
        ["spec.m.b.u"],
    ),
    ({"ms": {"a": None, "b": "x"}}, {"ms": {"b": "x"}}, []),
    (
        {"mt": {"a": {"b": {"c": 1}}, "d": 1, "e": [{"f": 1}]}},
        {"mt": {"a": {}, "d": 1, "e": [{}]}},
        ["spec.mt.a.b", "spec.mt.e[0].f"],
    ),
    (
        {"pu": {"u": {"v": None}, "in": {"x": "1", "y": 2}}},
        {"pu": {"u": {"v": None}, "in": {"x": "1"}}},
        ["spec.pu.in.y"],
    ),
    ({"any": {"a": {"b": None}}}, {"any": {"a": {"b": None}}}, []),
    (
        {"er": {**POD, "metadata": {"name": "x", "foo": 1}, "spec": {"w": "1", "z": 2}, "status": {}}},
        {"er": {**POD, "metadata": {"name": "x"}, "spec": {"w": "1"}}},
        ["spec.er.spec.z", "spec.er.status", "spec.er.metadata.foo"],
    ),
    (
        {"erp": {**POD, "metadata": {"name": "x", "foo": 1}, "x": {"y": 1}}},
        {"erp": {**POD, "metadata": {"name": "x"}, "x": {"y": 1}}},
        ["spec.erp.metadata.foo"],
    ),
    ({"la": [[{"v": "1", "u": 2}]]}, {"la": [[{"v": "1"}]]}, ["spec.la[0][0].u"]),
    ({"pl": [{"v": "1", "u": {"a": 1}}]}, {"pl": [{"v": "1", "u": {"a": 1}}]}, []),
    ({"b": {"x": 1}}, {"b": {}}, ["spec.b.x"]),
    ({"o": [{"x": 1}]}, {"o": [{}]}, ["spec.o[0].x"]),
]


def with_spec(spec: Any) -> dict[str, Any]:
    return {"apiVersion": "a.example.com/v1", "kind": "A", "metadata": {"name": "x", "odd": 1}, "spec": spec}


@pytest.mark.parametrize(("spec", "expected", "unknown"), SETTLED, ids=lambda value: orjson.dumps(value).decode()[:60])
def test_an_object_becomes_what_its_schema_says(spec: Any, expected: dict[str, Any], unknown: list[str]) -> None:
    obj = with_spec(orjson.loads(orjson.dumps(spec)))
    assert PrunerAndDefaulter(KIND, metadata=METADATA).prune_and_default(obj) == unknown
    assert obj == with_spec({**DEFAULTS, **expected})


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ({**POD, "apiVersion": 5}, "spec.erp.apiVersion: Invalid value: 5: must be a string"),
        (
            {**POD, "metadata": {"labels": "x"}},
            'spec.erp.metadata: Invalid value: {"labels":"x"}: json: cannot unmarshal string into Go struct field '
            "ObjectMeta.labels of type map[string]string",
        ),
        (
            {**POD, "metadata": "x"},
            'spec.erp.metadata: Invalid value: "x": json: cannot unmarshal string into Go value of type v1.ObjectMeta',
        ),
    ],
)
def test_malformed_metadata_inside_is_refused_when_written_and_dropped_when_read(inside: Any, why: str) -> None:
    pruner = PrunerAndDefaulter(KIND, metadata=METADATA)
    with pytest.raises(DecodeError) as refused:
        pruner.prune_and_default(with_spec({"erp": dict(inside)}))
    assert str(refused.value) == why
    stored = with_spec({"erp": orjson.loads(orjson.dumps(inside))})
    pruner.prune_and_default_stored(stored)
    assert "labels" not in stored["spec"]["erp"].get("metadata", {})


def test_defaults_can_come_without_pruning() -> None:
    obj = with_spec({"zz": {"y": 1}, "o": {"u": [1]}, "a": None, "b": None})
    PrunerAndDefaulter(KIND).default(obj)
    assert obj["spec"] == {**DEFAULTS, "zz": {"y": 1}, "o": {"u": [1], "x": 1}, "b": None}


def test_unknown_fields_can_go_without_defaults_coming() -> None:
    obj = with_spec({"zz": {"y": 1}, "o": {"u": [1]}, "a": None, "b": None})
    PrunerAndDefaulter(KIND).prune(obj)
    assert obj["spec"] == {"o": {}, "a": None, "b": None}


def test_where_nothing_has_a_default_nothing_is_looked_at() -> None:
    pruner = PrunerAndDefaulter({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {}}}}})
    obj = {"spec": {"a": None, "b": {"c": None}}}
    pruner.default(obj)
    assert obj == {"spec": {"a": None, "b": {"c": None}}}


def test_whole_numbers_lose_their_point() -> None:
    number, text = {"type": "number"}, {"type": "string"}
    spec = {"n": number, "i": {"type": "integer"}, "l": {"type": "array", "items": number}, "s": text}
    pruner = PrunerAndDefaulter({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}})
    obj = {"spec": {"n": 3.0, "i": 2.0, "l": [1.0, 1.5, 1e300], "s": 4.0}}
    pruner.prune_and_default(obj)
    assert orjson.dumps(obj["spec"]) == b'{"n":3,"i":2,"l":[1,1.5,1e+300],"s":4.0}'


def test_each_object_gets_a_default_of_its_own() -> None:
    pruner, first, other = PrunerAndDefaulter(KIND), with_spec({}), with_spec({})
    pruner.prune_and_default(first)
    pruner.prune_and_default(other)
    first["spec"]["od"]["y"] = "changed"
    assert other["spec"]["od"]["y"] == "q"


def test_unknown_fields_can_be_asked_for_without_a_change() -> None:
    value = {"a": {"b": 1}}
    assert unknown_fields({"type": "object", "properties": {"a": {"type": "object"}}}, value) == ["a.b"]
    assert value == {"a": {"b": 1}}


VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["x", "y"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SPEC, "x", "k", "zz"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*SPEC, "zz"]), VALUES, max_size=6))
def test_an_object_that_was_pruned_and_defaulted_does_not_change_again(spec: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {**SPEC, "er": {}}}
    pruner = PrunerAndDefaulter({"type": "object", "properties": {"spec": schema}})
    obj = with_spec({key: value for key, value in spec.items() if key != "erp"})
    pruner.prune_and_default(obj)
    once = orjson.loads(orjson.dumps(obj))
    assert pruner.prune_and_default(obj) == []
    assert obj == once
    pruner.prune_and_default_stored(obj)
    assert obj == once


@pytest.mark.parametrize("place", ["spec", "list", "map"])
def test_time_is_linear_in_the_unknown_fields(place: str) -> None:
    inside = {"type": "object", "properties": {"known": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {
            "spec": inside,
            "list": {"type": "array", "items": inside},
            "map": {"type": "object", "additionalProperties": inside},
        },
    }

    def objects(count: int) -> dict[str, Any]:
        by_name: dict[str, dict[str, Any]] = {
            "spec": {"spec": {f"unknown{number}": 1 for number in range(count)}},
            "list": {"list": [{"unknown": 1} for _ in range(count)]},
            "map": {"map": {f"k{number}": {"unknown": 1} for number in range(count)}},
        }
        return by_name[place]

    pruner = PrunerAndDefaulter(schema)
    assert len(pruner.prune_and_default(objects(1_000))) == 1_000
    assert is_linear(
        lambda encoded: pruner.prune_and_default(orjson.loads(encoded)), lambda n: orjson.dumps(objects(n)), 20_000
    )
