"""Quantities are read, compared and written again exactly as Kubernetes does."""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.growth import is_linear

from pinnace.model import quantity
from pinnace.model.quantity import FORMAT_ERROR, NUMBER_ERROR, SUFFIX_ERROR, Format, InvalidQuantity

SUFFIXES = {
    **dict(zip(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"], range(-9, 21, 3), strict=True)),
}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("-", "0"),
        ("-0", "0"),
        ("0Ki", "0"),
        ("m", "0"),
        (".", "0"),
        ("1000m", "1"),
        ("1024Ki", "1Mi"),
        ("512Ki", "512Ki"),
        ("1500Mi", "1500Mi"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.5Ki", "1536"),
        ("1.1Ki", "1126400m"),
        ("0.1Ki", "102400m"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("5e1", "50"),
        ("50e2", "5e3"),
        ("1.5e3", "1500"),
        ("1e+3", "1e+3"),
        ("1e-3", "1e-3"),
        ("1E", "1E"),
        ("1.500", "1.500"),
        ("1.000", "1"),
        ("10.500", "10.500"),
        ("+5", "+5"),
        ("0001Mi", "0001Mi"),
        ("-1Ki", "-1Ki"),
        ("-0.5", "-500m"),
        ("-1.5Gi", "-1536Mi"),
        ("10000", "10k"),
        ("1000E", "1"),
        ("1e21", "1e21"),
        ("7Ei", "7Ei"),
        ("16Ei", "9223372036854775807"),
        ("100000000000000000000", "100E"),
        ("0.0000000001", "1n"),
        ("1e-10", "1e-9"),
        ("5e-20", "1e-9"),
        ("1.", "1."),
        (" 1 ", "1"),
    ],
)
def test_a_quantity_is_written_as_kubernetes_writes_it(text: str, canonical: str) -> None:
    assert quantity.canonical(text) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", FORMAT_ERROR),
        ("abc", FORMAT_ERROR),
        ("1.5.5", FORMAT_ERROR),
        ("1 0", FORMAT_ERROR),
        ("1Kim", SUFFIX_ERROR),
        ("1e", SUFFIX_ERROR),
        ("12ee3", SUFFIX_ERROR),
        ("1k5", SUFFIX_ERROR),
        ("1-3", SUFFIX_ERROR),
        ("1e9999999999999999999999", SUFFIX_ERROR),
        ("e-10", NUMBER_ERROR),
    ],
)
def test_an_invalid_quantity_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidQuantity) as raised:
        quantity.parse(text)
    assert str(raised.value) == message


@pytest.mark.parametrize(("number", "canonical"), [(5, "5"), (1000, "1k"), (0.5, "500m"), (2.0, "2"), (-1, "-1")])
def test_plain_numbers_are_quantities(number: float, canonical: str) -> None:
    assert quantity.canonical(number) == canonical


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0.0001", "1m"),
        ("1n", "1m"),
        ("1e-9", "1e-3"),
        ("123456789.123456789", "123456789124m"),
        ("1.23456789Gi", "1325607178061m"),
        ("1.500", "1.500"),
        ("-1n", "-1m"),
    ],
)
def test_a_resource_list_holds_nothing_finer_than_a_thousandth(text: str, canonical: str) -> None:
    assert quantity.canonical_in_list(text) == canonical


@given(number=st.integers(-(10**17), 10**17), suffix=st.sampled_from(list(SUFFIXES)))
def test_a_formatted_quantity_equals_the_parsed_one(number: int, suffix: str) -> None:
    read = quantity.parse(f"{number}{suffix}")
    assert read.amount == Decimal(number).scaleb(SUFFIXES[suffix])
    if abs(read.amount) < Decimal("1e21"):  # Beyond, Kubernetes loses the suffix.
        assert quantity.parse(str(read)) == read
        assert quantity.canonical(str(read)) == str(read)


