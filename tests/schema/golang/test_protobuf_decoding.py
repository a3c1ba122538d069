"""Reading protobuf: the bodies were written by Go, the refusals were heard from a real server."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.golang.protobuf_samples import Sample, samples

from pinnace.kinds.golang import field_numbers
from pinnace.model.objects import Kind
from pinnace.schema.golang.protobuf import (
    LIST,
    MAP,
    MAX_DEPTH,
    PREFIX,
    MalformedProtobuf,
    ProtobufField,
    ProtobufReader,
    read_envelope,
)

MESSAGES = {
    "Boat": (
        ProtobufField("name", 1),
        ProtobufField("masts", 2, "int32"),
        ProtobufField("crew", 3, "int32", keeps_zero=True),
        ProtobufField("afloat", 4, "bool"),
        ProtobufField("flag", 5, keeps_zero=True),
        ProtobufField("tender", 6, "Boat"),
        ProtobufField("wreck", 7, "Boat", keeps_zero=True),
        ProtobufField("depths", 8, "int64", LIST),
        ProtobufField("fleet", 9, "Boat", LIST),
        ProtobufField("by", 10, "Boat", MAP),
        ProtobufField("words", 11, shape=MAP),
        ProtobufField("draft", 12, "double"),
        ProtobufField("built", 13, "time"),
        ProtobufField("seen", 14, "microtime"),
        ProtobufField("cargo", 15, "bytes"),
        ProtobufField("notes", 16, "raw"),
        ProtobufField("", 17, "Rig"),
        ProtobufField("berth", 18, "intorstring"),
        ProtobufField("dock", 19, "intorstring", keeps_zero=True),
        ProtobufField("load", 20, "quantity"),
        ProtobufField("ranks", 21, "strings", MAP),
    ),
    "Rig": (ProtobufField("sails", 1, "int64"),),
}
BOATS = ProtobufReader(MESSAGES.__getitem__)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _message_of(sample: Sample) -> str:
    kind = Kind.parse(sample.obj["apiVersion"], sample.obj["kind"])
    return field_numbers.message_of(kind) or field_numbers.DELETE_OPTIONS


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_a_body_means_what_go_would_write_as_json(sample: Sample) -> None:
    envelope = read_envelope(sample.body)
    named = {"apiVersion": envelope.api_version, "kind": envelope.kind}
    assert named | field_numbers.reader().read(_message_of(sample), envelope.raw) == sample.obj


@pytest.mark.parametrize(
    ("data", "obj"),
    [
        pytest.param(_bytes(1, "") + _number(2, 0) + _number(4, 0) + _bytes(6, b""), {}, id="zeros say nothing"),
        pytest.param(_number(3, 0) + _bytes(5, ""), {"crew": 0, "flag": ""}, id="zeros that were meant"),
        pytest.param(_bytes(7, b"") + _bytes(6, _bytes(1, "")), {"wreck": {}}, id="an empty message that was meant"),
        pytest.param(_number(2, -1) + _number(8, -(2**63)), {"masts": -1, "depths": [-(2**63)]}, id="below zero"),
        pytest.param(_number(2, 2**32 + 5), {"masts": 5}, id="a number cut to 32 bits"),
        pytest.param(_number(4, 7), {"afloat": True}, id="any number is true"),
        pytest.param(_number(8, 0) + _bytes(8, b"\x01\x80\x01"), {"depths": [0, 1, 128]}, id="a list, packed or not"),
        pytest.param(_bytes(9, b"") + _bytes(9, _bytes(1, "a")), {"fleet": [{}, {"name": "a"}]}, id="messages"),
        pytest.param(_bytes(10, _bytes(1, "k") + _bytes(2, _number(2, 1))), {"by": {"k": {"masts": 1}}}, id="a map"),
        pytest.param(_bytes(10, b""), {"by": {"": {}}}, id="an empty entry of a map"),
        pytest.param(_bytes(11, _bytes(2, "v") + _bytes(1, "k")), {"words": {"k": "v"}}, id="a value before its key"),
        pytest.param(
            _bytes(11, _number(9, 9) + _bytes(1, "k" * 200) + _bytes(2, "v" * 200)),
            {"words": {"k" * 200: "v" * 200}},
            id="a long entry of a map",
        ),
        pytest.param(b"\x61" + struct.pack("<d", 3.0), {"draft": 3}, id="a whole number has no fraction"),
        pytest.param(b"\x61" + struct.pack("<d", 1e22), {"draft": 1e22}, id="a great number"),
        pytest.param(_bytes(13, b""), {}, id="no time at all"),
        pytest.param(_bytes(13, _number(1, 0)), {"built": "1970-01-01T00:00:00Z"}, id="the epoch"),
        pytest.param(_bytes(13, _number(1, -62135596799)), {"built": "0001-01-01T00:00:01Z"}, id="long ago"),
        pytest.param(
            _bytes(14, _number(1, 1) + _number(2, 123456789)),
            {"seen": "1970-01-01T00:00:01.123456Z"},
            id="microseconds",
        ),
        pytest.param(_bytes(15, b"\x00\xff"), {"cargo": "AP8="}, id="bytes"),
        pytest.param(_bytes(16, _bytes(1, '{"a":[0]}')), {"notes": {"a": [0]}}, id="raw JSON"),
        pytest.param(_bytes(16, _bytes(1, "false")), {"notes": False}, id="a raw zero"),
        pytest.param(_bytes(16, b""), {}, id="nothing raw"),
        pytest.param(_bytes(17, _number(1, 3)), {"sails": 3}, id="a message shown in its parent"),
        pytest.param(_bytes(18, b"") + _bytes(19, b""), {"dock": 0}, id="zero as a number or a string"),
        pytest.param(_bytes(18, _number(1, 1) + _bytes(3, "a")), {"berth": "a"}, id="a string or a number"),
        pytest.param(_bytes(20, _bytes(1, "1Gi")), {"load": "1Gi"}, id="a quantity"),
        pytest.param(_bytes(20, _number(9, 1) + _bytes(1, "1Gi")), {"load": "1Gi"}, id="a quantity with company"),
        pytest.param(
            _bytes(21, _bytes(1, "k") + _bytes(2, _bytes(1, "") + _bytes(1, "b"))),
            {"ranks": {"k": ["", "b"]}},
            id="lists",
        ),
        pytest.param(_bytes(1, b"a\xff"), {"name": "a\N{REPLACEMENT CHARACTER}"}, id="text that is none"),
        pytest.param(
            _number(99, 1) + _bytes(98, "x") + b"\xb9\x06" + bytes(8) + b"\xbd\x06" + bytes(4) + _number(2, 1),
            {"masts": 1},
            id="unknown fields",
        ),
        pytest.param(b"\xbb\x06\xc3\x06\x08\x01\xc4\x06\xbc\x06" + _number(2, 1), {"masts": 1}, id="unknown groups"),
    ],
)
def test_a_message_becomes_json(data: bytes, obj: dict[str, Any]) -> None:
    assert BOATS.read("Boat", data) == obj


@pytest.mark.parametrize(
    ("data", "err"),
    [
        (b"\x0a", "unexpected EOF"),
        (b"\x0a\x05abc", "unexpected EOF"),
        (b"\x10", "unexpected EOF"),
        (b"\x10\x80", "unexpected EOF"),
        (b"\x61\x00", "unexpected EOF"),
        (b"\x9a\x06\x05a", "unexpected EOF"),
        (b"\x99\x06\x05a", "unexpected EOF"),
        (_bytes(6, b"\x10") + _number(2, 1), "unexpected EOF"),
        (_bytes(6, b"\x0a\x05") + b"abcdef", "unexpected EOF"),
        (_bytes(10, b"\x0a\x05") + b"abcdef", "unexpected EOF"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: negative length found during unmarshaling"),
        (b"\x10" + b"\xff" * 11, "proto: integer overflow"),
        (b"\x08\x05", "proto: wrong wireType = 0 for field Name"),
        (b"\x12\x05", "proto: wrong wireType = 2 for field Masts"),
        (b"\x0c", "proto: Boat: wiretype end group for non-group"),
        (b"\x00\x05", "proto: Boat: illegal tag 0 (wire type 0)"),
        (b"\x9f\x06", "proto: illegal wireType 7"),
        (_bytes(13, _number(1, 2**62)), "Time.MarshalJSON: year outside of range [0,9999]"),
        (b"\x61" + struct.pack("<d", float("inf")), "json: unsupported value: +Inf"),
        (b"\x61" + struct.pack("<d", float("nan")), "json: unsupported value: NaN"),
    ],
)
def test_an_invalid_message_is_refused(data: bytes, err: str) -> None:
    with pytest.raises(MalformedProtobuf) as caught:
        BOATS.read("Boat", data)
    assert str(caught.value) == err


@pytest.mark.parametrize("raw", ["{", '{"a":1}x', "nope"])
def test_raw_json_must_be_json(raw: str) -> None:
    with pytest.raises(MalformedProtobuf, match="json: "):
        BOATS.read("Boat", _bytes(16, _bytes(1, raw)))


@pytest.mark.parametrize("field", [6, 9, 10])
def test_messages_nest_within_bounds(field: int) -> None:
    def nested(depth: int) -> bytes:
        data = _number(2, 1)
        for _ in range(depth):
            data = _bytes(field, _bytes(2, data) if field == 10 else data)
        return data

    assert BOATS.read("Boat", nested(MAX_DEPTH))
    with pytest.raises(MalformedProtobuf, match="exceeded max depth"):
        BOATS.read("Boat", nested(MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("body", "err"),
    [
        (b"", "empty data"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (PREFIX, "empty body"),
        (PREFIX + b"\xff", "unexpected EOF"),
    ],
)
def test_an_invalid_envelope_is_refused(body: bytes, err: str) -> None:
    with pytest.raises(MalformedProtobuf) as caught:
        read_envelope(body)
    assert str(caught.value) == err


def test_an_envelope_may_say_nothing_of_its_kind() -> None:
    assert read_envelope(PREFIX + _bytes(2, "abc")) == ("", "", b"abc")


def test_a_great_body_is_read() -> None:
    text = "x" * 3_000_000
    assert BOATS.read("Boat", _bytes(11, _bytes(1, "k") + _bytes(2, text))) == {"words": {"k": text}}


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_a_body_that_was_cut_off_is_read_or_refused(sample: Sample) -> None:
    raw = read_envelope(sample.body).raw
    for end in range(len(raw)):
        try:
            assert isinstance(field_numbers.reader().read(_message_of(sample), raw[:end]), dict)
        except MalformedProtobuf as err:
            assert str(err)


@given(st.binary(max_size=60), st.sampled_from(samples()), st.data())
def test_any_bytes_are_read_or_refused(noise: bytes, sample: Sample, data: st.DataObject) -> None:
    raw = read_envelope(sample.body).raw
    at = data.draw(st.integers(0, len(raw)))
    damaged = raw[:at] + noise + raw[at + data.draw(st.integers(0, 3)) :]
    try:
        assert isinstance(field_numbers.reader().read(_message_of(sample), damaged), dict)
    except MalformedProtobuf as err:
        assert str(err)
