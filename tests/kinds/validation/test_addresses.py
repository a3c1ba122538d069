"""Addresses are read as Go reads them, old forgiveness included."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.kinds.validation.addresses import (
    cidr_warnings,
    ip_warnings,
    sloppy_cidr,
    sloppy_ip,
    validate_canonical_ip,
    validate_cidr,
    validate_ip,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.000.0.01", "10.0.0.1"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("2001:DB8::1", "2001:db8::1"),
        ("256.0.0.1", None),
        ("1.2.3", None),
        ("fe80::1%eth0", None),
        ("", None),
        ("a", None),
    ],
)
def test_an_address_is_read_with_its_leading_zeros(text: str, address: str | None) -> None:
    result = sloppy_ip(text)
    assert (str(result) if result else None) == address


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.1/8", "10.0.0.0/8"),
        ("010.0.0.0/08", "10.0.0.0/8"),
        ("2001:db8::1/64", "2001:db8::/64"),
        ("10.0.0.0/33", None),
        ("10.0.0.0", None),
        ("10.0.0.0/", None),
        ("10.0.0.0/-1", None),
    ],
)
def test_a_range_is_read_whole(text: str, network: str | None) -> None:
    result = sloppy_cidr(text)
    assert (str(result[1]) if result else None) == network


@given(st.builds(IPv4Address, st.integers(0, 2**32 - 1)) | st.builds(IPv6Address, st.integers(2**64, 2**128 - 1)))
def test_an_address_in_its_canonical_writing_has_no_errors(address: IPv4Address | IPv6Address) -> None:
    assert sloppy_ip(str(address)) == address
    assert not list(validate_canonical_ip(str(address), "a"))
    assert not list(ip_warnings(str(address), "a"))
    assert not list(validate_cidr(f"{address}/{address.max_prefixlen}", "a"))
    assert not list(cidr_warnings(f"{address}/{address.max_prefixlen}", "a"))


@pytest.mark.parametrize(
    ("text", "errs", "warnings"),
    [
        (
            "010.0.0.1",
            ["must not have leading 0s"],
            ['a: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"'],
        ),
        (
            "::ffff:1.2.3.4",
            ["must not be an IPv4-mapped IPv6 address"],
            ['a: non-standard IP address "::ffff:1.2.3.4" is invalid: use "1.2.3.4"'],
        ),
        (
            "2001:DB8::1",
            [],
            ['a: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")'],
        ),
    ],
)
def test_odd_writings_are_reported(text: str, errs: list[str], warnings: list[str]) -> None:
    assert [cause.message for cause in validate_ip(text, "a")] == [f'Invalid value: "{text}": {err}' for err in errs]
    assert not list(validate_ip(text, "a", [text])), "what was stored already may stay"
    assert list(ip_warnings(text, "a")) == warnings


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (
            "10.0.0.1/8",
            ['a: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)'],
        ),
        ("010.0.0.0/8", ['a: non-standard CIDR value "010.0.0.0/8" is invalid: use "10.0.0.0/8"']),
        (
            "2001:DB8::/64",
            ['a: IPv6 CIDR value "2001:DB8::/64" should be in RFC 5952 canonical format ("2001:db8::/64")'],
        ),
        ("nonsense", []),
    ],
)
def test_odd_ranges_are_warned_of(text: str, warnings: list[str]) -> None:
    assert list(cidr_warnings(text, "a")) == warnings
