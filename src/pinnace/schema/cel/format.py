"""CEL's format(): fill in the % clauses of a template, and check a template before it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.library.standard import double_text
from pinnace.schema.cel.times import duration_text, timestamp_text
from pinnace.schema.cel.tree import CelNode, ListLiteral, MapLiteral
from pinnace.schema.cel.values import Duration, Timestamp, TypeValue, Uint, type_name
from pinnace.schema.golang.numbers import parse_int
from pinnace.schema.golang.text import quote

_DIGITS = 6
_MAX_PRECISION = 1_000_000  # The limit of Go's fmt.
_SUPERSCRIPTS = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_NUMBER_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TEXT_ERROR = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
    "and timestamps"
)
_ERRORS = {
    "s": _TEXT_ERROR,
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "o": "octal clause can only be used on integers",
}
_KINDS: dict[str, frozenset[str]] = {
    "s": frozenset(
        {
            *("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration"),
            *("type", "null", "dyn"),
        }
    ),
    "d": frozenset({"int", "uint", "dyn"}),
    "f": frozenset({"double", "string", "dyn"}),
    "e": frozenset({"double", "string", "dyn"}),
    "b": frozenset({"int", "uint", "bool", "dyn"}),
    "x": frozenset({"int", "uint", "string", "bytes", "dyn"}),
    "o": frozenset({"int", "uint", "dyn"}),
}


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause such as %.3f: its letter, and its precision."""

    letter: str
    precision: int | None


def format_template(template: str, arguments: list[Any]) -> str:
    """Return the template with each clause replaced by its argument."""
    return _fill_in(template, len(arguments), lambda clause, place: _format_argument(clause, arguments[place]))[0]


def check_format(template: str, arguments: list[CelNode]) -> tuple[CelNode | None, str] | None:
    """Return the error of a template for these arguments: the argument and the message; None if it is valid."""
    blamed: list[CelNode] = []

    def check(clause: _Clause, place: int) -> str:
        letter = clause.letter.lower()
        misfit = _misfit(arguments[place], letter)
        if misfit is not None:
            blamed.append(misfit)
            raise CelError(f"error during formatting: {_ERRORS[letter]}, was given {misfit.type.name}")
        return ""

    try:
        _, used = _fill_in(template, len(arguments), check)
    except CelError as error:
        return (blamed[0] if blamed else None), str(error)
    if len(arguments) > used:
        return None, f"too many arguments supplied to string.format (expected {used}, got {len(arguments)})"
    return None


def _misfit(node: CelNode, letter: str) -> CelNode | None:
    if node.type.kind not in _KINDS[letter]:
        return node
    if letter != "s":
        return None
    inner: list[CelNode] = []
    if isinstance(node, ListLiteral):
        inner = node.elements
    elif isinstance(node, MapLiteral):
        inner = [part for entry in node.entries for part in (entry.key, entry.value)]
    return next((misfit for each in inner if (misfit := _misfit(each, letter)) is not None), None)


def _fill_in(template: str, count: int, fill: Callable[[_Clause, int], str]) -> tuple[str, int]:
    """Return the filled template, and the number of arguments used."""
    made: list[str] = []
    used = 0
    at = 0
    while at < len(template):
        if template[at] != "%":
            made.append(template[at])
            at += 1
        elif template.startswith("%%", at):
            made.append("%")
            at += 2
        else:
            if at + 1 >= len(template):
                raise CelError("unexpected end of string")
            if used >= count:
                raise CelError(f"index {used} out of range")
            clause, at = _clause(template, at + 1)
            made.append(fill(clause, used))
            used += 1
    return "".join(made), used


def _clause(template: str, at: int) -> tuple[_Clause, int]:
    precision: int | None = None
    if template[at] == ".":
        end = at + 1
        while end < len(template) and template[end] in "0123456789":
            end += 1
        error = "could not parse formatting clause: error while parsing precision"
        if end >= len(template):
            raise CelError(f"{error}: could not find end of precision specifier")
        digits = template[at + 1 : end]
        if not digits:
            parsing = 'strconv.Atoi: parsing "": invalid syntax'
            raise CelError(f"{error}: error while converting precision to integer: {parsing}")
        precision, at = parse_int(digits), end
        if precision is None:
            parsing = f'strconv.Atoi: parsing "{digits}": value out of range'
            raise CelError(f"{error}: error while converting precision to integer: {parsing}")
        if precision > _MAX_PRECISION:
            raise CelError(f"{error}: precision {precision} exceeds maximum allowed precision {_MAX_PRECISION}")
    letter = template[at]
    if letter not in "sdfebxXo":
        raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')
    return _Clause(letter, precision), at + 1


def _format_argument(clause: _Clause, value: Any) -> str:
    letter = clause.letter
    kind = type(value)
    digits = _DIGITS if clause.precision is None else clause.precision
    if letter == "s":
        return _text(value)
    if letter in ("f", "e") and (kind is float or (kind is str and value in _NUMBER_WORDS)):
        number = value if kind is float else _NUMBER_WORDS[value]
        return _format_fixed(number, digits) if letter == "f" else _format_scientific(number, digits)
    if letter == "b" and kind is bool:
        return "1" if value else "0"
    if letter in "xX" and kind in (str, bytes):
        text = (value.encode() if kind is str else value).hex()
        return str(text.upper() if letter == "X" else text)
    if letter in "dboxX" and kind in (int, Uint):
        return format(int(value), letter)
    raise CelError(f"error during formatting: {_ERRORS[letter.lower()]}, was given {type_name(value)}")


def _format_fixed(number: float, digits: int) -> str:
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return "NaN" if number != number else f"{number:,.{digits}f}"


def _format_scientific(number: float, width: int) -> str:
    if not math.isfinite(number):
        return _format_fixed(number, 0)
    mantissa, _, exponent = f"{number:.6e}".partition("e")
    power = f"{int(exponent):03d}" if int(exponent) < 0 else f"{int(exponent):02d}"
    # The precision is used as a width, as in earlier releases.
    return f"{mantissa}×10{power.translate(_SUPERSCRIPTS)}".rjust(width)


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is float:
        return double_text(value)
    if type(value) is bytes:
        return value.decode(errors="replace")
    if type(value) is Timestamp:
        return timestamp_text(value)
    if type(value) is Duration:
        return duration_text(value)
    return _literal(value)


def _literal(value: Any) -> str:
    """Format a value inside a list or map, as a literal of an expression."""
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, Uint):
        return str(int(value))
    if type(value) is str:
        return quote(value)
    if type(value) is bytes:
        return "b" + quote(value.decode(errors="replace"))
    if type(value) is float:
        return f"{value:.6f}" if math.isfinite(value) else f'"{double_text(value)}"'
    if type(value) is Timestamp:
        return f'timestamp("{timestamp_text(value)}")'
    if type(value) is Duration:
        return f'duration("{duration_text(value)}")'
    if type(value) is TypeValue:
        return value.name
    if type(value) is list:
        return "[" + ", ".join(map(_literal, value)) + "]"
    if type(value) is dict:
        pairs = sorted((_literal(key), _literal(each)) for key, each in value.items())
        return "{" + ", ".join(f"{key}:{each}" for key, each in pairs) + "}"
    raise CelError(f"error during formatting: {_TEXT_ERROR}, was given {type_name(value)}")
