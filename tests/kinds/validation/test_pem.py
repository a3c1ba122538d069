"""The blocks of a PEM text are found in time that is linear in the text."""

from __future__ import annotations

import pytest
from tests.growth import is_linear

from pinnace.kinds.validation.pem import find_blocks

A, B = b"-----BEGIN A-----\nYQ==\n-----END A-----\n", b"-----BEGIN B C-----\r\nk: v\r\n\r\nYg==\r\n-----END B C-----"


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        (b"", []),
        (A, [(b"A", b"YQ==\n")]),
        (b"text\n" + A + b"more\n" + B, [(b"A", b"YQ==\n"), (b"B C", b"k: v\r\n\r\nYg==\r\n")]),
        (b"-----BEGIN A-----\n" + A, [(b"A", b"YQ==\n")]),
        (b"-----BEGIN B-----\nYQ==\n-----END A-----\n" + A, [(b"A", b"YQ==\n")]),
        (b"-----BEGIN A----\nYQ==\n-----END A-----\n" + A, [(b"A", b"YQ==\n")]),
        (b"-----BEGIN A-----\nYQ==\n", []),
        (b"-----BEGIN A-----", []),
    ],
    ids=["empty", "one", "two", "begun twice", "another end", "bad first line", "no end", "one line"],
)
def test_blocks_are_found(text: bytes, actual: list[tuple[bytes, bytes]]) -> None:
    assert list(find_blocks(text)) == actual


@pytest.mark.parametrize(
    "unit",
    [A, b"-----BEGIN A-----\n", b"-----BEGIN A-----", b"-----END A-----\n", b"\n", b"-", b"-----BEGIN "],
    ids=["blocks", "beginnings", "beginnings in a line", "ends", "lines", "dashes", "words"],
)
@pytest.mark.parametrize("last", [b"", b"-----END B-----"], ids=["no end", "end"])
def test_time_is_linear_in_the_text(unit: bytes, last: bytes) -> None:
    assert is_linear(lambda text: list(find_blocks(text)), lambda count: unit * count + last, 20_000)
