"""CEL's types, and the rules for assigning one type to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinnace.schema.cel.declarations import Declaration


@dataclass(frozen=True, slots=True)
class Type:
    """A type: its kind, its name, and the types it is made of."""

    kind: str
    name: str
    parameters: tuple[Type, ...] = ()
    # For objects with a schema: their fields.
    declaration: Declaration | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if self.kind == "null":
            return "null"
        if self.kind in ("timestamp", "duration"):
            return self.kind
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"


def _simple(name: str) -> Type:
    return Type(name, name)


DYN = _simple("dyn")
ERROR = Type("error", "!error!")
NULL = Type("null", "null_type")
BOOL = _simple("bool")
INT = _simple("int")
UINT = _simple("uint")
DOUBLE = _simple("double")
STRING = _simple("string")
BYTES = _simple("bytes")
TIMESTAMP = Type("timestamp", "google.protobuf.Timestamp")
DURATION = Type("duration", "google.protobuf.Duration")
TYPE = Type("type", "type")


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def type_of(inner: Type) -> Type:
    return Type("type", "type", (inner,))


def optional_of(inner: Type) -> Type:
    return Type("opaque", "optional_type", (inner,))


def opaque(name: str, *parameters: Type) -> Type:
    return Type("opaque", name, parameters)


def object_type(name: str, declaration: Declaration | None = None) -> Type:
    return Type("struct", name, (), declaration)


def parameter(name: str) -> Type:
    return Type("param", name)


COMPARABLE = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
_NULLABLE = frozenset({"opaque", "struct", "duration", "timestamp"})
_SCALAR = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})


def is_optional(type_: Type) -> bool:
    return type_.kind == "opaque" and type_.name == "optional_type"


def unwrap(type_: Type) -> Type:
    return type_.parameters[0] if is_optional(type_) else type_


def is_scalar(type_: Type) -> bool:
    """Return whether all values of the type have the same size in costs, unlike strings."""
    return type_.kind in _SCALAR or (is_optional(type_) and is_scalar(type_.parameters[0]))


def mentions_dyn(type_: Type) -> bool:
    return type_.kind in ("dyn", "param", "error") or any(map(mentions_dyn, type_.parameters))


class Bindings:
    """The bindings of type variables. A method that binds some binds all that it needs, or none."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}

    def assignable(self, first: Type, second: Type) -> bool:
        return self.all_assignable((first,), (second,))

    def all_assignable(self, first: Sequence[Type], second: Sequence[Type]) -> bool:
        before = dict(self._bound)
        if len(first) == len(second) and all(self._fits(a, b) for a, b in zip(first, second, strict=True)):
            return True
        self._bound = before
        return False

    def resolve(self, type_: Type, *, free_as_dyn: bool = False) -> Type:
        """Return the type with every bound variable replaced by its type."""
        bound = self._bound.get(type_)
        if bound is not None:
            return self.resolve(bound, free_as_dyn=free_as_dyn)
        if type_.kind == "param":
            return DYN if free_as_dyn else type_
        if not type_.parameters:
            return type_
        inner = tuple(self.resolve(each, free_as_dyn=free_as_dyn) for each in type_.parameters)
        return Type(type_.kind, type_.name, inner, type_.declaration)

    def _fits(self, first: Type, second: Type) -> bool:
        if second.kind == "param":
            valid, was_bound = self._substitutes(first, second)
            if valid or was_bound:
                return valid
        if first.kind == "param":
            return self._substitutes(second, first)[0]
        if first.kind in ("dyn", "error") or second.kind in ("dyn", "error"):
            return True
        if first.kind == "null" or second.kind == "null":
            other = second if first.kind == "null" else first
            return other.kind == "null" or other.kind in _NULLABLE
        if first.kind == "type":
            return second.kind == "type"
        if first.kind != second.kind or first.name != second.name or len(first.parameters) != len(second.parameters):
            return False
        return all(self._fits(a, b) for a, b in zip(first.parameters, second.parameters, strict=True))

    def _substitutes(self, type_: Type, variable: Type) -> tuple[bool, bool]:
        """Return whether the variable can be bound to the type, and whether it was bound before."""
        if type_ == variable:
            return True, True
        bound = self._bound.get(variable)
        if bound is not None:
            if type_ == bound:
                return True, True
            if not self._fits(type_, bound):
                return False, True
            wider = most_general(type_, bound)
            if not self._occurs(variable, wider):
                self._bound[variable] = wider
            return True, True
        if self._occurs(variable, type_):
            return False, False
        self._bound[variable] = type_
        return True, False

    def _occurs(self, variable: Type, within: Type) -> bool:
        if variable == within:
            return True
        if within.kind == "param":
            bound = self._bound.get(within)
            return bound is not None and self._occurs(variable, bound)
        return any(self._occurs(variable, each) for each in within.parameters)


def most_general(first: Type, second: Type) -> Type:
    """Return the wider of two compatible types."""
    return first if _no_narrower(first, second) else second


def _no_narrower(first: Type, second: Type) -> bool:
    if first.kind in ("dyn", "param"):
        return True
    if second.kind in ("dyn", "param"):
        return False
    if first.kind != second.kind:
        return False
    if first.kind == "type":
        return True
    if first.name != second.name or len(first.parameters) != len(second.parameters):
        return False
    return all(_no_narrower(a, b) for a, b in zip(first.parameters, second.parameters, strict=True))
