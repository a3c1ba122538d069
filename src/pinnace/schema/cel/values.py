"""CEL's values at run time, and its operators over them.

Most values are Python's own: None, bool, int, float, str, bytes, list and dict, so that documents need no conversion.
The few that Python lacks are defined here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

from pinnace.schema.cel.errors import CelError, NoSuchOverload

MINIMUM_INT = -(2**63)
MAXIMUM_INT = 2**63 - 1
MAXIMUM_UINT = 2**64 - 1
NANOS = 1_000_000_000
# 0001-01-01T00:00:00Z and the last nanosecond of the year 9999.
EARLIEST = -62135596800 * NANOS
LATEST = 253402300800 * NANOS - 1


class Uint(int):
    """An unsigned integer: equal to the int of the same value, but of another type."""

    __slots__ = ()


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Timestamp:
    """A point in time in nanoseconds since 1970, and the offset from UTC in which it was written."""

    nanos: int
    offset_seconds: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __lt__(self, other: Timestamp) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in nanoseconds."""

    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: the result of type(x)."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing."""

    present: bool
    content: Any = None

    def value(self) -> Any:
        if not self.present:
            raise CelError("optional.none() dereference")
        return self.content


NONE = Optional(False)


def some(value: Any) -> Optional:
    return Optional(True, value)


_TYPE_NAMES: dict[type, str] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    tuple: "list",
    dict: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    TypeValue: "type",
    Optional: "optional_type",
}


def type_name(value: Any) -> str:
    known = _TYPE_NAMES.get(type(value))
    return known if known is not None else str(getattr(value, "TYPE_NAME", type(value).__name__))


