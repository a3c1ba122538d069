"""Regular expressions in Go's syntax (RE2), said in Python's: a pattern means here what it means in Kubernetes."""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

MOST_REPEATS = 1000
_LAST = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]

_DIGIT: Ranges = ((0x30, 0x39),)
_SPACE: Ranges = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, Ranges] = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": _WORD,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}
_ESCAPES = {"a": 0x07, "f": 0x0C, "t": 0x09, "n": 0x0A, "r": 0x0D, "v": 0x0B}
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_GROUP_NAME = re.compile(r"\(\?P?<([^>]*)>")
_SCRIPTS = frozenset(("Arabic", "Armenian", "Cyrillic", "Devanagari", "Georgian", "Greek", "Han", "Hangul", "Hebrew"))
_SCRIPTS |= {"Hiragana", "Katakana", "Khmer", "Lao", "Latin", "Mongolian", "Tamil", "Telugu", "Thai", "Tibetan"}
_NAMED_OTHERWISE = {"Han": "CJK UNIFIED IDEOGRAPH"}


class PatternError(ValueError):
    """The pattern is none in Go's syntax. The message is Go's."""

    def __init__(self, why: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {why}: `{where}`")


class Found(Protocol):
    """A place in a text where a pattern matched."""

    def group(self) -> str | Any:
        """The text of that place."""


class Pattern(Protocol):
    """A compiled pattern. Its time is bounded by the length of the text, whatever the pattern."""

    def search(self, text: str, /) -> Found | None:
        """The first match anywhere in the text."""

    def finditer(self, text: str, /) -> Iterator[Found]:
        """All matches that do not overlap, from left to right."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Pattern:
    """A pattern that finds what Go's regexp would find. Raises PatternError.

    Python's own engine backtracks, and `^(a+)+$` makes it hang: it gets only what it cannot get lost in.
    """
    translated = _Translation(pattern).text()
    if not _cannot_backtrack_far(pattern):
        return _LinearPattern(pattern)
    try:
        return re.compile(translated)
    except re.error as err:
        raise PatternError(f"unsupported here: {err}", pattern) from None


_PIECE = re.compile(
    r"""
    (?P<atom> \\[dwsDWS.\-/+*?()\[\]{}|^$]          # one character, escaped
            | \[\^?(?:[^\\\[\]]|\\[dwsDWS.\-/+])+\]   # one of several characters
            | [^\\()\[\]{}*+?|^$] )                 # one character, itself
      (?: (?P<loop> [*+] | \{\d{1,2},\d{0,2}\} ) | \{\d{1,2}\} )?
    | (?P<open> \( (?:\?:)? (?!\?) ) | (?P<close> \) ) | (?P<choice> [|?] ) | (?P<place> [\^$] )
    """,
    re.VERBOSE,
)
_MOST_CHOICES = 6


def _cannot_backtrack_far(pattern: str) -> bool:
    """Whether backtracking is linear in the text: one start and one loop over single characters, or no loop at all.

    Up to 2**_MOST_CHOICES ways through the rest are a constant. Whatever is not understood here is said to be bad.
    """
    at = depth = loops = choices = splits = 0
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        if piece is None:
            return False
        at = piece.end()
        depth += (piece["open"] is not None) - (piece["close"] is not None)
        loops += piece["loop"] is not None
        choices += piece["choice"] is not None
        splits += piece["choice"] == "|" and depth == 0
    return choices <= _MOST_CHOICES and (loops == 0 or (loops == 1 and pattern[0] == "^" and splits == 0))


_MOST_MEMORY = 64 << 20
"""Go has no such limit of its own, but its syntax limits a program to about this."""
_REPEAT_SIZE = "invalid repetition size: "


class _LinearPattern:
    """A pattern on RE2, from which Go's engine descends: several times slower on short texts, and never lost."""

    def __init__(self, pattern: str) -> None:
        re2: Any = importlib.import_module("re2")  # Most patterns do not need it, and a cluster starts faster.
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = _MOST_MEMORY
        try:
            self._bytes = re2.compile(pattern.encode("utf-8", "replace"), options)
        except re2.error as err:
            why = err.args[0].decode() if isinstance(err.args[0], bytes) else str(err)
            if why.startswith(_REPEAT_SIZE):
                raise PatternError("invalid repeat count", why.removeprefix(_REPEAT_SIZE)) from None
            if "too large" in why:
                raise PatternError("expression too large", pattern) from None
            raise PatternError(f"unsupported here: {why}", pattern) from None

    def search(self, text: str, /) -> Found | None:
        found = self._bytes.search(text.encode("utf-8", "replace"))
        return None if found is None else _FoundBytes(found)

    def finditer(self, text: str, /) -> Iterator[Found]:
        data, last_end = text.encode("utf-8", "replace"), -1
        for found in self._bytes.finditer(data):
            start, end = found.span()
            if start == end and (start == last_end or (start < len(data) and data[start] & 0xC0 == 0x80)):
                continue  # Nothing right after a match, or inside a character, is no match to Go.
            last_end = end
            yield _FoundBytes(found)


class _FoundBytes:
    __slots__ = ("_found",)

    def __init__(self, found: Any) -> None:
        self._found = found

    def group(self) -> str:
        text: str = self._found.group().decode("utf-8", "replace")
        return text


class _Flags(NamedTuple):
    ignores_case: bool = False
    many_lines: bool = False
    dot_is_all: bool = False
    lazy: bool = False


class _Group(NamedTuple):
    outside: _Flags
    opened: int
    """How many scopes of (?i: the text has open where the group begins."""


class _Translation:
    """One walk over the pattern, which writes Python's spelling as it goes."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.said: list[str] = []
        self.flags = _Flags()
        self.groups: list[_Group] = []
        self.scopes = 0
        """Open (?i: scopes in the current group: Go's flags hold to its end, Python's need brackets."""
        self.repeatable = False
        self.repeated_from = -1

    def text(self) -> str:
        pattern = self.pattern
        while self.at < len(pattern):
            match pattern[self.at]:
                case "(":
                    self._open()
                case ")":
                    self._close()
                case "|":
                    self._alternative()
                case "*" | "+" | "?":
                    self._repeat(pattern[self.at], self.at + 1)
                case "{" if counted := _REPEAT.match(pattern, self.at):
                    self._repeat(self._count(counted), counted.end())
                case "[":
                    self._say(self._class())
                case "\\":
                    self._escape()
                case "^":
                    self._step(r"(?m:^)" if self.flags.many_lines else r"\A")
                case "$":
                    self._step(r"(?m:$)" if self.flags.many_lines else r"\Z")
                case ".":
                    self._step(r"(?s:.)" if self.flags.dot_is_all else "[^\n]")
                case character:
                    self._step(re.escape(character))
        if self.groups:
            raise PatternError("missing closing )", pattern)
        return "".join(self.said) + ")" * self.scopes

    def _say(self, text: str) -> None:
        self.said.append(text)
        self.repeatable, self.repeated_from = True, -1

    def _step(self, text: str) -> None:
        self.at += 1
        self._say(text)

    def _open(self) -> None:
        if not self.pattern.startswith("(?", self.at):
            self.groups.append(_Group(self.flags, self.scopes))
            self.scopes = 0
            self.said.append("(")
            self.at += 1
        elif named := _GROUP_NAME.match(self.pattern, self.at):
            name = named[1]
            if not name or not all(c == "_" or (c.isascii() and c.isalnum()) for c in name):
                raise PatternError("invalid named capture", named[0])
            self.groups.append(_Group(self.flags, self.scopes))
            self.scopes = 0
            self.said.append(f"(?P<{name}>" if name.isidentifier() else "(")
            self.at = named.end()
        elif self.pattern.startswith(("(?P<", "(?<"), self.at):
            raise PatternError("invalid named capture", self.pattern[self.at :])
        else:
            self._open_with_flags()
            return
        self.repeatable, self.repeated_from = False, -1

    def _open_with_flags(self) -> None:
        start, said, on, any_flag = self.at, self.flags._asdict(), True, False
        names = {"i": "ignores_case", "m": "many_lines", "s": "dot_is_all", "U": "lazy"}
        at = start + 2
        while at < len(self.pattern):
            character = self.pattern[at]
            at += 1
            if character in names:
                said[names[character]], any_flag = on, True
            elif character == "-" and on:
                on, any_flag = False, False
            elif character in ":)" and (on or any_flag):
                new = _Flags(**said)
                if character == ":":
                    self.groups.append(_Group(self.flags, self.scopes))
                    self.scopes = 0
                    self.said.append("(?:")
                if character == ":" or new.ignores_case != self.flags.ignores_case:
                    self.repeatable = False
                self._switch(new)
                self.at, self.repeated_from = at, -1
                return
            else:
                raise PatternError("invalid or unsupported Perl syntax", self.pattern[start:at])
        raise PatternError("invalid or unsupported Perl syntax", self.pattern[start:])

    def _switch(self, new: _Flags) -> None:
        if new.ignores_case != self.flags.ignores_case:
            self.said.append("(?i:" if new.ignores_case else "(?-i:")
            self.scopes += 1
        self.flags = new

    def _close(self) -> None:
        if not self.groups:
            raise PatternError("unexpected )", self.pattern)
        group = self.groups.pop()
        self.said.append(")" * self.scopes + ")")
        self.flags, self.scopes = group.outside, group.opened
        self.at += 1
        self.repeatable, self.repeated_from = True, -1

    def _alternative(self) -> None:
        outside = self.groups[-1].outside if self.groups else _Flags()
        self.said.append(")" * self.scopes + "|")
        self.scopes = 0
        now, self.flags = self.flags, outside
        self._switch(now)
        self.at += 1
        self.repeatable, self.repeated_from = False, -1

    def _count(self, counted: re.Match[str]) -> str:
        least, most = int(counted[1]), int(counted[3]) if counted[3] else None
        if least > MOST_REPEATS or (most is not None and (most > MOST_REPEATS or most < least)):
            raise PatternError("invalid repeat count", counted[0])
        return counted[0]

    def _repeat(self, operator: str, end: int) -> None:
        lazy, start = self.flags.lazy, self.at
        if self.pattern.startswith("?", end):
            lazy, end = not lazy, end + 1
        if self.repeated_from >= 0:
            raise PatternError("invalid nested repetition operator", self.pattern[self.repeated_from : end])
        if not self.repeatable:
            raise PatternError("missing argument to repetition operator", self.pattern[start:end])
        last = self.said[-1]
        if last in (r"\A", r"\Z", r"(?a:\b)"):
            self.said[-1] = f"(?:{last}|(?!))"  # Python will not repeat a bare place in the text.
        self.said.append(operator + ("?" if lazy else ""))
        self.at = end
        self.repeated_from = start

    def _escape(self) -> None:
        pattern, at = self.pattern, self.at
        if at + 1 >= len(pattern):
            raise PatternError("trailing backslash at end of expression", "")
        character = pattern[at + 1]
        places = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?:(?a:\B)|\A\Z)"}
        if character in places:
            self.at += 2
            self._say(places[character])
        elif character == "Q":
            literal, found, _ = pattern[at + 2 :].partition(r"\E")
            self.at = at + 2 + len(literal) + (2 if found else 0)
            for each in literal:
                self._say(re.escape(each))
        elif (ranges := self._class_escape()) is not None:
            self._say(_spelled(ranges))
        else:
            self._say(_character(self._one_escaped()))

    def _class_escape(self) -> Ranges | None:
        """The characters of \\d, \\W, \\pL and their like, which may also stand in brackets."""
        pattern, at = self.pattern, self.at
        character = pattern[at + 1 : at + 2]
        if character and character in "dswDSW":
            self.at += 2
            ranges = _PERL[character.lower()]
            return ranges if character.islower() else _others(ranges)
        if character not in ("p", "P"):
            return None
        end = at + 3
        name = pattern[at + 2 : end]
        if name == "{":
            end = pattern.find("}", at) + 1
            if not end:
                raise PatternError("invalid character class range", pattern[at:])
            name = pattern[at + 3 : end - 1]
        negated = (character == "P") != name.startswith("^")
        found = _unicode_class(name.removeprefix("^"))
        if found is None:
            raise PatternError("invalid character class range", pattern[at:end])
        self.at = end
        return _others(found) if negated else found

    def _one_escaped(self) -> int:
        pattern, at = self.pattern, self.at
        if at + 1 >= len(pattern):
            raise PatternError("trailing backslash at end of expression", "")
        character = pattern[at + 1]
        if character == "x":
            if found := re.compile(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))").match(pattern, at):
                point = int(found[1] or found[2], 16)
                if point <= _LAST:
                    self.at = found.end()
                    return point
            raise PatternError("invalid escape sequence", pattern[at : at + 3])
        octal = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})").match(pattern, at)
        if octal:
            self.at = octal.end()
            return int(octal[1], 8)
        if character in _ESCAPES:
            self.at += 2
            return _ESCAPES[character]
        if character.isascii() and not character.isalnum():
            self.at += 2
            return ord(character)
        raise PatternError("invalid escape sequence", pattern[at : at + 2])

    def _class(self) -> str:
        pattern, start = self.pattern, self.at
        self.at += 1
        negated = pattern.startswith("^", self.at)
        self.at += negated
        parts: list[str] = []
        first = True
        while first or not pattern.startswith("]", self.at):
            if self.at >= len(pattern):
                raise PatternError("missing closing ]", pattern[start:])
            first = False
            if posix := re.compile(r"\[:(\^?)(\w*):\]").match(pattern, self.at):
                if posix[2] not in _POSIX:
                    raise PatternError("invalid character class range", posix[0])
                ranges = _POSIX[posix[2]]
                parts.append(_inside(_others(ranges) if posix[1] else ranges))
                self.at = posix.end()
            elif pattern.startswith("\\", self.at) and (ranges_ := self._class_escape()) is not None:
                parts.append(_inside(ranges_))
            else:
                parts.append(_inside((self._range(),)))
        self.at += 1
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _range(self) -> tuple[int, int]:
        start = self.at
        low = high = self._class_character()
        if self.pattern.startswith("-", self.at) and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            high = self._class_character()
            if high < low:
                raise PatternError("invalid character class range", self.pattern[start : self.at])
        return low, high

    def _class_character(self) -> int:
        if self.at >= len(self.pattern):
            raise PatternError("missing closing ]", self.pattern)
        if self.pattern[self.at] == "\\":
            return self._one_escaped()
        self.at += 1
        return ord(self.pattern[self.at - 1])


def _character(point: int) -> str:
    return re.escape(chr(point))


def _inside(ranges: Ranges) -> str:
    """The ranges as they are written between brackets."""
    return "".join(_point(low) if low == high else f"{_point(low)}-{_point(high)}" for low, high in ranges)


def _point(point: int) -> str:
    character = chr(point)
    return character if character.isascii() and character.isalnum() else f"\\U{point:08x}"


def _spelled(ranges: Ranges) -> str:
    return f"[{_inside(ranges)}]"


def _others(ranges: Ranges) -> Ranges:
    found, start = [], 0
    for low, high in ranges:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    if start <= _LAST:
        found.append((start, _LAST))
    return tuple(found)


@lru_cache(maxsize=64)
def _unicode_class(name: str) -> Ranges | None:
    if name == "Any":
        return ((0, _LAST),)
    if name in _SCRIPTS:
        prefix = _NAMED_OTHERWISE.get(name, f"{name.upper()} ")
        return _runs(bytes(unicodedata.name(chr(point), "").startswith(prefix) for point in range(0x30000)))
    categories = _categories()
    chosen = frozenset(code for code, category in enumerate(categories[0]) if category.startswith(name))
    if not name or len(name) > 2 or not chosen:
        return None
    return _runs(bytes(code in chosen for code in categories[1]))


@lru_cache(maxsize=1)
def _categories() -> tuple[list[str], bytes]:
    codes: dict[str, int] = {}
    points = bytes(codes.setdefault(unicodedata.category(chr(point)), len(codes)) for point in range(_LAST + 1))
    return list(codes), points


def _runs(members: bytes) -> Ranges:
    return tuple((found.start(), found.end() - 1) for found in re.finditer(rb"\x01+", members))
