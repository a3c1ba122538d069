"""CEL's standard library: operators, conversions, sizes, strings and timestamps."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pinnace.schema.cel import values as values
from pinnace.schema.cel.errors import CelError, NoSuchOverload
from pinnace.schema.cel.overloads import Library, Overload, function, library, member, overload
from pinnace.schema.cel.times import (
    DURATION_PARTS,
    TIMESTAMP_PARTS,
    duration_text,
    local_time,
    parse_duration,
    parse_timestamp,
    timestamp_text,
)
from pinnace.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    parameter,
    type_of,
)
from pinnace.schema.cel.values import (
    MAXIMUM_INT,
    MAXIMUM_UINT,
    MINIMUM_INT,
    NANOS,
    Duration,
    Timestamp,
    Uint,
    add_lists,
    check_duration,
    check_int,
    check_timestamp,
    check_uint,
)
from pinnace.schema.field_errors import go_float
from pinnace.schema.golang.numbers import parse_int
from pinnace.schema.golang.patterns import PatternError, compile_pattern

A = parameter("A")
B = parameter("B")
LIST = list_of(A)
MAP = map_of(A, B)


def _never(*_: Any) -> Any:
    raise NoSuchOverload


def _identity(value: Any) -> Any:
    return value


def _ordering(
    name: str, word: str, symbol: str, compare: Callable[[Any, Any], bool]
) -> dict[str, tuple[Overload, ...]]:
    call = f"_{compare.__name__}({{0}}, {{1}})"
    plain = f"({{0}} {symbol} {{1}})"
    pairs: list[tuple[str, Type, Type, str]] = [
        ("bool", BOOL, BOOL, plain),
        ("int64", INT, INT, plain),
        ("int64_double", INT, DOUBLE, call),
        ("int64_uint64", INT, UINT, plain),
        ("uint64", UINT, UINT, plain),
        ("uint64_double", UINT, DOUBLE, call),
        ("uint64_int64", UINT, INT, plain),
        ("double", DOUBLE, DOUBLE, call),
        ("double_int64", DOUBLE, INT, call),
        ("double_uint64", DOUBLE, UINT, call),
        ("string", STRING, STRING, plain),
        ("bytes", BYTES, BYTES, plain),
        ("timestamp", TIMESTAMP, TIMESTAMP, plain),
        ("duration", DURATION, DURATION, plain),
    ]
    return function(name, *(overload(f"{word}_{suffix}", (a, b), BOOL, compare, how) for suffix, a, b, how in pairs))


_OPERATORS = library(
    function("_?_:_", overload("conditional", (BOOL, A, A), A, _never)),
    function("_&&_", overload("logical_and", (BOOL, BOOL), BOOL, _never)),
    function("_||_", overload("logical_or", (BOOL, BOOL), BOOL, _never)),
    function("!_", overload("logical_not", (BOOL,), BOOL, lambda value: not value, "(not {0})")),
    function("@not_strictly_false", overload("not_strictly_false", (BOOL,), BOOL, _identity)),
    function("_==_", overload("equals", (A, A), BOOL, values.equals)),
    function("_!=_", overload("not_equals", (A, A), BOOL, lambda left, right: not values.equals(left, right))),
    function(
        "_+_",
        overload("add_bytes", (BYTES, BYTES), BYTES, lambda a, b: a + b, "({0} + {1})"),
        overload("add_double", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a + b, "({0} + {1})"),
        overload(
            "add_duration_duration", (DURATION, DURATION), DURATION, lambda a, b: check_duration(a.nanos + b.nanos)
        ),
        overload(
            "add_duration_timestamp",
            (DURATION, TIMESTAMP),
            TIMESTAMP,
            lambda a, b: check_timestamp(a.nanos + b.nanos, b.offset_seconds),
        ),
        overload(
            "add_timestamp_duration",
            (TIMESTAMP, DURATION),
            TIMESTAMP,
            lambda a, b: check_timestamp(a.nanos + b.nanos, a.offset_seconds),
        ),
        overload("add_int64", (INT, INT), INT, lambda a, b: check_int(a + b), "_checked_int({0} + {1})"),
        overload("add_list", (LIST, LIST), LIST, add_lists),
        overload("add_string", (STRING, STRING), STRING, lambda a, b: a + b, "({0} + {1})"),
        overload("add_uint64", (UINT, UINT), UINT, lambda a, b: check_uint(a + b)),
    ),
    function(
        "_/_",
        overload("divide_double", (DOUBLE, DOUBLE), DOUBLE, values.divide_double),
        overload("divide_int64", (INT, INT), INT, values.divide),
        overload("divide_uint64", (UINT, UINT), UINT, values.divide_uint),
    ),
    function(
        "_%_",
        overload("modulo_int64", (INT, INT), INT, values.remainder),
        overload("modulo_uint64", (UINT, UINT), UINT, values.remainder_uint),
    ),
    function(
        "_*_",
        overload("multiply_double", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a * b, "({0} * {1})"),
        overload("multiply_int64", (INT, INT), INT, lambda a, b: check_int(a * b), "_checked_int({0} * {1})"),
        overload("multiply_uint64", (UINT, UINT), UINT, lambda a, b: check_uint(a * b)),
    ),
    function(
        "-_",
        overload("negate_double", (DOUBLE,), DOUBLE, lambda a: -a, "(-{0})"),
        overload("negate_int64", (INT,), INT, lambda a: check_int(-a), "_checked_int(-{0})"),
    ),
    function(
        "_-_",
        overload("subtract_double", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a - b, "({0} - {1})"),
        overload(
            "subtract_duration_duration",
            (DURATION, DURATION),
            DURATION,
            lambda a, b: check_duration(a.nanos - b.nanos),
        ),
        overload("subtract_int64", (INT, INT), INT, lambda a, b: check_int(a - b), "_checked_int({0} - {1})"),
        overload(
            "subtract_timestamp_duration",
            (TIMESTAMP, DURATION),
            TIMESTAMP,
            lambda a, b: check_timestamp(a.nanos - b.nanos, a.offset_seconds),
        ),
        overload(
            "subtract_timestamp_timestamp",
            (TIMESTAMP, TIMESTAMP),
            DURATION,
            lambda a, b: check_duration(a.nanos - b.nanos),
        ),
        overload("subtract_uint64", (UINT, UINT), UINT, lambda a, b: check_uint(a - b)),
    ),
    _ordering("_<_", "less", "<", values.less),
    _ordering("_<=_", "less_equals", "<=", values.less_equal),
    _ordering("_>_", "greater", ">", values.greater),
    _ordering("_>=_", "greater_equals", ">=", values.greater_equal),
    function(
        "_[_]",
        overload("index_list", (LIST, INT), A, values.at, "_element_at({0}, {1})"),
        overload("index_map", (MAP, A), B, values.at),
    ),
    function(
        "@in",
        overload("in_list", (A, LIST), BOOL, values.contains),
        overload("in_map", (A, MAP), BOOL, values.contains),
    ),
)


def _size(kind: str, type_: Type) -> tuple[Overload, Overload]:
    inline = "len({0})"
    return (
        overload(f"size_{kind}", (type_,), INT, values.size, inline),
        member(f"{kind}_size", (type_,), INT, values.size, inline),
    )


_SIZES = function("size", *_size("bytes", BYTES), *_size("list", LIST), *_size("map", MAP), *_size("string", STRING))


def _conversion_error(source: str, target: str) -> CelError:
    return CelError(f"type conversion error from '{source}' to '{target}'")


def _int_of_double(value: float) -> int:
    if not math.isfinite(value) or not -(2.0**63) < value < 2.0**63:
        raise CelError("integer overflow")
    return int(value)


def _uint_of_double(value: float) -> Uint:
    if not math.isfinite(value) or not 0 <= value < 2.0**64:
        raise CelError("unsigned integer overflow")
    return Uint(int(value))


def _decimal(text: str, lowest: int, highest: int, target: str) -> int:
    number = parse_int(text, least=lowest, greatest=highest)
    if number is None or (lowest == 0 and text[0] in "+-"):
        raise _conversion_error("string", target)
    return number


def _double_of_text(text: str) -> float:
    try:
        if text.strip() != text or "_" in text or not text.isascii():
            raise ValueError
        is_hex = text.lower().lstrip("+-").startswith("0x")
        if is_hex and "p" not in text.lower():
            raise ValueError
        value = float.fromhex(text) if is_hex else float(text)
        if math.isinf(value) and "inf" not in text.lower():
            raise ValueError
        return value
    except (ValueError, OverflowError):
        raise _conversion_error("string", "double") from None


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _bool_of_text(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _conversion_error("string", "bool")


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def double_text(value: float) -> str:
    """Format a double as Go's %g: the shortest form that parses to the same value."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return go_float(value)