@given(number=st.integers(-(2**40), 2**40), power=st.sampled_from([0, 10, 20]))
def test_binary_quantities_survive_being_written(number: int, power: int) -> None:
    suffix = {0: "", 10: "Ki", 20: "Mi"}[power]
    read = quantity.parse(f"{number}{suffix}")
    assert read.value == number << power
    assert quantity.parse(str(read)) == read


@given(left=st.decimals(-1000, 1000, places=3), right=st.decimals(-1000, 1000, places=3))
def test_quantities_are_compared_and_added_as_numbers(left: Decimal, right: Decimal) -> None:
    a, b = quantity.parse(f"{left:f}"), quantity.parse(f"{right:f}")
    assert (a < b, a <= b, a == b, a > b, a >= b) == (
        left < right,
        left <= right,
        left == right,
        left > right,
        left >= right,
    )
    assert (a + b).amount == left + right
    assert (a - b).amount == left - right
    assert (-a).amount == -left
    assert a.milli_value == left * 1000


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [("1Gi", "512Mi", "1536Mi"), ("0", "1Gi", "1Gi"), ("1", "500m", "1500m"), ("1", "1Gi", "1073741825")],
)
def test_a_sum_is_written_as_its_left_side_was(left: str, right: str, total: str) -> None:
    assert str(quantity.parse(left) + quantity.parse(right)) == total


def test_different_writings_of_an_amount_are_equal() -> None:
    assert quantity.parse("1Ki") == quantity.parse("1024") == quantity.of(1024, Format.BINARY_SI)
    assert hash(quantity.parse("1Ki")) == hash(quantity.parse("1024"))


def test_fractions_count_as_the_next_whole_unit() -> None:
    assert quantity.parse("1.1").value == 2
    assert quantity.parse("1100u").milli_value == 2


def test_an_enormous_exponent_costs_nothing() -> None:
    assert quantity.parse("1e999999999") > quantity.parse("1e999999998")
    assert quantity.canonical("1e999999999") == "1e999999999"


_BACKTRACKING = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")


@given(st.text("0019.+-eEinumkKMGTP", max_size=8))
def test_the_form_is_that_of_the_plain_regular_expression(text: str) -> None:
    try:
        quantity.parse(text)
        result = ""
    except InvalidQuantity as err:
        result = str(err)
    assert (result == FORMAT_ERROR) == (not text or _BACKTRACKING.fullmatch(text) is None)


@pytest.mark.parametrize(
    "text",
    ["0", "1", ".0", "1.1", "-0", "1e0", "0x", "00Ki"],
)
@pytest.mark.parametrize("suffix", ["", "x", "Ki", "m", ".5", "e-5"])
def test_time_is_linear_in_the_digits(text: str, suffix: str) -> None:
    def parse(text: str) -> None:
        with suppress(InvalidQuantity):
            quantity.canonical_in_list(text)

    assert is_linear(parse, lambda size: text[:-1] + text[-1] * size + suffix, 80_000)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1" + "0" * 5_000 + "Ki", "9223372036854775807"),
        ("0." + "0" * 5_000 + "1Ki", "1n"),
        ("0" * 5_000 + "64Mi", "64Mi"),
        ("1e" + "0" * 5_000 + "3", "1e" + "0" * 5_000 + "3"),
    ],
    ids=["large", "small", "zeros", "exponent"],
)
def test_more_digits_than_python_reads_are_no_error(text: str, canonical: str) -> None:
    assert quantity.canonical(text) == canonical


def test_an_amount_beyond_reason_is_cut_as_an_integer() -> None:
    beyond = quantity.parse("1e999999999")
    assert beyond.value == beyond.milli_value == 10**400
    assert quantity.parse("-1e999999999").value == -(10**400)


def test_arithmetic_beyond_reason_is_no_error() -> None:
    beyond, small = quantity.parse("1e999999999"), quantity.parse("1n")
    assert beyond.is_whole and not small.is_whole
    assert beyond.ratio_to(small) > beyond > beyond.ratio_to(beyond) == quantity.of(1)
    assert (beyond + beyond).value == 10**400
