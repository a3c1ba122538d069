"""Messages of protobuf as dataclasses: a field states its number, and nothing is generated.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Mount(Message):
        container_path: str = text(1)
        read_only: bool = flag(3)

Fields that a message does not list are skipped, and a field that is absent has its zero value, as protobuf says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from pinnace.process.varint import encode_varint

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIXTY_FOUR = 1 << 64
_NEGATIVE = 1 << 63
_LONGEST_VARINT = 10
_Cursor = tuple[int, int]


class MalformedMessage(ValueError):
    """The bytes are not such a message."""


@dataclass(frozen=True, slots=True)
class _Field:
    """How one field is written: `put` encodes a value, `take` decodes the bytes of one, or its number."""

    number: int
    wire: int
    put: Callable[[Any], bytes]
    take: Callable[[Any], Any]
    is_list: bool = False
    is_map: bool = False
    keeps_zero: bool = False
    """Whether a zero value is written: its absence has a meaning of its own."""


@dataclass(frozen=True, slots=True)
class Message:
    """The base of all messages. Subclasses are dataclasses whose fields come from the functions below."""

    def encode(self) -> bytes:
        pieces: list[bytes] = []
        for name, spec in _table(type(self)):
            value = getattr(self, name)
            if value is None or (not value and not spec.keeps_zero):
                continue
            tag = encode_varint(spec.number << 3 | spec.wire)
            if spec.is_map:
                pieces += [tag + _sized(_pair(key, item)) for key, item in value.items()]
            elif spec.is_list and spec.wire == _VARINT:
                packed = b"".join(map(spec.put, value))
                pieces.append(encode_varint(spec.number << 3 | _LENGTH) + _sized(packed))
            elif spec.is_list:
                pieces += [tag + spec.put(item) for item in value]
            else:
                pieces.append(tag + spec.put(value))
        return b"".join(pieces)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raise MalformedMessage."""
        by_number = {spec.number: (name, spec) for name, spec in _table(cls)}
        values: dict[str, Any] = {}
        at, end = 0, len(data)
        while at < end:
            tag, at = _varint(data, at)
            entry = by_number.get(tag >> 3)
            value, at = _value(data, at, tag & 7)
            if entry is None:
                continue
            name, spec = entry
            if spec.is_map:
                key, item = _pair_in(_bytes(value, cls, name))
                values.setdefault(name, {})[key] = item
            elif spec.is_list and spec.wire == _VARINT and isinstance(value, bytes):
                values.setdefault(name, []).extend(map(spec.take, _packed(value)))
            elif isinstance(value, bytes) != (spec.wire == _LENGTH):
                raise MalformedMessage(f"the field {name} of {cls.__name__} has the wrong wire type {tag & 7}")
            elif spec.is_list:
                values.setdefault(name, []).append(spec.take(value))
            else:
                values[name] = spec.take(value)
        return cls(**values)


# Fields.


def text(number: int) -> Any:
    return dataclasses.field(default="", metadata={"": _Field(number, _LENGTH, _put_text, _take_text)})


def blob(number: int) -> Any:
    return dataclasses.field(default=b"", metadata={"": _Field(number, _LENGTH, _sized, bytes)})


def integer(number: int) -> Any:
    return dataclasses.field(default=0, metadata={"": _Field(number, _VARINT, _put_integer, _take_integer)})


def flag(number: int) -> Any:
    return dataclasses.field(default=False, metadata={"": _Field(number, _VARINT, _put_integer, bool)})


def maybe_text(number: int) -> Any:
    """A text whose absence (None) has a meaning of its own."""
    spec = _Field(number, _LENGTH, _put_text, _take_text, keeps_zero=True)
    return dataclasses.field(default=None, metadata={"": spec})


def message(number: int, kind: type[Message]) -> Any:
    spec = _Field(number, _LENGTH, lambda value: _sized(value.encode()), kind.decode, keeps_zero=True)
    return dataclasses.field(default=None, metadata={"": spec})


def texts(number: int) -> Any:
    return dataclasses.field(default=(), metadata={"": _Field(number, _LENGTH, _put_text, _take_text, is_list=True)})


def integers(number: int) -> Any:
    spec = _Field(number, _VARINT, _put_integer, _take_integer, is_list=True)
    return dataclasses.field(default=(), metadata={"": spec})


def messages(number: int, kind: type[Message]) -> Any:
    spec = _Field(number, _LENGTH, lambda value: _sized(value.encode()), kind.decode, is_list=True)
    return dataclasses.field(default=(), metadata={"": spec})


def pairs(number: int) -> Any:
    """A map from text to text."""
    spec = _Field(number, _LENGTH, _put_text, _take_text, is_map=True)
    return dataclasses.field(default_factory=dict, metadata={"": spec})


_TABLES: dict[type[Message], list[tuple[str, _Field]]] = {}


def _table(kind: type[Message]) -> list[tuple[str, _Field]]:
    table = _TABLES.get(kind)
    if table is None:
        fields = ((field.name, field.metadata[""]) for field in dataclasses.fields(kind))
        table = _TABLES[kind] = sorted(fields, key=lambda entry: entry[1].number)
    return table


# Values.


def _sized(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _put_text(value: str) -> bytes:
    return _sized(value.encode())


def _take_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedMessage("a text is not UTF-8") from None


def _put_integer(value: int) -> bytes:
    return encode_varint(value % _SIXTY_FOUR)


def _take_integer(value: int) -> int:
    return value - _SIXTY_FOUR if value >= _NEGATIVE else value


def _pair(key: str, value: str) -> bytes:
    return b"\x0a" + _put_text(key) + b"\x12" + _put_text(value)


def _pair_in(data: bytes) -> tuple[str, str]:
    pair = _Pair.decode(data)
    return pair.key, pair.value


def _bytes(value: int | bytes, kind: type[Message], name: str) -> bytes:
    if not isinstance(value, bytes):
        raise MalformedMessage(f"the field {name} of {kind.__name__} has the wrong wire type")
    return value


def _varint(data: bytes, at: int) -> _Cursor:
    result = shift = 0
    for place in range(at, min(at + _LONGEST_VARINT, len(data))):
        byte = data[place]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result % _SIXTY_FOUR, place + 1
        shift += 7
    raise MalformedMessage("a number is cut off or too long")


def _packed(data: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers


def _value(data: bytes, at: int, wire: int) -> tuple[int | bytes, int]:
    if wire == _VARINT:
        return _varint(data, at)
    if wire == _LENGTH:
        size, at = _varint(data, at)
    elif wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
    else:
        raise MalformedMessage(f"the wire type {wire} is unknown")
    stop = at + size
    if stop > len(data):
        raise MalformedMessage("the message is cut off")
    if wire == _LENGTH:
        return data[at:stop], stop
    return int.from_bytes(data[at:stop], "little"), stop


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair(Message):
    key: str = text(1)
    value: str = text(2)