def _duration_of_text(text: str) -> Duration:
    try:
        return parse_duration(text)
    except ValueError:
        raise _conversion_error("string", "google.protobuf.Duration") from None


def _timestamp_of_text(text: str) -> Timestamp:
    try:
        return parse_timestamp(text)
    except ValueError:
        raise _conversion_error("string", "google.protobuf.Timestamp") from None


_CONVERSIONS = library(
    function("type", overload("type", (A,), type_of(A), values.type_value, "_type_value({0})")),
    function("dyn", overload("to_dyn", (A,), DYN, _identity, "{0}")),
    function(
        "bool",
        overload("bool_to_bool", (BOOL,), BOOL, _identity, "{0}"),
        overload("string_to_bool", (STRING,), BOOL, _bool_of_text),
    ),
    function(
        "bytes",
        overload("bytes_to_bytes", (BYTES,), BYTES, _identity, "{0}"),
        overload("string_to_bytes", (STRING,), BYTES, str.encode),
    ),
    function(
        "double",
        overload("double_to_double", (DOUBLE,), DOUBLE, _identity, "{0}"),
        overload("int64_to_double", (INT,), DOUBLE, float, "float({0})"),
        overload("string_to_double", (STRING,), DOUBLE, _double_of_text),
        overload("uint64_to_double", (UINT,), DOUBLE, float, "float({0})"),
    ),
    function(
        "duration",
        overload("duration_to_duration", (DURATION,), DURATION, _identity, "{0}"),
        overload("int64_to_duration", (INT,), DURATION, Duration),
        overload("string_to_duration", (STRING,), DURATION, _duration_of_text),
    ),
    function(
        "int",
        overload("int64_to_int64", (INT,), INT, _identity, "{0}"),
        overload("double_to_int64", (DOUBLE,), INT, _int_of_double),
        overload("duration_to_int64", (DURATION,), INT, lambda value: value.nanos),
        overload("string_to_int64", (STRING,), INT, lambda text: _decimal(text, MINIMUM_INT, MAXIMUM_INT, "int")),
        overload("timestamp_to_int64", (TIMESTAMP,), INT, lambda value: value.nanos // NANOS),
        overload("uint64_to_int64", (UINT,), INT, lambda value: check_int(int(value))),
    ),
    function(
        "string",
        overload("string_to_string", (STRING,), STRING, _identity, "{0}"),
        overload("bool_to_string", (BOOL,), STRING, lambda value: "true" if value else "false"),
        overload("bytes_to_string", (BYTES,), STRING, _text_of_bytes),
        overload("double_to_string", (DOUBLE,), STRING, double_text),
        overload("duration_to_string", (DURATION,), STRING, duration_text),
        overload("int64_to_string", (INT,), STRING, str, "str({0})"),
        overload("timestamp_to_string", (TIMESTAMP,), STRING, timestamp_text),
        overload("uint64_to_string", (UINT,), STRING, lambda value: str(int(value))),
    ),
    function(
        "timestamp",
        overload("timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP, _identity, "{0}"),
        overload("int64_to_timestamp", (INT,), TIMESTAMP, lambda value: check_timestamp(value * NANOS)),
        overload("string_to_timestamp", (STRING,), TIMESTAMP, _timestamp_of_text),
    ),
    function(
        "uint",
        overload("uint64_to_uint64", (UINT,), UINT, _identity, "{0}"),
        overload("double_to_uint64", (DOUBLE,), UINT, _uint_of_double),
        overload("int64_to_uint64", (INT,), UINT, check_uint),
        overload("string_to_uint64", (STRING,), UINT, lambda text: Uint(_decimal(text, 0, MAXIMUM_UINT, "uint"))),
    ),
)


def matches(text: str, pattern: str) -> bool:
    """Return whether the pattern matches anywhere in the text."""
    try:
        return compile_pattern(pattern).search(text) is not None
    except PatternError as bad:
        raise CelError(str(bad)) from None


_STRINGS = library(
    function(
        "contains",
        member("contains_string", (STRING, STRING), BOOL, lambda text, part: part in text, "({0}.find({1}) >= 0)"),
    ),
    function("endsWith", member("ends_with_string", (STRING, STRING), BOOL, str.endswith, "{0}.endswith({1})")),
    function("startsWith", member("starts_with_string", (STRING, STRING), BOOL, str.startswith, "{0}.startswith({1})")),
    function(
        "matches",
        overload("matches", (STRING, STRING), BOOL, matches),
        member("matches_string", (STRING, STRING), BOOL, matches),
    ),
)


def _timestamp_part(read: Callable[[datetime], int]) -> Callable[..., int]:
    return lambda moment, zone="UTC": read(local_time(moment, zone))


def _duration_part(unit: int) -> Callable[[Duration], int]:
    return lambda span: span.nanos // unit if span.nanos >= 0 else -(-span.nanos // unit)


def _parts() -> Library:
    made: list[dict[str, tuple[Overload, ...]]] = []
    for name, (identifier, read) in TIMESTAMP_PARTS.items():
        call = _timestamp_part(read)
        made.append(
            function(
                name,
                member(identifier, (TIMESTAMP,), INT, call),
                member(f"{identifier}_with_tz", (TIMESTAMP, STRING), INT, call),
            )
        )
    for name, (identifier, unit) in DURATION_PARTS.items():
        made.append(function(name, member(identifier, (DURATION,), INT, _duration_part(unit))))
    return library(*made)


STANDARD = library(_OPERATORS, _SIZES, _CONVERSIONS, _STRINGS, _parts())

TYPE_NAMES: dict[str, Type] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "google.protobuf.Duration": DURATION,
    "int": INT,
    "list": list_of(A),
    "map": map_of(A, B),
    "null_type": Type("null", "null_type"),
    "string": STRING,
    "google.protobuf.Timestamp": TIMESTAMP,
    "type": TYPE,
    "uint": UINT,
}
