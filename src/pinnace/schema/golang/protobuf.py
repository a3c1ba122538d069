"""Decode protobuf messages to the JSON that Go would write for the same object.

Only the wire format is known here; the caller provides the number, name and type of each field. Readers are built
message by message when one is first met: rare fields of a kind cost nothing.
"""

from __future__ import annotations

import struct
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

MAX_DEPTH = 100
"""How deep messages may nest. Each adds at most two levels of JSON."""

LIST, MAP = "[]", "{}"

_SCALAR_TYPES = ("string", "int32", "int64", "bool", "double", "bytes")
_ODD_TYPES = ("time", "microtime", "quantity", "intorstring", "raw", "strings")
TYPES = frozenset((*_SCALAR_TYPES, *_ODD_TYPES))
"""The types of fields besides messages: scalars, and messages that have a form of their own in JSON."""

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MalformedProtobuf(ValueError):
    """The bytes are not such a message. The error messages are those of Go's decoders."""


class ProtobufField(NamedTuple):
    """One field of a message."""

    name: str
    """The name in JSON. Empty: the fields of this message are inlined in its parent."""
    number: int
    type: str = "string"
    """One of TYPES, or the name of a message."""
    shape: str = ""
    """LIST or MAP (by strings) of the type; empty for a single value."""
    keeps_zero: bool = False
    """Whether a zero or empty value is kept. Elsewhere it means that the field is not set."""
    is_pointer: bool = False
    """Whether Go has a pointer there: it does not write the field if it is not set, and writes all others."""


Fields = Callable[[str], Sequence[ProtobufField]]
"""Return the fields of a message by its name. Raise KeyError if it does not exist."""

_Fill = Callable[[dict[str, Any], bytes, int, int, int], None]
"""Decode the message between two offsets into an object; the last argument is its depth."""
_Read = Callable[[bytes, int, int, int], Any]
"""Decode the value between two offsets; None if there is none."""


_Entry = tuple[int, str, bool, Any]
"""How to decode one tag: the way, the field's name, whether it keeps zero, and the function for the value."""

# Ways to decode a field. Strings and messages have their own: they are most of all fields.
_TEXT, _MESSAGE, _INLINE, _MESSAGES, _TEXTS, _VALUE, _VALUES, _MAPPED, _NUMBER, _NUMBERS, _PACKED, _DOUBLE = range(12)

_LONE_NUMBERS = {_VARINT: _NUMBER}
_LISTED_NUMBERS = {_VARINT: _NUMBERS, _LENGTH: _PACKED}


