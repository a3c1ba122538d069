"""Field sets behave as sets of paths, and say of values what Kubernetes says."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.schema.merge import field_sets
from pinnace.schema.merge.field_sets import FieldSet

elements = st.sampled_from(["f:a", "f:b", 'k:{"n":"x"}', 'v:"y"'])
paths = st.lists(elements, min_size=1, max_size=4).map(tuple)
sets = st.lists(paths, max_size=8).map(lambda chosen: field_sets.of_paths(*chosen))


def members(actual: FieldSet) -> set[tuple[str, ...]]:
    return set(field_sets.paths(actual))


def is_in_one_form(actual: FieldSet) -> bool:
    return all(below != {".": {}} and is_in_one_form(below) for below in actual.values())


@given(sets, sets)
def test_the_algebra_is_that_of_sets_of_paths(a: FieldSet, b: FieldSet) -> None:
    assert members(field_sets.union(a, b)) == members(a) | members(b)
    assert members(field_sets.intersection(a, b)) == members(a) & members(b)
    assert members(field_sets.difference(a, b)) == members(a) - members(b)
    below_b = {path for path in members(a) if any(path[: len(above)] == above for above in members(b))}
    assert members(field_sets.recursive_difference(a, b)) == members(a) - below_b


@given(sets, sets)
def test_results_are_in_the_one_form_in_which_equal_sets_are_equal_dicts(a: FieldSet, b: FieldSet) -> None:
    for result in (field_sets.union(a, b), field_sets.intersection(a, b), field_sets.difference(a, b)):
        assert is_in_one_form(result)
        assert result == field_sets.of_paths(*members(result))
    assert is_in_one_form(field_sets.recursive_difference(a, b))


@given(sets)
def test_a_set_survives_being_written_and_read(a: FieldSet) -> None:
    assert field_sets.parse(field_sets.sort_fields(a)) == a
    assert all(field_sets.contains(a, path) for path in members(a))


def test_elements_are_written_in_the_order_of_what_they_say() -> None:
    result = field_sets.sort_fields(
        {
            'k:{"port":443,"protocol":"TCP"}': {},
            "f:b": {},
            'k:{"port":80,"protocol":"UDP"}': {},
            'k:{"port":80,"protocol":"TCP"}': {},
            "f:a": {"f:x": {}, ".": {}},
        }
    )
    assert list(result) == [
        "f:a",
        "f:b",
        'k:{"port":80,"protocol":"TCP"}',
        'k:{"port":80,"protocol":"UDP"}',
        'k:{"port":443,"protocol":"TCP"}',
    ]
    assert list(result["f:a"]) == [".", "f:x"]


TEXTS = st.text(st.sampled_from([*' !"#/a{}:,é\U0001f600', "\\", "\n"]), max_size=4)


@given(
    st.sampled_from(["v:%s", 'k:{"uid":%s}']), st.lists(st.one_of(TEXTS, st.integers(-99, 99)), min_size=3, unique=True)
)
def test_many_elements_have_the_order_of_few(form: str, values: list[str | int]) -> None:
    by_name: FieldSet = {form % orjson.dumps(value).decode(): {} for value in values}
    assert field_sets._is_sorted_by_text(sorted(by_name)) <= (sorted(by_name) == sorted(by_name, key=field_sets._order))


def test_the_order_of_plain_texts_is_that_of_their_elements() -> None:
    result = [".", *sorted(f'v:"example.com/f{number}"' for number in range(300))]
    assert field_sets._is_sorted_by_text(result)
    assert list(field_sets.sort_fields({element: {} for element in reversed(result)})) == result


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("f:spec", "f:containers", 'k:{"name":"nginx"}', "f:image"), '.spec.containers[name="nginx"].image'),
        (("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), '.ports[containerPort=80,protocol="TCP"]'),
        (("f:finalizers", 'v:"a/b"'), '.finalizers[="a/b"]'),
        (("f:list", "i:3"), ".list[3]"),
    ],
)
def test_paths_are_shown_as_messages_show_them(path: tuple[str, ...], expected: str) -> None:
    assert field_sets.format_path(path) == expected


@pytest.mark.parametrize("sent", [[], {"f": {}}, {"fa": {}}, {"f:a": 1}, {"k:{": {}}])
def test_an_invalid_field_set_is_refused(sent: Any) -> None:
    with pytest.raises(ValueError):
        field_sets.parse(sent)


def test_elements_of_a_kind_yet_unknown_are_dropped() -> None:
    assert field_sets.parse({"z:new": {}, "f:a": {".": {}}}) == {"f:a": {}}
