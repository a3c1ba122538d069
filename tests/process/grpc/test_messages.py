from __future__ import annotations

import pytest
from tests.process.grpc.echoes import Part, Whole

from pinnace.process.grpc.messages import MalformedMessage

FULL = Whole(
    name="Übung",
    parts=[Part(name="a", size=-1), Part()],
    labels={"": "empty", "b": ""},
    sizes=[0, 127, 128, -(2**63), 2**63 - 1],
    first=Part(),
    is_last=True,
    note="",
)


def test_a_message_is_decoded_as_it_was_encoded() -> None:
    assert Whole.decode(FULL.encode()) == FULL


def test_the_bytes_are_those_of_the_published_format() -> None:
    encoded = Whole(name="ä", parts=[Part(size=300)], sizes=[1, 300], labels={"k": "v"}).encode()
    assert encoded.hex() == "0a02c3a4" + "120310ac02" + "1a060a016b120176" + "220301ac02"


def test_absent_fields_have_their_zero_value_and_are_not_written() -> None:
    assert Whole().encode() == b""
    assert Whole.decode(b"") == Whole(name="", parts=(), labels={}, sizes=(), first=None, is_last=False, note=None)


def test_unknown_fields_are_skipped_and_numbers_may_come_unpacked() -> None:
    unknown = bytes.fromhex("f80301" + "f9030000000000000000" + "fd0300000000" + "fa030161")
    assert Whole.decode(unknown + b"\x20\x05\x20\x06" + Whole(name="x").encode()) == Whole(name="x", sizes=[5, 6])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("0a", id="no length"),
        pytest.param("0a05" + "61", id="a text that is cut off"),
        pytest.param("0a02c328", id="a text that is not UTF-8"),
        pytest.param("0a" + "ff" * 9 + "01", id="a length of 2^64"),
        pytest.param("10" + "ff" * 11, id="a number without an end"),
        pytest.param("0b", id="a group"),
        pytest.param("0801", id="a number for a text"),
        pytest.param("1801", id="a number for a map"),
        pytest.param("3200", id="bytes for a flag"),
        pytest.param("12020a05", id="a message in it that is cut off"),
        pytest.param("2201ff", id="packed numbers that are cut off"),
    ],
)
def test_bytes_that_are_no_such_message_are_refused(data: str) -> None:
    with pytest.raises(MalformedMessage):
        Whole.decode(bytes.fromhex(data))


def test_no_damage_to_a_message_raises_another_error() -> None:
    encoded = FULL.encode()
    for at in range(len(encoded)):
        for damaged in (encoded[:at], encoded[:at] + bytes((encoded[at] ^ 0x83,)) + encoded[at + 1 :]):
            try:
                Whole.decode(damaged)
            except MalformedMessage:
                continue
