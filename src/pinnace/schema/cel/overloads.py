"""Declarations of CEL functions: their overloads, each with its types and implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pinnace.schema.cel.errors import NoSuchOverload
from pinnace.schema.cel.types import Type
from pinnace.schema.cel.values import Duration, Optional, Timestamp, TypeValue, Uint, type_name


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. `inline` is its implementation as a Python expression over {0}, {1}..., if any."""

    id: str
    parameters: tuple[Type, ...]
    result: Type
    call: Callable[..., Any]
    is_member: bool = False
    inline: str = ""


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    overloads: tuple[Overload, ...]

    def overload_for(self, values: tuple[Any, ...], *, is_member: bool) -> Overload:
        """Return the overload that accepts these values. Raise NoSuchOverload."""
        for overload in self.overloads:
            if overload.is_member == is_member and accepts(overload, values):
                return overload
        raise NoSuchOverload(_misfit(self.name, values))


# The types of an operator's left side for which cel-go calls the operator at all.
_NUMBERS = frozenset({int, Uint, float})
_TIMES = frozenset({Timestamp, Duration})
_LEFT_SIDES: dict[str, frozenset[type]] = {
    "_+_": _NUMBERS | _TIMES | {str, bytes, list},
    "_-_": _NUMBERS | _TIMES,
    "_*_": _NUMBERS,
    "_/_": _NUMBERS,
    "_%_": frozenset({int, Uint}),
    "-_": frozenset({int, float, bool}),
    "!_": frozenset(_NUMBERS | _TIMES | {str, bytes, list, dict, bool, type(None)}),
    "size": frozenset({str, bytes, list, dict}),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _NUMBERS | _TIMES | {bool, str, bytes}),
}
_PLAIN = frozenset({"contains", "startsWith", "endsWith", "matches", "@in", "_[_]", "_[?_]"})


def _misfit(name: str, values: tuple[Any, ...]) -> str:
    """Return cel-go's message for values that no overload accepts. It depends on where cel-go notices."""
    wanted = _LEFT_SIDES.get(name)
    if name in _PLAIN or (wanted is not None and type(values[0]) in wanted | _TIMES | {str}):
        return "no such overload"
    if wanted is not None:
        return f"no such overload: {name}"
    return f"no such overload: {name}({', '.join(map(type_name, values))})"


Library = Mapping[str, tuple[Overload, ...]]


def function(name: str, *overloads: Overload) -> dict[str, tuple[Overload, ...]]:
    return {name: overloads}


def overload(identifier: str, parameters: tuple[Type, ...], result: Type, call: Any, inline: str = "") -> Overload:
    """Return an overload that is called as name(a, b)."""
    return Overload(identifier, parameters, result, call, False, inline)


def member(identifier: str, parameters: tuple[Type, ...], result: Type, call: Any, inline: str = "") -> Overload:
    """Return an overload that is called as a.name(b)."""
    return Overload(identifier, parameters, result, call, True, inline)


def library(*functions: Mapping[str, tuple[Overload, ...]]) -> Library:
    made: dict[str, tuple[Overload, ...]] = {}
    for each in functions:
        for name, overloads in each.items():
            made[name] = made.get(name, ()) + overloads
    return made


def combine(libraries: Iterable[Library]) -> dict[str, Function]:
    """Return the functions of several libraries; functions of the same name are overloads of each other."""
    return {name: Function(name, overloads) for name, overloads in library(*libraries).items()}


_PYTHON_TYPES: dict[str, type] = {
    "bool": bool,
    "int": int,
    "uint": Uint,
    "double": float,
    "string": str,
    "bytes": bytes,
    "timestamp": Timestamp,
    "duration": Duration,
    "list": list,
    "map": dict,
    "type": TypeValue,
    "null": type(None),
}


def accepts(overload: Overload, values: tuple[Any, ...]) -> bool:
    return len(overload.parameters) == len(values) and all(map(is_instance, overload.parameters, values))


def _holds(type_: Type, container: Any) -> bool:
    """Return whether the first element of a list or map fits; the others are assumed to have the same type."""
    if not container or type_.kind == "type":
        return True
    first = next(iter(container))
    if type_.kind == "list":
        return is_instance(type_.parameters[0], first)
    return is_instance(type_.parameters[0], first) and is_instance(type_.parameters[1], container[first])


def is_instance(type_: Type, value: Any) -> bool:
    """Return whether a value may be of the type, without a look at all its elements."""
    python_type = _PYTHON_TYPES.get(type_.kind)
    if python_type is not None:
        return type(value) is python_type and (not type_.parameters or _holds(type_, value))
    if type_.kind in ("dyn", "param"):
        return True
    if type_.name == "optional_type":
        return type(value) is Optional
    if type_.declaration is not None:
        return type(value) is dict
    return type_name(value) == type_.name
