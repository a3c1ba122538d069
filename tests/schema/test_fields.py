"""Field sets behave as sets of paths, and say of values what Kubernetes says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.samples import CONFIG_MAP, CUSTOM, POD

from pinnace.schema import fields
from pinnace.schema.fields import FieldSet
from pinnace.schema.structure import structure

elements = st.sampled_from(["f:a", "f:b", 'k:{"n":"x"}', 'v:"y"'])
paths = st.lists(elements, min_size=1, max_size=4).map(tuple)
sets = st.lists(paths, max_size=8).map(lambda found: fields.of_paths(*found))


def members(found: FieldSet) -> set[tuple[str, ...]]:
    return set(fields.paths(found))


def is_in_one_form(found: FieldSet) -> bool:
    return all(below != {".": {}} and is_in_one_form(below) for below in found.values())


@given(sets, sets)
def test_the_algebra_is_that_of_sets_of_paths(a: FieldSet, b: FieldSet) -> None:
    assert members(fields.union(a, b)) == members(a) | members(b)
    assert members(fields.intersection(a, b)) == members(a) & members(b)
    assert members(fields.difference(a, b)) == members(a) - members(b)
    below_b = {path for path in members(a) if any(path[: len(above)] == above for above in members(b))}
    assert members(fields.recursive_difference(a, b)) == members(a) - below_b


@given(sets, sets)
def test_results_are_in_the_one_form_in_which_equal_sets_are_equal_dicts(a: FieldSet, b: FieldSet) -> None:
    for result in (fields.union(a, b), fields.intersection(a, b), fields.difference(a, b)):
        assert is_in_one_form(result)
        assert result == fields.of_paths(*members(result))
    assert is_in_one_form(fields.recursive_difference(a, b))


@given(sets)
def test_a_set_survives_being_written_and_read(a: FieldSet) -> None:
    assert fields.parse(fields.ordered(a)) == a
    assert all(fields.contains(a, path) for path in members(a))


def test_elements_are_written_in_the_order_of_what_they_say() -> None:
    found = fields.ordered(
        {
            'k:{"port":443,"protocol":"TCP"}': {},
            "f:b": {},
            'k:{"port":80,"protocol":"UDP"}': {},
            'k:{"port":80,"protocol":"TCP"}': {},
            "f:a": {"f:x": {}, ".": {}},
        }
    )
    assert list(found) == [
        "f:a",
        "f:b",
        'k:{"port":80,"protocol":"TCP"}',
        'k:{"port":80,"protocol":"UDP"}',
        'k:{"port":443,"protocol":"TCP"}',
    ]
    assert list(found["f:a"]) == [".", "f:x"]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (("f:spec", "f:containers", 'k:{"name":"nginx"}', "f:image"), '.spec.containers[name="nginx"].image'),
        (("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), '.ports[containerPort=80,protocol="TCP"]'),
        (("f:finalizers", 'v:"a/b"'), '.finalizers[="a/b"]'),
        (("f:list", "i:3"), ".list[3]"),
    ],
)
def test_paths_are_shown_as_messages_show_them(path: tuple[str, ...], shown: str) -> None:
    assert fields.shown_path(path) == shown


@pytest.mark.parametrize("sent", [[], {"f": {}}, {"fa": {}}, {"f:a": 1}, {"k:{": {}}])
def test_what_is_no_set_is_refused(sent: Any) -> None:
    with pytest.raises(ValueError):
        fields.parse(sent)


def test_elements_of_a_kind_yet_unknown_are_dropped() -> None:
    assert fields.parse({"z:new": {}, "f:a": {".": {}}}) == {"f:a": {}}


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
    assert fields.of(value, schema) == owned


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
def test_between_two_values(old: Any, new: Any, changes: Any) -> None:
    assert tuple(fields.changed(old, new, CONFIG_MAP)) == changes


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
def test_between_two_lists(old: Any, new: Any, added: FieldSet, modified: FieldSet, removed: FieldSet) -> None:
    expected = tuple(map(at_containers, (added, modified, removed)))
    assert tuple(fields.changed(pod(*old), pod(*new), POD)) == expected


def test_an_untyped_value_that_changes_its_kind_is_modified_and_its_parts_come_or_go() -> None:
    changes = fields.changed({"spec": {"x": "scalar"}}, {"spec": {"x": {"a": 1}}}, CUSTOM)
    assert tuple(changes) == ({"f:spec": {"f:x": {"f:a": {}}}}, {"f:spec": {"f:x": {}}}, {})
    back = fields.changed({"spec": {"x": {"a": 1}}}, {"spec": {"x": "scalar"}}, CUSTOM)
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
    added, modified, removed = fields.changed(old, new, CUSTOM)
    back_added, back_modified, back_removed = fields.changed(new, old, CUSTOM)
    assert (members(added), members(modified), members(removed)) == (
        members(back_removed),
        members(back_modified),
        members(back_added),
    )
    assert fields.changed(old, old, CUSTOM).is_none


def test_a_place_that_became_atomic_is_owned_as_a_whole() -> None:
    node = structure(POD)
    before: FieldSet = {"f:spec": {"f:nodeSelector": {".": {}, "f:a": {}}, "f:hostname": {}}}
    assert fields.settled(before, node) == {"f:spec": {"f:nodeSelector": {}, "f:hostname": {}}}


def test_depth_beyond_reason_is_a_value_error() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="nested too deeply"):
        fields.of({"spec": deep}, CUSTOM)
