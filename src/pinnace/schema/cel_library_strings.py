"""CEL's extended strings: searching, cutting, joining, and format()."""

from __future__ import annotations

import math
from typing import Any

from pinnace.schema.cel_errors import CelError
from pinnace.schema.cel_functions import function, library, member, overload
from pinnace.schema.cel_library_standard import double_text
from pinnace.schema.cel_times import duration_text, timestamp_text
from pinnace.schema.cel_types import DYN, INT, STRING, list_of
from pinnace.schema.cel_values import Duration, Timestamp, TypeValue, Uint, type_name
from pinnace.schema.patterns import PatternError, compile_pattern

TEXTS = list_of(STRING)
_GO_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"  # noqa: E501


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    return text.find(part, start) if start < len(text) else -1


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count if count >= 0 else -1)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    if count < 0 or count >= len(text):
        return list(text)
    return [*text[: count - 1], text[count - 1 :]]


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if end is not None and not 0 <= end <= len(text):
        raise _out_of_range(end)
    return text[start:end]


def _join(texts: list[Any], separator: str = "") -> str:
    for each in texts:
        if type(each) is not str:
            raise CelError(f"join: invalid input: {each}")
    return separator.join(texts)


_QUOTED = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\"",
}  # fmt: skip


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(each, each) for each in text) + '"'


def _find(text: str, pattern: str) -> str:
    found = _regex(pattern).search(text)
    return found.group() if found else ""


def _find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    found = [match.group() for match in _regex(pattern).finditer(text)]
    return found if count < 0 else found[:count]


def _regex(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except PatternError as bad:
        raise CelError(f"Illegal regex: {bad}") from None


def formatted(template: str, arguments: list[Any]) -> str:
    """The template with each % clause replaced by its argument."""
    made: list[str] = []
    used = 0
    at = 0
    while at < len(template):
        if template[at] != "%":
            made.append(template[at])
            at += 1
            continue
        at += 1
        if template[at : at + 1] == "%":
            made.append("%")
            at += 1
            continue
        if at >= len(template):
            raise CelError("unexpected end of string")
        if used >= len(arguments):
            raise CelError(f"index {used} out of range")
        at, precision = _precision(template, at)
        if at >= len(template):
            raise CelError("unexpected end of string")
        made.append(_clause(template[at], precision, arguments[used]))
        used += 1
        at += 1
    return "".join(made)


def _precision(template: str, at: int) -> tuple[int, int | None]:
    if template[at] != ".":
        return at, None
    end = at + 1
    while end < len(template) and template[end] in "0123456789":
        end += 1
    if end >= len(template):
        fault = "error while parsing precision: could not find end of precision specifier"
        raise CelError(f"could not parse formatting clause: {fault}")
    return end, int(template[at + 1 : end] or 0)


def _clause(kind: str, precision: int | None, value: Any) -> str:
    match kind:
        case "s":
            return _text(value)
        case "d":
            return _decimal(value)
        case "f" | "e":
            return _floating(kind, 6 if precision is None else precision, value)
        case "b":
            if type(value) is bool:
                return "1" if value else "0"
            return _radix("b", "binary", value, "only integers and bools can be formatted as binary")
        case "o":
            return _radix("o", "octal", value, "octal clause can only be used on integers")
        case "x" | "X":
            return _hex(kind, value)
    raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{kind}"')


def _misfit(complaint: str, value: Any) -> CelError:
    return CelError(f"error during formatting: {complaint}, was given {type_name(value)}")


def _decimal(value: Any) -> str:
    if type(value) in (int, Uint):
        return str(int(value))
    if type(value) is float and not math.isfinite(value):
        return _special(value)
    raise _misfit("decimal clause can only be used on integers", value)


def _floating(kind: str, precision: int, value: Any) -> str:
    if type(value) is float and not math.isfinite(value):
        return _special(value)
    if type(value) not in (float, int, Uint):
        complaint = "fixed-point" if kind == "f" else "scientific"
        raise _misfit(f"{complaint} clause can only be used on doubles", value)
    return format(float(value), f".{precision}{kind}")


def _radix(kind: str, _: str, value: Any, complaint: str) -> str:
    if type(value) not in (int, Uint):
        raise _misfit(complaint, value)
    return format(int(value), kind)


def _hex(kind: str, value: Any) -> str:
    if type(value) in (int, Uint):
        return format(int(value), kind)
    if type(value) in (str, bytes):
        text = (value.encode() if type(value) is str else value).hex()
        return text.upper() if kind == "X" else text
    raise _misfit("only integers, byte buffers, and strings can be formatted as hex", value)


def _special(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, Uint):
        return str(int(value))
    if type(value) is float:
        return double_text(value) if math.isfinite(value) else _special(value)
    if type(value) is bytes:
        return value.decode(errors="replace")
    if type(value) is Timestamp:
        return timestamp_text(value)
    if type(value) is Duration:
        return duration_text(value)
    if type(value) is TypeValue:
        return value.name
    if type(value) is list:
        return "[" + ", ".join(map(_text, value)) + "]"
    if type(value) is dict:
        pairs = sorted((_text(key), _text(each)) for key, each in value.items())
        return "{" + ", ".join(f"{key}: {each}" for key, each in pairs) + "}"
    raise _misfit(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        "and timestamps",
        value,
    )


STRINGS = library(
    function("charAt", member("string_char_at_int", (STRING, INT), STRING, _char_at)),
    function(
        "indexOf",
        member("string_index_of_string", (STRING, STRING), INT, _index_of),
        member("string_index_of_string_int", (STRING, STRING, INT), INT, _index_of),
    ),
    function(
        "lastIndexOf",
        member("string_last_index_of_string", (STRING, STRING), INT, _last_index_of),
        member("string_last_index_of_string_int", (STRING, STRING, INT), INT, _last_index_of),
    ),
    function("lowerAscii", member("string_lower_ascii", (STRING,), STRING, lambda text: text.translate(_LOWER))),
    function("upperAscii", member("string_upper_ascii", (STRING,), STRING, lambda text: text.translate(_UPPER))),
    function(
        "replace",
        member("string_replace_string_string", (STRING, STRING, STRING), STRING, _replace),
        member("string_replace_string_string_int", (STRING, STRING, STRING, INT), STRING, _replace),
    ),
    function(
        "split",
        member("string_split_string", (STRING, STRING), TEXTS, _split),
        member("string_split_string_int", (STRING, STRING, INT), TEXTS, _split),
    ),
    function(
        "substring",
        member("string_substring_int", (STRING, INT), STRING, _substring),
        member("string_substring_int_int", (STRING, INT, INT), STRING, _substring),
    ),
    function("trim", member("string_trim", (STRING,), STRING, lambda text: text.strip(_GO_SPACES))),
    function("format", member("string_format", (STRING, list_of(DYN)), STRING, formatted)),
    function("strings.quote", overload("strings_quote", (STRING,), STRING, _quote)),
    function(
        "join",
        member("list_join", (TEXTS,), STRING, _join),
        member("list_join_string", (TEXTS, STRING), STRING, _join),
    ),
    function("find", member("string_find_string", (STRING, STRING), STRING, _find)),
    function(
        "findAll",
        member("string_find_all_string", (STRING, STRING), TEXTS, _find_all),
        member("string_find_all_string_int", (STRING, STRING, INT), TEXTS, _find_all),
    ),
)
