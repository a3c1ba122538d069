"""Encode JSON as the protobuf messages that Go would write for the same object, byte for byte.

Go writes the fields of a message by number. A field that is no pointer is written even if it is empty. Encoders are
built message by message when one is first met.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from pinnace.process.varint import encode_varint
from pinnace.process.work_slices import give_way
from pinnace.schema.golang.protobuf import LIST, MAP, PREFIX, Fields, ProtobufField

Encode = Callable[[Any], bytes]
"""Encode a value without its tag."""


class NoProtobuf(ValueError):
    """The object cannot be written as such a message."""


class ProtobufWriter:
    """Encodes the messages that `fields` describes."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._encoders: dict[str, Encode] = {}

    def write(self, message: str, obj: dict[str, Any]) -> bytes:
        """Return the message. Unknown fields are left out. Raise NoProtobuf, and KeyError for an unknown message."""
        encode = self.encoder(message)
        try:
            return encode(obj)
        except RecursionError:
            raise NoProtobuf(f"{message}: nested too deep for protobuf") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error) as err:
            raise NoProtobuf(f"{message}: a value does not have the type of its field: {err}") from err

    def encoder(self, message: str) -> Encode:
        """Return the function that encodes a message; it may raise other errors than `write`."""
        encode = self._encoders.get(message)
        if encode is None:
            encode = self._encoders[message] = _message_encoder(self._fields(message), self)
        return encode

    def value(self, type: str) -> Encode:
        """Return the function that encodes a length-delimited value of this type."""
        odd = _ODD.get(type)
        if odd is not None:
            return odd
        union = _UNIONS.get(type.rpartition(".")[2])
        if union is None:
            return self._late(type)
        encode = self._late(type)
        return lambda value: encode(union(value))

    def _late(self, message: str) -> Encode:
        """Return the encoder of a message, built at the first use: messages may contain themselves."""
        known = self._encoders.get(message)
        return known if known is not None else lambda value: self.encoder(message)(value)

    def empty(self, type: str) -> bytes:
        """Return the encoding of a value that is not set."""
        return b"" if type in _NOTHING else self.value(type)(_EMPTY.get(type, {}))

    def field_names(self, message: str) -> Iterable[str]:
        """Return the names in JSON of the fields of a message, with those of inlined messages."""
        for field in self._fields(message):
            if field.name:
                yield field.name
            else:
                yield from self.field_names(field.type)


# Ways to encode a field. Each has its place among the parts of the message.
_TEXT, _MESSAGE, _NUMBER, _BOOL, _WHOLE, _INLINE = range(6)

_Field = tuple[int, int, Any, Any]
"""How to encode a field: its place, the way, the prefixes of its tag, and the function for the value.

That of a whole field returns it with its tags."""


def _message_encoder(  # noqa: C901 - holds encode
    fields: Sequence[ProtobufField], writer: ProtobufWriter
) -> Encode:
    ordered = sorted(fields, key=lambda field: field.number)
    absent = [_absent(field, writer) for field in ordered]
    whole = b"".join(absent)
    by_name: dict[str, _Field] = {}
    inlined: dict[int, tuple[Sequence[bytes], Encode]] = {}
    for place, field in enumerate(ordered):
        if field.name:
            by_name[field.name] = _field(place, field, writer)
            continue
        inlined[place] = (_prefixes(_tag(field.number, 2)), writer.encoder(field.type))
        for name in writer.field_names(field.type):
            by_name.setdefault(name, (place, _INLINE, None, None))
    find, copy = by_name.get, absent.copy

    # One loop over the fields that are set, because a call for each doubles the time of an object.
    def encode(obj: dict[str, Any]) -> bytes:
        if not obj:
            return whole
        parts = copy()
        inner: dict[int, dict[str, Any]] | None = None
        for name, value in obj.items():
            entry = find(name)
            if entry is None or value is None:
                continue
            place, how, prefixes, inside = entry
            if how <= _MESSAGE:
                data = value.encode() if how == _TEXT else inside(value)
                size = len(data)
                if size < 128:
                    parts[place] = prefixes[size] + data
                else:
                    parts[place] = b"%b%b%b" % (prefixes[0][:-1], encode_varint(size), data)
            elif how == _WHOLE:
                parts[place] = inside(value)
            elif how == _BOOL:
                parts[place] = prefixes[bool(value)]
            elif how == _NUMBER:
                is_small = value.__class__ is int and 0 <= value < 128
                parts[place] = prefixes[value] if is_small else prefixes[0][:-1] + inside(value)
            else:
                if inner is None:
                    inner = {}
                inner.setdefault(place, {})[name] = value
        if inner is not None:
            for place, part in inner.items():
                prefixes, inside = inlined[place]
                parts[place] = _delimited(prefixes, inside(part))
        return b"".join(parts)

    return encode


