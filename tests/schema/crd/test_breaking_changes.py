"""A schema that restricts an old one is reported; one that only extends it is not."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.schema.crd.compatibility import breaking_changes
from pinnace.schema.validation.explain import explain

TEXT: dict[str, Any] = {"type": "string"}
WHOLE: dict[str, Any] = {"type": "integer"}


def with_fields(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


BREAKING: list[tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = [
    (
        with_fields(a=with_fields(b=TEXT, c=TEXT)),
        with_fields(a=with_fields(b=TEXT)),
        [("a.c", "the field is removed; stored values of it will be dropped")],
    ),
    (TEXT, WHOLE, [("", "the type integer is narrower than string")]),
    ({"type": "number"}, WHOLE, [("", "the type integer is narrower than number")]),
    (
        {"x-kubernetes-int-or-string": True},
        TEXT,
        [("", "the type string is narrower than integer or string")],
    ),
    ({**TEXT, "nullable": True}, TEXT, [("", "null is no longer allowed")]),
    ({**TEXT, "enum": ["a", "b"]}, {**TEXT, "enum": ["b"]}, [("", 'the allowed values no longer include "a"')]),
    (TEXT, {**TEXT, "enum": ["a"]}, [("", 'only "a" are allowed from now on')]),
    (
        with_fields(a=TEXT),
        {**with_fields(a=TEXT), "required": ["a"]},
        [("a", "the field becomes required, and has no default")],
    ),
    ({**WHOLE, "maximum": 9}, {**WHOLE, "maximum": 5}, [("", "maximum is 5, and was 9")]),
    (WHOLE, {**WHOLE, "minimum": 1}, [("", "minimum is 1, and there was none")]),
    (
        {**WHOLE, "maximum": 9},
        {**WHOLE, "maximum": 9, "exclusiveMaximum": True},
        [("", "the maximum 9 itself is no longer allowed")],
    ),
    (WHOLE, {**WHOLE, "multipleOf": 2}, [("", "only multiples of 2 are allowed from now on")]),
    (
        {"type": "array", "items": with_fields(a=TEXT)},
        {"type": "array", "items": with_fields(a={**TEXT, "maxLength": 3})},
        [("[*].a", "maxLength is 3, and there was none")],
    ),
    (
        with_fields(m={"type": "object", "additionalProperties": TEXT}),
        with_fields(m={"type": "object", "additionalProperties": WHOLE}),
        [("m[*]", "the type integer is narrower than string")],
    ),
    (TEXT, {**TEXT, "pattern": "^a"}, [("", 'the pattern is "^a", and there was none')]),
    (TEXT, {**TEXT, "format": "date"}, [("", "the format is date, and there was none")]),
    (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        with_fields(a=TEXT),
        [
            ("", "unknown fields are no longer kept"),
            ("a", "the type string is narrower than any type"),
            ("a", "null is no longer allowed"),
        ],
    ),
    (
        {"type": "array", "items": TEXT},
        {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        [
            (
                "",
                "the list is of type set, and was of type atomic: it is merged in another way, "
                "and items may no longer repeat",
            )
        ],
    ),
    (with_fields(a=TEXT), {**with_fields(a=TEXT), "not": {"required": ["a"]}}, [("", "not asks for more than before")]),
    (TEXT, {**TEXT, "x-kubernetes-validations": [{"rule": "self != ''"}]}, [("", "there is a new rule: self != ''")]),
]

HARMLESS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (with_fields(a=TEXT), with_fields(a=TEXT, b=TEXT)),
    (WHOLE, {"type": "number"}),
    (TEXT, {"x-kubernetes-int-or-string": True}),
    (TEXT, {**TEXT, "nullable": True, "description": "new", "default": "a"}),
    ({**TEXT, "enum": ["a"]}, {**TEXT, "enum": ["a", "b"]}),
    ({**TEXT, "enum": ["a"]}, TEXT),
    ({**WHOLE, "maximum": 5, "minimum": 1}, {**WHOLE, "maximum": 9}),
    ({**with_fields(a=TEXT), "required": ["a"]}, with_fields(a=TEXT)),
    (with_fields(a=TEXT), {**with_fields(a={**TEXT, "default": "x"}), "required": ["a"]}),
    (with_fields(a=TEXT), {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ({**TEXT, "pattern": "^a"}, TEXT),
    ({**WHOLE, "format": "int32"}, {**WHOLE, "format": "int64"}),
    ({**TEXT, "anyOf": [{"maxLength": 1}]}, {**TEXT, "anyOf": [{"maxLength": 1}, {"minLength": 9}]}),
    ({**WHOLE, "multipleOf": 4}, {**WHOLE, "multipleOf": 2}),
]


@pytest.mark.parametrize(("old", "new", "expected"), BREAKING, ids=lambda value: orjson.dumps(value).decode()[:70])
def test_a_breaking_change_is_reported(old: Any, new: Any, expected: list[tuple[str, str]]) -> None:
    assert breaking_changes(old, new) == expected


@pytest.mark.parametrize(("old", "new"), HARMLESS, ids=lambda value: orjson.dumps(value).decode()[:70])
def test_a_compatible_change_is_not_reported(old: Any, new: Any) -> None:
    assert breaking_changes(old, new) == []


WORDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number"])},
    optional={
        "nullable": st.booleans(),
        "enum": st.lists(st.sampled_from(["a", "b", 1, 2]), min_size=1, max_size=3, unique=True),
        "maximum": st.integers(0, 3),
        "exclusiveMaximum": st.booleans(),
        "minimum": st.integers(0, 3),
        "maxLength": st.integers(0, 2),
        "minLength": st.integers(0, 2),
        "multipleOf": st.integers(1, 3),
        "pattern": st.sampled_from(["^a", "b$"]),
    },
)


@given(WORDS, WORDS, st.lists(st.none() | st.integers(0, 4) | st.sampled_from(["", "a", "ab", "abc"]), max_size=8))
def test_without_a_reported_change_valid_values_stay_valid(old: Any, new: Any, values: list[Any]) -> None:
    if not breaking_changes(old, new):
        assert not [value for value in values if not explain(old, value) and explain(new, value)]
