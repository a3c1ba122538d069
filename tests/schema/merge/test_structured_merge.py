"""Structured merge lays one value over another as Kubernetes does, and takes fields out again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.merge.samples import CONFIG_MAP, CUSTOM, POD
from tests.schema.merge.test_changed_fields import custom_objects, members

from pinnace.schema.merge import field_sets
from pinnace.schema.merge.changes import find_changes, of
from pinnace.schema.merge.merge import errs, join_errors, merge, remove


def names(merged: dict[str, Any]) -> list[str]:
    return [item["name"] for item in merged["spec"]["containers"]]


def pod(*containers: str | dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": c} if isinstance(c, str) else c for c in containers]}}


MERGED = [
    ("maps by key", {"data": {"a": "1", "b": "2"}}, {"data": {"b": "3", "c": "4"}}, {"a": "1", "b": "3", "c": "4"}),
    ("null keeps a map that has something", {"data": {"a": "1"}}, {"data": None}, {"a": "1"}),
    ("null replaces one that has nothing", {"data": {}}, {"data": None}, None),
]


@pytest.mark.parametrize(("live", "applied", "data"), [case[1:] for case in MERGED], ids=[case[0] for case in MERGED])
def test_maps_are_merged_by_key(live: Any, applied: Any, data: Any) -> None:
    assert merge(live, applied, CONFIG_MAP)["data"] == data


@pytest.mark.parametrize(
    ("live", "applied", "order"),
    [
        ("abc", "b", "abc"),
        ("abc", "cba", "cba"),
        ("abc", "x", "abcx"),
        ("abc", "bx", "abcx"),
        ("abc", "xb", "axbc"),
        ("abcd", "dxa", "bcdxa"),
        ("", "ba", "ba"),
        ("ab", "", "ab"),
    ],
)
def test_items_stand_in_the_applied_order_with_the_others_where_they_were(live: str, applied: str, order: str) -> None:
    assert "".join(names(merge(pod(*live), pod(*applied), POD))) == order


def test_items_are_merged_by_their_key_and_atomic_things_replaced() -> None:
    live = pod({"name": "a", "image": "1", "command": ["x", "y"]})
    merged = merge(live, pod({"name": "a", "command": ["z"]}), POD)
    assert merged == pod({"name": "a", "image": "1", "command": ["z"]})


def test_a_key_left_out_is_its_default() -> None:
    live = pod({"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]})
    merged = merge(live, pod({"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}), POD)
    assert merged["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "web"}]


def test_duplicates_in_what_is_applied_are_refused() -> None:
    with pytest.raises(ValueError, match=r'duplicate entries for key \[name="a"\]'):
        merge(pod("a"), pod("a", "a"), POD)


@given(custom_objects, custom_objects)
def test_merging_keeps_all_that_was_applied_and_changes_no_argument(
    live: dict[str, Any], applied: dict[str, Any]
) -> None:
    if errs(applied, CUSTOM):
        return
    before = copy.deepcopy((live, applied))
    merged = merge(live, applied, CUSTOM)
    assert (live, applied) == before
    again = merge(merged, applied, CUSTOM)
    assert not any(find_changes(again, merged, CUSTOM))
    assert not find_changes(merged, applied, CUSTOM).added


@given(custom_objects)
def test_merging_with_itself_changes_nothing(value: dict[str, Any]) -> None:
    if not errs(value, CUSTOM):
        assert merge(value, value, CUSTOM) == value


def test_fields_are_removed_and_what_loses_everything_below_is_null() -> None:
    live = {"metadata": {"name": "x", "labels": {"a": "1"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
    removed = remove(
        live, {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:containers": {'k:{"name":"a"}': {}}}}, POD
    )
    assert removed == {"metadata": {"name": "x", "labels": None}, "spec": {"containers": None}}


@given(custom_objects, st.data())
def test_removed_fields_are_gone_and_the_rest_stays(value: dict[str, Any], data: st.DataObject) -> None:
    owned = members(of(value, CUSTOM))
    removable = [path for path in owned if path[-1] != "f:id"]  # An item without its key is none.
    if not removable:
        return
    path = data.draw(st.sampled_from(sorted(removable)))
    left = remove(value, field_sets.of_paths(path), CUSTOM) or {}
    now = members(of(left, CUSTOM))
    assert path not in now
    assert now >= {other for other in owned if other[: len(path)] != path and path[: len(other)] != other}


REFUSED = [
    ({"spec": {"foo": 1}}, [".spec.foo: field not declared in schema"]),
    (pod("a", "a"), ['.spec.containers: duplicate entries for key [name="a"]']),
    (
        {"spec": {"containers": [None]}},
        [".spec.containers: element 0: associative list with keys may not have a null element"],
    ),
    ({"spec": {"hostname": 1}}, [".spec.hostname: expected string, got &value.valueUnstructured{Value:1}"]),
    ({"spec": {"replicas": "1"}}, [".spec.replicas: expected numeric (int or float), got string"]),
    ({"spec": []}, [".spec: expected map, got &{[]}"]),
    ({"spec": {"containers": "x"}}, [".spec.containers: expected list, got &{x}"]),
    (
        pod({"name": "a", "command": [1]}),
        ['.spec.containers[name="a"].command[0]: expected string, got &value.valueUnstructured{Value:1}'],
    ),
    (pod({"name": "a", "ports": []}), []),
]


@pytest.mark.parametrize(("value", "expected"), REFUSED)
def test_a_value_that_does_not_fit_has_the_messages_of_kubernetes(value: Any, expected: list[str]) -> None:
    assert errs(value, POD) == expected


def test_a_custom_list_whose_item_has_no_key_is_refused() -> None:
    (err,) = errs({"spec": {"parts": [{"note": "m"}]}}, CUSTOM)
    assert err == (
        '.spec.parts: element 0: associative list with keys has an element that omits all key fields ["id"] '
        "(and doesn't have default values for any key fields)"
    )


def test_several_errors_are_one_message() -> None:
    assert join_errors(["a", "b"]) == "errors:\n  a\n  b"