def _field(place: int, field: ProtobufField, writer: ProtobufWriter) -> _Field:
    type = field.type
    number = _NUMBERS_OF.get(type)
    if number is not None:
        tag = _tag(field.number, 0)
        if field.shape:
            return place, _WHOLE, None, _each(lambda item: tag + number(item))
        return place, _BOOL if type == "bool" else _NUMBER, _prefixes(tag), number
    if type == "double":
        return place, _WHOLE, None, lambda value: _tag(field.number, 1) + struct.pack("<d", value)
    prefixes = _prefixes(_tag(field.number, 2))
    encode: Encode = str.encode if type == "string" else writer.value(type)
    if field.shape == MAP:
        return place, _WHOLE, None, _entries(prefixes, encode)
    if field.shape == LIST:
        return place, _WHOLE, None, _each(lambda item: _delimited(prefixes, encode(item)))
    return place, _TEXT if type == "string" else _MESSAGE, prefixes, encode


def _each(encode: Encode) -> Encode:
    return lambda values: b"".join([encode(value) for value in _in_steps(values)])


_MOST_AT_ONCE = 200


def _in_steps(values: list[Any]) -> Iterable[Any]:
    """Return the values. Where there are many, other work gets its turn between some of them."""
    return values if len(values) <= _MOST_AT_ONCE else _give_way_between(values)


def _give_way_between(values: list[Any]) -> Iterator[Any]:
    for number, value in enumerate(values):
        if number % _MOST_AT_ONCE == 0:
            give_way()
        yield value


def _entries(prefixes: Sequence[bytes], encode: Encode) -> Encode:
    """Return the function that encodes a map, whose entries Go sorts."""
    nothing = "" if encode is str.encode else None

    def encode_map(values: dict[str, Any]) -> bytes:
        pieces = []
        for name in _in_steps(sorted(values)):
            key, value = name.encode(), values[name]
            is_nil = value is None and encode is a2b_base64  # Of all values only bytes may be nothing.
            rest = b"" if is_nil else _delimited(_SECOND, encode(nothing if value is None else value))
            pieces.append(_delimited(prefixes, _delimited(_FIRST, key) + rest))
        return b"".join(pieces)

    return encode_map


def _absent(field: ProtobufField, writer: ProtobufWriter) -> bytes:
    """Return what Go writes for a field that is not set."""
    if field.shape or field.is_pointer or field.type in ("bytes", "strings"):
        return b""
    if field.type in _NUMBERS_OF:
        return _tag(field.number, 0) + b"\0"
    if field.type == "double":
        return _tag(field.number, 1) + bytes(8)
    return _delimited(_prefixes(_tag(field.number, 2)), b"" if field.type == "string" else writer.empty(field.type))


# The wire.


def _tag(number: int, wire: int) -> bytes:
    return encode_varint(number << 3 | wire)


@lru_cache(maxsize=1024)
def _prefixes(tag: bytes) -> tuple[bytes, ...]:
    """Return the tag followed by each number of one byte: most lengths have no more."""
    return tuple(tag + bytes((number,)) for number in range(128))


def _delimited(prefixes: Sequence[bytes], data: bytes) -> bytes:
    size = len(data)
    return prefixes[size] + data if size < 128 else b"%b%b%b" % (prefixes[0][:-1], encode_varint(size), data)


_FIRST, _SECOND, _THIRD = (_prefixes(_tag(number, 2)) for number in (1, 2, 3))


