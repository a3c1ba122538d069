"""CEL's extended strings: searching, cutting and joining."""

from __future__ import annotations

from typing import Any

from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.format import format_template
from pinnace.schema.cel.overloads import function, library, member, overload
from pinnace.schema.cel.types import DYN, INT, STRING, list_of
from pinnace.schema.cel.values import MOST_CHARACTERS, check_size
from pinnace.schema.golang.patterns import PatternError, compile_pattern

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
    if len(new) > len(old):
        occurrences = text.count(old)
        check_size(
            len(text) + (occurrences if count < 0 else min(count, occurrences)) * (len(new) - len(old)), MOST_CHARACTERS
        )
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
    check_size(sum(map(len, texts)) + len(separator) * len(texts), MOST_CHARACTERS)
    return separator.join(texts)


_QUOTED = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\"",
}  # fmt: skip


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(each, each) for each in text) + '"'


def _find(text: str, pattern: str) -> str:
    match = _regex(pattern).search(text)
    return match.group() if match else ""


def _find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    matches = [match.group() for match in _regex(pattern).finditer(text)]
    return matches if count < 0 else matches[:count]


def _regex(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except PatternError as bad:
        raise CelError(f"Illegal regex: {bad}") from None


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
    function("format", member("string_format", (STRING, list_of(DYN)), STRING, format_template)),
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