def type_value(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


def check_int(value: int) -> int:
    if MINIMUM_INT <= value <= MAXIMUM_INT:
        return value
    raise CelError("integer overflow")


def check_uint(value: int) -> Uint:
    if 0 <= value <= MAXIMUM_UINT:
        return Uint(value)
    raise CelError("unsigned integer overflow")


def check_duration(nanos: int) -> Duration:
    if MINIMUM_INT <= nanos <= MAXIMUM_INT:
        return Duration(nanos)
    raise CelError("integer overflow")


def check_timestamp(nanos: int, offset_seconds: int = 0) -> Timestamp:
    if EARLIEST <= nanos <= LATEST:
        return Timestamp(nanos, offset_seconds)
    raise CelError("timestamp overflow")


_NUMBERS = frozenset({int, Uint, float})


def equals(left: Any, right: Any) -> bool:
    """Return CEL's ==: numbers are compared by value whatever their type; values of other types are never equal."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is list:
            return len(left) == len(right) and all(map(equals, left, right))
        if kind is dict:
            return len(left) == len(right) and all(key in right and equals(left[key], right[key]) for key in left)
        if kind is Optional:
            return left.present == right.present and equals(left.content, right.content)
        return bool(left == right)
    if kind in _NUMBERS and other in _NUMBERS:
        # An integer is converted to a double first, as in Go, though that may change it.
        return float(left) == float(right) if kind is float or other is float else bool(left == right)
    return False


def contains(element: Any, container: Any) -> bool:
    """Return CEL's `in`: for lists by equality, for maps by key."""
    if type(container) is dict:
        return _has_bool_key(container, element) if type(element) is bool else has_key(container, element)
    if type(container) is list:
        return any(equals(each, element) for each in container)
    raise NoSuchOverload


def _has_bool_key(container: dict[Any, Any], element: Any) -> bool:
    return any(key is element for key in container)


def has_key(container: dict[Any, Any], key: Any) -> bool:
    try:
        return key in container
    except TypeError:
        return False


def compare(left: Any, right: Any) -> int:
    """Return a negative number, zero or a positive one. Raise NoSuchOverload if the two have no order."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
        if kind is not other and (kind is float or other is float):
            left, right = float(left), float(right)
    elif kind is not other or kind not in (str, bytes, bool, Timestamp, Duration):
        raise NoSuchOverload
    return -1 if left < right else int(left > right)


def less(left: Any, right: Any) -> bool:
    return compare(left, right) < 0


def less_equal(left: Any, right: Any) -> bool:
    return compare(left, right) <= 0


def greater(left: Any, right: Any) -> bool:
    return compare(left, right) > 0


def greater_equal(left: Any, right: Any) -> bool:
    return compare(left, right) >= 0


def divide(left: int, right: int) -> int:
    """Divide integers, rounding towards zero."""
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(left) // abs(right)
    return check_int(quotient if (left < 0) == (right < 0) else -quotient)


def remainder(left: int, right: int) -> int:
    """Return the remainder of the division, with the sign of the left side."""
    if right == 0:
        raise CelError("modulus by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def divide_uint(left: int, right: int) -> Uint:
    if right == 0:
        raise CelError("division by zero")
    return Uint(left // right)


def remainder_uint(left: int, right: int) -> Uint:
    if right == 0:
        raise CelError("modulus by zero")
    return Uint(left % right)


def divide_double(left: float, right: float) -> float:
    if right == 0:
        if left == 0 or left != left:
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    return left / right


MOST_CHARACTERS, MOST_ITEMS = 10_000_000, 1_000_000
"""The largest text and list that an expression makes, which Kubernetes limits only by their cost."""


def check_size(size: int, most: int) -> None:
    """Raise CelError for a value that would take too much memory: its cost is known only afterwards."""
    if size > most:
        raise CelError(f"a value of {size} characters or items is larger than {most}")


def add_lists(left: list[Any], right: list[Any]) -> list[Any]:
    check_size(len(left) + len(right), MOST_ITEMS)
    return left + right


def element_at(values: list[Any], index: Any) -> Any:
    """Return the element of a list. Raise CelError for an index below zero or past the end."""
    if type(index) is float and index.is_integer():
        index = int(index)
    if type(index) not in (int, Uint):
        raise CelError(f"unsupported index type '{type_name(index)}' in list")
    if 0 <= index < len(values):
        return values[index]
    raise CelError(f"index out of bounds: {index}")


def at(container: Any, key: Any) -> Any:
    """Return container[key], for a list or a map."""
    if type(container) is list:
        return element_at(container, key)
    if type(container) is dict:
        if contains(key, container):
            return container[key]
        raise CelError(f"no such key: {format_cel_value(key)}")
    if type(container) is Optional:
        return optional_at(container, key)
    raise CelError(f"no such key: {format_cel_value(key)}")


def optional_at(container: Any, key: Any) -> Optional:
    """Return container[?key]: none if the key is missing."""
    if type(container) is Optional:
        return optional_at(container.content, key) if container.present else NONE
    if type(container) is list:
        if type(key) is float and key.is_integer():
            key = int(key)
        if type(key) not in (int, Uint):
            raise NoSuchOverload
        return some(container[key]) if 0 <= key < len(container) else NONE
    if type(container) is dict:
        return some(container[key]) if contains(key, container) else NONE
    raise NoSuchOverload


def select(container: Any, name: str) -> Any:
    """Return container.name for a value of dynamic type."""
    if type(container) is dict:
        if name in container:
            return container[name]
    elif type(container) is Optional:
        return select_optional(container, name)
    raise CelError(f"no such key: {name}")


def select_optional(container: Any, name: str) -> Optional:
    """Return container.?name."""
    if type(container) is Optional:
        return select_optional(container.content, name) if container.present else NONE
    if type(container) is dict:
        return some(container[name]) if name in container else NONE
    raise CelError(f"no such key: {name}")


def has_key_named(container: Any, name: str) -> bool:
    """Return has(container.name)."""
    if type(container) is Optional:
        return container.present and has_key_named(container.content, name)
    return type(container) is dict and name in container


def field(container: Any, name: str) -> Any:
    """Return container.name for an object with a schema: null counts as absent."""
    value = container.get(name) if type(container) is dict else None
    if value is None:
        raise CelError(f"no such key: {name}")
    return value


def optional_field(container: Any, name: str) -> Optional:
    """Return container.?name for an object with a schema."""
    if type(container) is Optional:
        return optional_field(container.content, name) if container.present else NONE
    value = container.get(name) if type(container) is dict else None
    return NONE if value is None else some(value)


def has_field(container: Any, name: str) -> bool:
    """Return has(container.name) for an object with a schema."""
    return optional_field(container, name).present


def size(value: Any) -> int:
    if type(value) in (str, bytes, list, dict):
        return len(value)
    raise NoSuchOverload


def is_zero(value: Any) -> bool:
    """Return whether optional.ofNonZeroValue treats the value as none."""
    if type(value) is Timestamp:
        return value.nanos == EARLIEST
    if type(value) is Duration:
        return value.nanos == 0
    if type(value) is Optional:
        return not value.present
    return value is None or (type(value) in (bool, int, Uint, float, str, bytes, list, dict) and not value)


def format_cel_value(value: Any) -> str:
    """Format a value as cel-go does in messages."""
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return str(value)
