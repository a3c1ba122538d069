"""Formats of strings are checked in time that is linear in the string."""

from __future__ import annotations

from functools import partial

import pytest
from tests.growth import cpu_seconds, is_linear

from pinnace.schema.validation.formats import check_of

FORMATS = (
    *("bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "isbn", "creditcard", "ssn"),
    *("hexcolor", "rgbcolor", "byte", "date", "duration", "datetime", "k8s-short-name", "k8s-long-name"),
)
UNITS = ("a", "0", "a ", "a.", '"', '"a"', "a@", "<", "\\", ":", "0 ", "-", "0s", " ", "/", "%41", "é", "\xa0")


@pytest.mark.parametrize("format", FORMATS)
def test_time_is_linear_in_the_text(format: str) -> None:
    check = check_of(format)
    assert check is not None
    for unit in UNITS:
        assert cpu_seconds(check, unit * 24) < 0.5, unit
        assert is_linear(check, partial(_repeat, unit), 20_000), unit


def _repeat(unit: str, times: int) -> str:
    return unit * times + "!"


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("a@b.c", True),
        ("Ann Lee <a@b.c>", True),
        ('"Ann, Lee" <a.b@c>', True),
        (' "a b"@c ', True),
        ("a@[127.0.0.1]", True),
        ("a.@b", False),
        ("a b@c", False),
        ("<a@b", False),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", False),
    ],
)
def test_an_email_address_is_valid_as_in_go(text: str, is_valid: bool) -> None:
    check = check_of("email")
    assert check is not None
    assert check(text) is is_valid


@pytest.mark.parametrize(("text", "is_valid"), [("3 days", True), ("1h30m", True), ("12 34 weeks", True), ("3", False)])
def test_a_duration_may_be_in_words(text: str, is_valid: bool) -> None:
    check = check_of("duration")
    assert check is not None
    assert check(text) is is_valid
