"""The fields of values, and how two values differ, compared with a real server's answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.merge.samples import CONFIG_MAP, CUSTOM, POD

from pinnace.schema.merge import field_sets
from pinnace.schema.merge.changes import collapse_atomic, find_changes, of
from pinnace.schema.merge.field_sets import FieldSet
from pinnace.schema.merge.structure import structure


def members(actual: FieldSet) -> set[tuple[str, ...]]:
    return set(field_sets.paths(actual))


OWNED = [
    ("entries of maps and the map's fields", CONFIG_MAP, {"data": {"a": "1"}}, {"f:data": {"f:a": {}}}),
    ("an empty map is a leaf", CONFIG_MAP, {"data": {}}, {"f:data": {}}),
    ("null is a leaf", CONFIG_MAP, {"data": None}, {"f:data": {}}),
    ("an atomic map is a leaf", POD, {"spec": {"nodeSelector": {"a": "b"}}}, {"f:spec": {"f:nodeSelector": {}}}),
    ("an empty associative list is nothing", POD, {"spec": {"containers": []}}, {}),
    (
        "items are members with their key, and default keys are filled in",
        POD,
        {"spec": {"containers": [{"name": "a", "command": ["x"], "ports": [{"containerPort": 80}]}]}},
        {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"a"}': {
                        ".": {},
                        "f:name": {},
                        "f:command": {},
                        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                    }
                }
            }
        },
    ),
    (
        "of duplicates only that they are there",
        POD,
        {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]}},
        {"f:spec": {"f:containers": {'k:{"name":"a"}': {}}}},
    ),
    (
        "items of a set by value",
        POD,
        {"metadata": {"finalizers": ["a/b", 'c"<d']}},
        {"f:metadata": {"f:finalizers": {'v:"a/b"': {}, 'v:"c\\"\\u003cd"': {}}}},
    ),
    (
        "what no schema knows is owned key by key, lists as a whole",
        CUSTOM,
        {"spec": {"any": {"deep": {"x": 1, "l": [{"a": 1}]}}, "tags": ["t"]}},
        {
            "f:spec": {
                "f:any": {".": {}, "f:deep": {".": {}, "f:x": {}, "f:l": {}}},
                "f:tags": {'v:"t"': {}},
            }
        },
    ),
]


@pytest.mark.parametrize(("schema", "value", "owned"), [case[1:] for case in OWNED], ids=[case[0] for case in OWNED])
def test_an_applied_value_owns(schema: Any, value: Any, owned: FieldSet) -> None:
    assert of(value, schema) == owned


CHANGED: list[Any] = [
    (
        "a new map is added with every place in it",
        {},
        {"data": {"a": "1"}},
        ({"f:data": {".": {}, "f:a": {}}}, {}, {}),
    ),
    ("one entry is modified", {"data": {"a": "1"}}, {"data": {"a": "2"}}, ({}, {"f:data": {"f:a": {}}}, {})),
    (
        "a map that is gone is removed with every place in it",
        {"data": {"a": "1"}},
        {},
        ({}, {}, {"f:data": {".": {}, "f:a": {}}}),
    ),
    ("null is not a map", {"data": None}, {"data": {}}, ({}, {"f:data": {}}, {})),
    ("null that becomes a map was there", {"data": None}, {"data": {"a": "1"}}, ({"f:data": {"f:a": {}}}, {}, {})),
    ("true is not one", {"immutable": True}, {"immutable": 1}, ({}, {"f:immutable": {}}, {})),
    ("one is one", {"immutable": 1}, {"immutable": 1.0}, ({}, {}, {})),
]


@pytest.mark.parametrize(("old", "new", "changes"), [case[1:] for case in CHANGED], ids=[case[0] for case in CHANGED])
def test_changes_between_two_values_are_found(old: Any, new: Any, changes: Any) -> None:
    assert tuple(find_changes(old, new, CONFIG_MAP)) == changes


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(containers)}}


def at_containers(below: FieldSet) -> FieldSet:
    return {"f:spec": {"f:containers": below}} if below else {}


A, B = 'k:{"name":"a"}', 'k:{"name":"b"}'

LISTS = [
    ("order alone", [{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}], {}, {}, {}),
    ("an item more", [{"name": "a"}], [{"name": "a"}, {"name": "b"}], {B: {".": {}, "f:name": {}}}, {}, {}),
    ("an item less", [{"name": "a"}, {"name": "b"}], [{"name": "a"}], {}, {}, {B: {".": {}, "f:name": {}}}),
    (
        "a field of one",
        [{"name": "a", "image": "1"}],
        [{"name": "a", "image": "2", "command": []}],
        {A: {"f:command": {}}},
        {A: {"f:image": {}}},
        {},
    ),
    ("duplicates come", [{"name": "a"}], [{"name": "a"}, {"name": "a"}], {A: {}}, {}, {A: {".": {}, "f:name": {}}}),
    ("duplicates go", [{"name": "a"}, {"name": "a"}], [{"name": "a"}], {A: {".": {}, "f:name": {}}}, {}, {A: {}}),
    (
        "duplicates differ",
        [{"name": "a"}, {"name": "a"}],
        [{"name": "a"}, {"name": "a", "image": "x"}],
        {},
        {A: {}},
        {},
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "added", "modified", "removed"), [c[1:] for c in LISTS], ids=[c[0] for c in LISTS]
)
def test_changes_between_two_lists_are_found(
    old: Any, new: Any, added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    expected = tuple(map(at_containers, (added, modified, removed)))
    assert tuple(find_changes(pod(*old), pod(*new), POD)) == expected


def test_an_untyped_value_that_changes_its_kind_is_modified_and_its_parts_come_or_go() -> None:
    changes = find_changes({"spec": {"x": "scalar"}}, {"spec": {"x": {"a": 1}}}, CUSTOM)
    assert tuple(changes) == ({"f:spec": {"f:x": {"f:a": {}}}}, {"f:spec": {"f:x": {}}}, {})
    back = find_changes({"spec": {"x": {"a": 1}}}, {"spec": {"x": "scalar"}}, CUSTOM)
    assert tuple(back) == ({}, {"f:spec": {"f:x": {}}}, {"f:spec": {"f:x": {"f:a": {}}}})


json_values = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["p", "q"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)
custom_objects = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "tags": st.lists(st.sampled_from(["x", "y", "z"]), max_size=3),
                "parts": st.lists(
                    st.fixed_dictionaries({"id": st.integers(1, 3)}, optional={"note": st.sampled_from("mn")}),
                    max_size=3,
                ),
                "free": json_values,
            },
        )
    }
)


@given(custom_objects, custom_objects)
def test_changes_are_disjoint_and_turn_round_when_the_values_do(old: dict[str, Any], new: dict[str, Any]) -> None:
    added, modified, removed = find_changes(old, new, CUSTOM)
    back_added, back_modified, back_removed = find_changes(new, old, CUSTOM)
    assert (members(added), members(modified), members(removed)) == (
        members(back_removed),
        members(back_modified),
        members(back_added),
    )
    assert not any(find_changes(old, old, CUSTOM))


def test_a_place_that_became_atomic_is_owned_as_a_whole() -> None:
    node = structure(POD)
    before: FieldSet = {"f:spec": {"f:nodeSelector": {".": {}, "f:a": {}}, "f:hostname": {}}}
    assert collapse_atomic(before, node) == {"f:spec": {"f:nodeSelector": {}, "f:hostname": {}}}


def test_depth_beyond_reason_is_a_value_error() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="nested too deeply"):
        of({"spec": deep}, CUSTOM)
