"""Integers in text are read as Go reads them, whatever their length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.growth import is_linear

from pinnace.schema.golang.numbers import parse_int


@given(st.integers(-(2**64), 2**64), st.sampled_from(["", "+", "000", "+0"]))
def test_an_integer_in_the_range_is_read(number: int, prefix: str) -> None:
    text = f"{prefix}{number}" if number >= 0 else str(number)
    assert parse_int(text) == (number if -(2**63) <= number < 2**63 else None)


@pytest.mark.parametrize("text", ["", "+", "-", "+-1", "--1", "1_000", " 1", "1.0", "0x1", "٣", "1e3"])
def test_other_text_is_no_integer(text: str) -> None:
    assert parse_int(text) is None


@pytest.mark.parametrize(("text", "number"), [("9" * 5_000, None), ("0" * 5_000 + "7", 7), ("-" + "0" * 5_000, 0)])
def test_more_digits_than_python_reads_are_no_error(text: str, number: int | None) -> None:
    assert parse_int(text) == number


def test_a_range_can_be_given() -> None:
    assert [parse_int(text, least=0, greatest=100) for text in ("0", "100", "101", "-1")] == [0, 100, None, None]


@pytest.mark.parametrize("digit", "09")
def test_time_is_linear_in_the_digits(digit: str) -> None:
    assert is_linear(parse_int, lambda size: digit * size, 1_000_000)