class ProtobufReader:
    """Decodes the messages that `fields` describes."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._fills: dict[str, _Fill] = {}

    def read(self, message: str, data: bytes) -> dict[str, Any]:
        """Return the message in `data` as JSON. Raise MalformedProtobuf, and KeyError for an unknown message."""
        return self.read_part(message, data, 0, len(data))

    def read_part(self, message: str, data: bytes, at: int, end: int, depth: int = 0) -> dict[str, Any]:
        """Return the message between two offsets as JSON."""
        obj: dict[str, Any] = {}
        try:
            self.fill(message)(obj, data, at, end, depth)
        except IndexError:
            raise MalformedProtobuf("unexpected EOF") from None
        return obj

    def fill(self, message: str) -> _Fill:
        fill = self._fills.get(message)
        if fill is None:
            fill = self._fills[message] = _filler(message, self._fields(message), self)
        return fill

    def value(self, type: str) -> _Read:
        """Return the function that decodes a length-delimited value that is no string."""
        odd = _ODD.get(type)
        if odd is not None:
            return odd
        union = _UNIONS.get(type.rpartition(".")[2])
        if union is not None:
            return lambda data, at, end, depth: union(self.read_part(type, data, at, end, depth + 1))
        return lambda data, at, end, depth: self.read_part(type, data, at, end, depth + 1)


def _filler(message: str, fields: Sequence[ProtobufField], reader: ProtobufReader) -> _Fill:  # noqa: C901 - holds fill
    by_number = {field.number: field for field in fields}
    met: dict[int, _Entry] = {}  # By tag: the fields met so far.

    def meet(tag: int) -> _Entry | None:
        """Return how to decode a new tag; None to skip it. Raise MalformedProtobuf."""
        number, wire = tag >> 3, tag & 7
        if wire == _GROUP_END:
            raise MalformedProtobuf(f"proto: {message.rpartition('.')[2]}: wiretype end group for non-group")
        if not 0 < number < 2**31:
            raise MalformedProtobuf(f"proto: {message.rpartition('.')[2]}: illegal tag {number} (wire type {wire})")
        field = by_number.get(number)
        if field is None:
            return None
        entry = _entry(field, wire, reader)
        if entry is None:
            raise MalformedProtobuf(f"proto: wrong wireType = {wire} for field {_go_name(field)}")
        met[tag] = entry
        return entry

    # One loop over the bytes, because a call for each field doubles the time of a body.
    def fill(obj: dict[str, Any], data: bytes, at: int, end: int, depth: int) -> None:  # noqa: C901 - see above
        if depth > MAX_DEPTH:
            raise MalformedProtobuf("exceeded max depth")
        while at < end:
            tag = data[at]
            at += 1
            if tag > 127:  # Most tags and lengths have one byte, nearly all others two.
                if data[at] < 128:
                    tag += (data[at] - 1) << 7
                    at += 1
                else:
                    tag, at = _varint(data, at - 1)
            try:
                how, name, keeps_zero, read = met[tag]
            except KeyError:
                entry = meet(tag)
                if entry is None:
                    at = _skip(tag & 7, data, at)
                    continue
                how, name, keeps_zero, read = entry
            if how < _NUMBER:
                length = data[at]
                at += 1
                if length > 127:
                    if data[at] < 128:
                        length += (data[at] - 1) << 7
                        at += 1
                    else:
                        length, at = _varint(data, at - 1)
                stop = at + length
                if stop > end:
                    raise _cut_off(length)
                if how == _TEXT:
                    if length or keeps_zero:
                        try:
                            obj[name] = data[at:stop].decode()
                        except UnicodeDecodeError:
                            obj[name] = _text(data, at, stop, depth)
                elif how == _MESSAGE:
                    if length:
                        inner: dict[str, Any] = {}
                        read(inner, data, at, stop, depth + 1)
                        if inner or keeps_zero:
                            obj[name] = inner
                    elif keeps_zero:
                        obj[name] = {}
                elif how == _MESSAGES:
                    inner = {}
                    read(inner, data, at, stop, depth + 1)
                    if name in obj:
                        obj[name].append(inner)
                    else:
                        obj[name] = [inner]
                elif how == _INLINE:
                    read(obj, data, at, stop, depth + 1)
                elif how == _TEXTS:
                    obj.setdefault(name, []).append(_text(data, at, stop, depth))
                elif how == _MAPPED:
                    key, value = _map_entry(read, data, at, stop, depth)
                    obj.setdefault(name, {})[key] = value
                elif how == _VALUES:
                    obj.setdefault(name, []).append(read(data, at, stop, depth))
                else:
                    value = read(data, at, stop, depth)
                    if value or (keeps_zero and value is not None):
                        obj[name] = value
                at = stop
            elif how == _DOUBLE:
                if at + 8 > end:
                    raise MalformedProtobuf("unexpected EOF")
                value = _double(data, at)
                at += 8
                if value or keeps_zero:
                    obj[name] = value
            elif how == _PACKED:
                length, at = _varint(data, at)
                stop = at + length
                if stop > end:
                    raise _cut_off(length)
                values = obj.setdefault(name, [])
                while at < stop:
                    value, at = _varint(data, at)
                    values.append(read(value))
            else:
                value = data[at]
                at += 1
                if value > 127:
                    value, at = _varint(data, at - 1)
                if how == _NUMBERS:
                    obj.setdefault(name, []).append(read(value))
                elif value or keeps_zero:
                    obj[name] = read(value)
        if at != end:
            raise MalformedProtobuf("unexpected EOF")

    return fill


def _entry(field: ProtobufField, wire: int, reader: ProtobufReader) -> _Entry | None:
    """Return how to decode a field of this wire type; None if the field must not have it."""
    name, _, type, shape, keeps_zero, _ = field
    scalar = _SCALARS.get(type)
    if scalar is not None:
        how = (_LISTED_NUMBERS if shape == LIST else _LONE_NUMBERS).get(wire)
        return None if how is None else (how, name, keeps_zero, scalar)
    if type == "double":
        return (_DOUBLE, name, keeps_zero, None) if wire == _FIXED64 else None
    return _delimited(field, reader) if wire == _LENGTH else None


def _delimited(field: ProtobufField, reader: ProtobufReader) -> _Entry:
    name, _, type, shape, keeps_zero, _ = field
    if shape == MAP:
        return _MAPPED, name, keeps_zero, _text if type == "string" else reader.value(type)
    if type == "string":
        return _TEXTS if shape else _TEXT, name, keeps_zero, None
    if type in _ODD or type.rpartition(".")[2] in _UNIONS:
        # A zero in raw JSON is a value that a client wrote.
        return _VALUES if shape else _VALUE, name, keeps_zero or type == "raw", reader.value(type)
    return _MESSAGES if shape else _MESSAGE if name else _INLINE, name, keeps_zero, reader.fill(type)


# The wire.


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number that starts here, and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise MalformedProtobuf("proto: integer overflow")


def _cut_off(length: int) -> MalformedProtobuf:
    is_negative = length > 0x7FFFFFFFFFFFFFFF
    return MalformedProtobuf("proto: negative length found during unmarshaling" if is_negative else "unexpected EOF")


def _skip(wire: int, data: bytes, at: int) -> int:
    depth = 0
    while True:
        if wire == _VARINT:
            _, at = _varint(data, at)
        elif wire == _FIXED64:
            at += 8
        elif wire == _LENGTH:
            length, at = _varint(data, at)
            if length > len(data):
                raise _cut_off(length)
            at += length
        elif wire == _GROUP:
            depth += 1
        elif wire == _GROUP_END:
            if depth == 0:
                raise MalformedProtobuf("proto: unexpected end of group")
            depth -= 1
        elif wire == _FIXED32:
            at += 4
        else:
            raise MalformedProtobuf(f"proto: illegal wireType {wire}")
        if depth == 0:
            return at
        tag, at = _varint(data, at)
        wire = tag & 7


def _go_name(field: ProtobufField) -> str:
    if field.name == "metadata":
        return "ObjectMeta"
    name = field.name or field.type.rpartition(".")[2]
    return name[:1].upper() + name[1:]


# Values.


def _text(data: bytes, at: int, end: int, depth: int) -> str:
    try:
        return data[at:end].decode()
    except UnicodeDecodeError:
        return data[at:end].decode("utf-8", "replace")


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def _int64(value: int) -> int:
    return value - 0x10000000000000000 if value > 0x7FFFFFFFFFFFFFFF else value


def _double(data: bytes, at: int) -> float | int:
    value: float = struct.unpack_from("<d", data, at)[0]
    if value != value or value in (float("inf"), float("-inf")):
        raise MalformedProtobuf(f"json: unsupported value: {'NaN' if value != value else f'{value:+}'.title()}")
    # Go writes whole numbers without a fraction, unless they have more than 21 digits.
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def _bytes(data: bytes, at: int, end: int, depth: int) -> str:
    return b2a_base64(data[at:end], newline=False).decode()


def _blob(data: bytes, at: int, end: int, depth: int) -> bytes:
    return data[at:end]


def _raw(data: bytes, at: int, end: int, depth: int) -> Any:
    """Decode raw JSON inside a message."""
    text = _WELL_KNOWN.read_part("Raw", data, at, end).get("raw", b"")
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError as err:
        raise MalformedProtobuf(f"json: error calling MarshalJSON for type *runtime.RawExtension: {err}") from None


def _moment(data: bytes, at: int, end: int) -> datetime | None:
    if at == end:
        return None
    decoded = _WELL_KNOWN.read_part("Timestamp", data, at, end)
    try:
        return _EPOCH + timedelta(seconds=decoded.get("seconds", 0), microseconds=decoded.get("nanos", 0) // 1000)
    except OverflowError:
        raise MalformedProtobuf("Time.MarshalJSON: year outside of range [0,9999]") from None


def _time(data: bytes, at: int, end: int, depth: int) -> str | None:
    moment = _moment(data, at, end)
    return None if moment is None else f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}Z"


def _micro_time(data: bytes, at: int, end: int, depth: int) -> str | None:
    moment = _moment(data, at, end)
    return None if moment is None else f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _quantity(data: bytes, at: int, end: int, depth: int) -> str:
    if end - at > 2 and data[at] == 10 and data[at + 1] == end - at - 2:  # As every client writes it.
        return _text(data, at + 2, end, depth)
    return str(_WELL_KNOWN.read_part("Quantity", data, at, end).get("string", "0"))


def _int_or_string(data: bytes, at: int, end: int, depth: int) -> int | str:
    decoded = _WELL_KNOWN.read_part("IntOrString", data, at, end)
    kind = decoded.get("type", 0)
    if kind not in (0, 1):
        raise MalformedProtobuf(
            "json: error calling MarshalJSON for type intstr.IntOrString: impossible IntOrString.Type"
        )
    value: int | str = decoded.get("strVal", "") if kind else decoded.get("intVal", 0)
    return value


def _strings(data: bytes, at: int, end: int, depth: int) -> list[str]:
    items: list[str] = _WELL_KNOWN.read_part("Strings", data, at, end).get("items", [])
    return items


def _map_entry(read: _Read, data: bytes, at: int, end: int, depth: int) -> tuple[str, Any]:
    key = ""
    start = stop = at
    while at < end:
        tag = data[at]
        if tag != 10 and tag != 18:
            tag, at = _varint(data, at)
            at = _skip(tag & 7, data, at)
            if at > end:
                raise MalformedProtobuf("unexpected EOF")
            continue
        length = data[at + 1]
        at += 2
        if length > 127:
            length, at = _varint(data, at - 1)
        if at + length > end:
            raise _cut_off(length)
        if tag == 10:
            key = _text(data, at, at + length, depth)
        else:
            start, stop = at, at + length
        at += length
    return key, read(data, start, stop, depth)


def _schema_or_list(decoded: dict[str, Any]) -> Any:
    return decoded.get("jSONSchemas") or decoded.get("schema")


def _schema_or_bool(decoded: dict[str, Any]) -> Any:
    return decoded["schema"] if "schema" in decoded else decoded.get("allows", False)


def _schema_or_strings(decoded: dict[str, Any]) -> Any:
    return decoded.get("property") or decoded.get("schema")


_SCALARS: dict[str, Callable[[int], Any]] = {"int32": _int32, "int64": _int64, "bool": bool}
_ODD: dict[str, _Read] = {
    "bytes": _bytes,
    "blob": _blob,
    "time": _time,
    "microtime": _micro_time,
    "quantity": _quantity,
    "intorstring": _int_or_string,
    "raw": _raw,
    "strings": _strings,
}
_UNIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "JSONSchemaPropsOrArray": _schema_or_list,
    "JSONSchemaPropsOrBool": _schema_or_bool,
    "JSONSchemaPropsOrStringArray": _schema_or_strings,
}

_WELL_KNOWN = ProtobufReader(
    {
        "Quantity": (ProtobufField("string", 1),),
        "IntOrString": (
            ProtobufField("type", 1, "int64"),
            ProtobufField("intVal", 2, "int32"),
            ProtobufField("strVal", 3),
        ),
        "Timestamp": (ProtobufField("seconds", 1, "int64"), ProtobufField("nanos", 2, "int32")),
        "Raw": (ProtobufField("raw", 1, "blob"),),
        "Strings": (ProtobufField("items", 1, shape=LIST),),
        "TypeMeta": (ProtobufField("apiVersion", 1), ProtobufField("kind", 2)),
        "WatchEvent": (ProtobufField("type", 1), ProtobufField("object", 2, "Raw")),
        "Unknown": (
            ProtobufField("typeMeta", 1, "TypeMeta"),
            ProtobufField("raw", 2, "blob"),
            ProtobufField("contentEncoding", 3),
            ProtobufField("contentType", 4),
        ),
    }.__getitem__
)


# The envelope.


class ProtobufEnvelope(NamedTuple):
    """The envelope of an object: its apiVersion and kind, and its message."""

    api_version: str
    kind: str
    raw: bytes


PREFIX = b"k8s\0"


def read_envelope(body: bytes) -> ProtobufEnvelope:
    """Decode the envelope of a body. Raise MalformedProtobuf."""
    if not body:
        raise MalformedProtobuf("empty data")
    if not body.startswith(PREFIX):
        raise MalformedProtobuf(
            f"provided data does not appear to be a protobuf message, expected prefix [{' '.join(map(str, PREFIX))}]"
        )
    if len(body) == len(PREFIX):
        raise MalformedProtobuf("empty body")
    envelope = _WELL_KNOWN.read_part("Unknown", body, len(PREFIX), len(body))
    decoded = envelope.get("typeMeta", {})
    return ProtobufEnvelope(decoded.get("apiVersion", ""), decoded.get("kind", ""), envelope.get("raw", b""))


class WatchEvent(NamedTuple):
    """One event of a watch, with its object in its envelope."""

    type: str
    body: bytes


def split_events(data: bytes) -> list[bytes]:
    """Return the frames of a watch, each with its length in front."""
    frames, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4])
        frames.append(data[at:end])
        at = end
    return frames


def read_event(data: bytes) -> WatchEvent:
    """Decode one frame of a watch. Raise MalformedProtobuf."""
    decoded = _WELL_KNOWN.read_part("WatchEvent", data, 4, len(data))
    return WatchEvent(decoded.get("type", ""), decoded.get("object", {}).get("raw", b""))
