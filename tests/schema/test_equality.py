"""Equality is that of JSON."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.schema.equality import equal_ignoring_empty, equal_json, semantically_equal
from pinnace.schema.merge.changes import find_changes
from pinnace.schema.shape import Schema

_VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(_VALUES, _VALUES)
def test_values_are_the_same_if_they_are_written_the_same(first: Any, second: Any) -> None:
    written = [orjson.dumps(value, option=orjson.OPT_SORT_KEYS) for value in (first, second)]
    assert equal_json(first, second) == (written[0] == written[1])


@pytest.mark.parametrize(
    "schema",
    [
        Schema({"type": "object"}),
        Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        Schema(
            {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {"values": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ),
    ],
    ids=["nothing said", "kept", "kept below"],
)
def test_one_becomes_true_where_no_schema_says_what_stands_there(schema: Schema) -> None:
    old, new = ({"spec": {"values": {"on": value, "off": 0}}} for value in (1, True))
    result = find_changes(old, new, schema)
    assert result.modified == {"f:spec": {"f:values": {"f:on": {}}}}
    assert (result.added, result.removed) == ({}, {})


@pytest.mark.parametrize(
    ("value", "other", "same"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": None}, {}, True),
        ({"a": []}, {}, True),
        ({"a": {"b": None}}, {"a": {}}, True),
        ({"a": {}}, {}, False),
        ({"a": ""}, {}, False),
        ([{"a": None}], [{}], True),
        ([1], [1, 2], False),
    ],
)
def test_null_and_an_empty_list_mean_the_same_as_nothing(value: Any, other: Any, same: bool) -> None:
    assert semantically_equal(value, other) is same


@pytest.mark.parametrize(
    ("new", "old", "same"),
    [
        pytest.param({"a": []}, {}, True, id="an empty list says nothing"),
        pytest.param({"hostNetwork": False}, {}, True, id="a plain switch is off unless on"),
        pytest.param({"runAsUser": 0}, {}, False, id="zero may say something"),
        pytest.param({"a": [{"b": ""}]}, {"a": [{}]}, True, id="inside lists too"),
        pytest.param({"a": [1]}, {"a": [1, 2]}, False, id="a shorter list differs"),
    ],
)
def test_empty_values_make_no_difference(new: Any, old: Any, same: bool) -> None:
    assert equal_ignoring_empty(new, old) is same
    assert equal_ignoring_empty(old, new) is same
