"""Values with many errors: the work grows with the value, and the errors have an end."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.schema.validation.explain import EnumOptions, explain

MANY = 20_000


def test_a_list_of_wrong_values_of_a_large_enum_has_a_bounded_number_of_errors() -> None:
    options = [f"option-{number}" for number in range(MANY)]
    schema = {"type": "array", "items": {"type": "string", "enum": options}}
    result = explain(schema, [f"wrong-{number}" for number in range(MANY)])
    assert 0 < len(result) < 20
    assert sum(len(error.message) for error in result) < 4 << 20


def test_the_last_of_many_values_is_found_wrong() -> None:
    options = [{"name": f"option-{number}"} for number in range(MANY)]
    schema = {"type": "array", "items": {"type": "object", "enum": options}}
    assert not explain(schema, options)
    assert [error.field for error in explain(schema, [*options, {"name": "wrong"}])] == [f"[{MANY}]"]


@pytest.mark.parametrize(
    ("value", "options", "is_option"),
    [
        ("a", ["a", "b"], True),
        ("c", ["a", "b"], False),
        (1, [1.0], True),
        (1.5, [1], True),  # As Go cuts a float to the integer of the option.
        (True, [1], False),
        (None, [None], False),
        ({"a": [1]}, [{"a": [1]}], True),
        ({"a": [1]}, [{"a": [1.0]}], False),
    ],
)
def test_a_value_is_compared_with_options_as_go_compares_it(value: Any, options: list[Any], is_option: bool) -> None:
    assert (value in EnumOptions(options)) is is_option