def delimit(data: bytes, *, more: int = 0) -> bytes:
    """Return the data after their length, to which the bytes are added that follow them."""
    return encode_varint(len(data) + more) + data


# Values.


def _int32(value: Any) -> bytes:
    number = _whole(value)
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise OverflowError(f"{number} does not fit into 32 bits")
    return encode_varint(number & 0xFFFFFFFFFFFFFFFF)


def _int64(value: Any) -> bytes:
    number = _whole(value)
    if not -0x8000000000000000 <= number <= 0x7FFFFFFFFFFFFFFF:
        raise OverflowError(f"{number} does not fit into 64 bits")
    return encode_varint(number & 0xFFFFFFFFFFFFFFFF)


def _whole(value: Any) -> int:
    number = int(value)
    if number != value:
        raise ValueError(f"{value!r} is not a whole number")
    return number


def _raw(value: Any) -> bytes:
    return _delimited(_FIRST, orjson.dumps(value))


@lru_cache(maxsize=4096)
def _moment(text: str, *, has_fraction: bool) -> bytes:
    moment = datetime.fromisoformat(text)
    seconds = int(moment.replace(microsecond=0).astimezone(UTC).timestamp())
    nanos = moment.microsecond * 1000 if has_fraction else 0
    return b"\x08%b\x10%b" % (encode_varint(seconds & 0xFFFFFFFFFFFFFFFF), encode_varint(nanos))


def _time(value: str) -> bytes:
    return _moment(value, has_fraction=False) if value else b""


def _micro_time(value: str) -> bytes:
    return _moment(value, has_fraction=True) if value else b""


def _quantity(value: Any) -> bytes:
    return _delimited(_FIRST, str(value).encode())


def _int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + _delimited(_THIRD, value.encode())
    return b"\x08\x00\x10%b\x1a\x00" % _int32(value)


def _strings(value: list[str]) -> bytes:
    return b"".join([_delimited(_FIRST, text.encode()) for text in value])


def _schema_or_list(value: Any) -> dict[str, Any]:
    return {"jSONSchemas": value} if isinstance(value, list) else {"schema": value}


def _schema_or_bool(value: Any) -> dict[str, Any]:
    return {"allows": value} if isinstance(value, bool) else {"allows": True, "schema": value}


def _schema_or_strings(value: Any) -> dict[str, Any]:
    return {"property": value} if isinstance(value, list) else {"schema": value}


def _bool(value: Any) -> bytes:
    return b"\1" if value else b"\0"


_NUMBERS_OF: dict[str, Encode] = {"int32": _int32, "int64": _int64, "bool": _bool}
_ODD: dict[str, Encode] = {
    "bytes": a2b_base64,
    "time": _time,
    "microtime": _micro_time,
    "quantity": _quantity,
    "intorstring": _int_or_string,
    "raw": _raw,
    "strings": _strings,
}
_UNIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "JSONSchemaPropsOrArray": _schema_or_list,
    "JSONSchemaPropsOrBool": _schema_or_bool,
    "JSONSchemaPropsOrStringArray": _schema_or_strings,
}
_NOTHING = frozenset(("time", "microtime", "raw"))
_EMPTY: dict[str, Any] = {"quantity": "0", "intorstring": 0}


# The envelope.

END = b"\x1a\0\x22\0"
"""The end of an envelope: the encoding and the type of its content, which are empty."""


@lru_cache(maxsize=4096)
def envelope_head(api_version: str, kind: str) -> bytes:
    """Return the beginning of an envelope: the length of the message follows, the message, and END."""
    meta = _delimited(_FIRST, api_version.encode()) + _delimited(_SECOND, kind.encode())
    return b"%b%b\x12" % (PREFIX, _delimited(_FIRST, meta))


def wrap(head: bytes, message: bytes) -> bytes:
    """Return the message in the envelope that begins with `head`."""
    return b"%b%b%b%b" % (head, encode_varint(len(message)), message, END)


def watch_event(type: str, body: bytes) -> bytes:
    """Return a watch event about an object in its envelope, after its length in four bytes."""
    event = _delimited(_FIRST, type.encode()) + _delimited(_SECOND, _delimited(_FIRST, body))
    return struct.pack(">I", len(event)) + event
