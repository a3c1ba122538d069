"""Equal items of a list are found in linear time, by JSON's own equality."""

from __future__ import annotations

from typing import Any

import pytest
from tests.growth import is_linear

from pinnace.schema.validation.explain import has_twins


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], False),
        ([1, 2], False),
        ([1, 1.0, True, "1", None], False),
        ([0, False, "", [], {}], False),
        ([None, None], True),
        (["a", "b", "a"], True),
        ([{"a": 1, "b": [2]}, {"b": [2], "a": 1}], True),
        ([{"a": 1}, {"a": True}], False),
        ([[1, [2]], [1, [2.0]]], False),
    ],
    ids=repr,
)
def test_items_are_equal_if_kind_and_value_are(values: list[Any], expected: bool) -> None:
    assert has_twins(values) is expected


def test_the_time_grows_with_the_number_of_items() -> None:
    assert is_linear(has_twins, lambda size: [{"name": f"n{number}", "port": number} for number in range(size)], 20_000)
