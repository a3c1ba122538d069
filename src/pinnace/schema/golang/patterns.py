"""Regular expressions in Go's syntax, on RE2, the parent of Go's engine: time is linear in the text.

Python's own engine backtracks, and `^(a+)+$` makes it hang. docs/decisions/0011-patterns.md has the measurements.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

from pinnace.process.work_slices import give_way
from pinnace.schema.text_cache import cache_short_texts

MAX_LENGTH = 10_000
"""The most characters of a pattern. Go has no such limit, but RE2 takes quadratic time to compile some patterns."""
_MOST_MEMORY = 32 << 20
"""Go has no such limit of its own, but its syntax limits a program to about this."""
_MOST_REPEATS = 1000
_NESTED, _COUNT = "invalid nested repetition operator", "invalid repeat count"
_GO_WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": _COUNT,
    "bad repetition operator": _NESTED,
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""RE2's names of errors where Go has others. The part of the pattern after the name is the same in both."""
_ESCAPE = re.compile(r"\\(?:Q.*?(?:\\E|\Z)|C|.)", re.DOTALL)
_LAST_COUNT = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}\??$")
_NO_MATCH = (-1, -1)


class PatternError(ValueError):
    """The pattern is not valid in Go's syntax. The message is Go's."""

    def __init__(self, why: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {why}: `{where}`")


class Match:
    """A match of a pattern in a text."""

    __slots__ = ("_data", "_span")

    def __init__(self, data: bytes, span: tuple[int, int]) -> None:
        self._data = data
        self._span = span

    def group(self) -> str:
        """Return the text that matched."""
        start, end = self._span
        return self._data[start:end].decode("utf-8", "replace")


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_anywhere", "_find")

    def __init__(self, pattern: str) -> None:
        """Raise PatternError."""
        re2: Any = importlib.import_module("re2")  # Few clusters have patterns at their start: they start faster.
        compiled = _compile(re2, pattern)
        re2.purge()  # It keeps the last 128 patterns, which may be large. `compile_pattern` keeps the short ones.
        # The compiled program itself: the methods around it cost three times as much as a match.
        self._find = compiled._regexp.Match
        self._anywhere = re2._Anchor.UNANCHORED

    def search(self, text: str, /) -> Match | None:
        """Return the first match anywhere in the text."""
        data = text.encode("utf-8", "replace")
        span = start, end = self._find(self._anywhere, data, 0, len(data))[0]
        if start == end and start > 0:  # Rare: an empty match, not at the start.
            return next(self.finditer(text), None)
        return None if span == _NO_MATCH else Match(data, span)

    def finditer(self, text: str, /) -> Iterator[Match]:
        """Yield all matches that do not overlap, from left to right."""
        data = text.encode("utf-8", "replace")
        at, last_end = 0, -1
        while at <= len(data):
            span = start, end = self._find(self._anywhere, data, at, len(data))[0]
            if span == _NO_MATCH:
                return
            # To Go, an empty match right after another match, or inside a character, is none.
            if start < end or (start != last_end and not _is_inside_character(data, start)):
                yield Match(data, span)
                last_end = end
            at = end if start < end else _next_character(data, end)


@cache_short_texts(1024)
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern that finds what Go's regexp would find. Raise PatternError if it is invalid or too long."""
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"expression too large: longer than {MAX_LENGTH} characters", f"{pattern[:40]}…")
    return Pattern(pattern)


def _compile(re2: Any, pattern: str) -> Any:
    give_way()  # One takes some milliseconds at most.
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MOST_MEMORY
    # Go refuses \C, which is one byte to RE2. Both refuse \c, in the same place.
    refused = _ESCAPE.sub(lambda escape: r"\c" if escape[0] == r"\C" else escape[0], pattern)
    try:
        return re2.compile(refused.encode("utf-8", "replace"), options)
    except re2.error as error:
        message = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
    if "too large" in message:
        raise PatternError("expression too large", pattern)
    what, _, where = message.partition(": ")
    if where == refused:
        where = pattern
    elif where == r"\c":
        where = next(escape[0] for escape in _ESCAPE.finditer(pattern) if escape[0] in (r"\c", r"\C"))
    raise _in_go_words(what, where)


def _in_go_words(what: str, where: str) -> PatternError:
    what = _GO_WORDS.get(what, what)
    if what in (_NESTED, _COUNT) and (counted := _LAST_COUNT.search(where)) and _is_too_large(counted):
        return PatternError(_COUNT, counted[0].removesuffix("?"))  # Go looks at the count first.
    return PatternError(what, where)


def _is_too_large(counted: re.Match[str]) -> bool:
    least, most = int(counted[1]), int(counted[2] or counted[1])
    return max(least, most) > _MOST_REPEATS or most < least


def _next_character(data: bytes, at: int) -> int:
    at += 1
    while _is_inside_character(data, at):
        at += 1
    return at


def _is_inside_character(data: bytes, at: int) -> bool:
    return at < len(data) and data[at] & 0xC0 == 0x80
