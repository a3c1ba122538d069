"""A schema may have thousands of alternatives."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.schema.validation.validate import SchemaValidator

COUNTS = (2, 10_000)
"""Few alternatives are compiled to one expression, many to a loop."""


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"pattern": f"^x{number}$"} for number in range(count)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_a_value_fits_if_an_alternative_does(word: str, count: int) -> None:
    validator = SchemaValidator({"type": "string", word: numbered(count)})
    assert validator.validate(f"x{count - 1}") == []
    assert [error.reason for error in validator.validate("y")] != []


@pytest.mark.parametrize("count", COUNTS)
def test_a_value_that_fits_two_alternatives_is_refused_by_one_of(count: int) -> None:
    validator = SchemaValidator({"type": "string", "oneOf": [*numbered(count), {"pattern": "1$"}]})
    assert validator.validate("y1") == []
    assert "Found 2 valid alternatives" in str(validator.validate("x1")[0])


@pytest.mark.parametrize("count", COUNTS)
def test_a_value_fits_if_all_schemas_do(count: int) -> None:
    validator = SchemaValidator({"type": "string", "allOf": [{"pattern": f"[^{number}]"} for number in range(count)]})
    assert validator.validate("y") == []
    assert len(validator.validate("0")) >= 1
