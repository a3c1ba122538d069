"""RE2's regular expressions, as CEL has them, written anew for Python's engine.

Where the two differ, RE2 rules: no back references, no look-around, ASCII classes, $ only at the very end.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

MAXIMUM_REPEAT = 1000

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_PERL = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_CONTROL = {"a": r"\x07", "f": r"\f", "n": r"\n", "r": r"\r", "t": r"\t", "v": r"\v"}


class BadRegex(ValueError):
    """The pattern is none of RE2's; the message is Go's."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {what}: `{where}`")


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, ready to be searched for. Raises BadRegex."""
    translated = _Translator(pattern).whole()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRegex("invalid regular expression", pattern) from error


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._made: list[str] = []
        # One entry per open group: how many parentheses its closing one closes, and whether $ means a line's end.
        self._groups: list[tuple[int, bool]] = []
        self._closers = 0
        self._multiline = False
        self._can_repeat = False

    def whole(self) -> str:
        while self._at < len(self._pattern):
            self._one()
        if self._groups:
            raise BadRegex("missing closing )", self._pattern)
        return "".join(self._made) + ")" * self._closers

    def _one(self) -> None:
        character = self._pattern[self._at]
        match character:
            case "\\":
                self._escape()
            case "[":
                self._class()
            case "(":
                self._open()
            case ")":
                self._close()
            case "*" | "+" | "?":
                self._repeat(character, 1)
            case "{":
                self._counted()
            case "^":
                self._emit("^", 1, repeatable=True)
            case "$":
                self._emit("$" if self._multiline else r"\Z", 1, repeatable=True)
            case "|":
                self._emit("|", 1, repeatable=False)
            case _:
                self._emit(character if character == "." else re.escape(character), 1, repeatable=True)

    def _emit(self, text: str, width: int, *, repeatable: bool) -> None:
        self._made.append(text)
        self._at += width
        self._can_repeat = repeatable

    def _escape(self) -> None:
        rest = self._pattern[self._at : self._at + 2]
        if len(rest) < 2:
            raise BadRegex("trailing backslash at end of expression", "")
        kind = rest[1]
        if kind == "Q":
            end = self._pattern.find("\\E", self._at + 2)
            literal = self._pattern[self._at + 2 : end if end >= 0 else None]
            self._made.append("".join(f"(?:{re.escape(each)})" for each in literal))
            self._at = end + 2 if end >= 0 else len(self._pattern)
            self._can_repeat = bool(literal)
        elif kind in "Abz" or kind == "B":
            self._emit(r"\Z" if kind == "z" else rest, 2, repeatable=True)
        elif kind.lower() in _PERL:
            negation = "^" if kind.isupper() else ""
            self._emit(f"[{negation}{_PERL[kind.lower()]}]", 2, repeatable=True)
        elif kind in "pP":
            width, ranges, negated = self._property()
            self._emit(f"[{'^' if negated else ''}{ranges}]", width, repeatable=True)
        else:
            text, width = self._character()
            self._emit(text, width, repeatable=True)

    def _character(self) -> tuple[str, int]:
        """An escaped character that stands for itself or for a code."""
        rest = self._pattern[self._at :]
        kind = rest[1]
        if kind in _CONTROL:
            return _CONTROL[kind], 2
        if kind == "x":
            match = re.match(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))", rest)
            if match is None or int(match[1] or match[2], 16) > 0x10FFFF:
                raise BadRegex("invalid escape sequence", rest[:4])
            return re.escape(chr(int(match[1] or match[2], 16))), match.end()
        octal = re.match(r"\\([1-7][0-7]{1,2}|0[0-7]{0,2})", rest)
        if octal is not None:
            return re.escape(chr(int(octal[1], 8))), octal.end()
        if ord(kind) < 128 and not kind.isalnum():
            return re.escape(kind), 2
        raise BadRegex("invalid escape sequence", rest[:2])

    def _property(self) -> tuple[int, str, bool]:
        match = re.match(r"\\([pP])(?:\{(\^?)([^}]*)\}|([A-Z]))", self._pattern[self._at :])
        if match is None:
            raise BadRegex("invalid character class range", self._pattern[self._at : self._at + 3])
        name = match[3] or match[4]
        ranges = _category_ranges(name)
        if not ranges:
            raise BadRegex("invalid character class range", match.group())
        return match.end(), ranges, (match[1] == "P") != (match[2] == "^")

    def _class(self) -> None:
        start = self._at
        self._at += 1
        made = ["["]
        if self._pattern[self._at : self._at + 1] == "^":
            made.append("^")
            self._at += 1
        is_first = True
        while True:
            rest = self._pattern[self._at :]
            if not rest:
                raise BadRegex("missing closing ]", self._pattern[start:])
            if rest[0] == "]" and not is_first:
                self._at += 1
                break
            is_first = False
            made.append(self._class_part(rest))
        self._emit("".join(made) + "]", 0, repeatable=True)

    def _class_part(self, rest: str) -> str:
        posix = re.match(r"\[:(\^?)([a-z]+):\]", rest)
        if posix is not None:
            if posix[2] not in _POSIX:
                raise BadRegex("invalid character class range", posix.group())
            self._at += posix.end()
            return _complement(_POSIX[posix[2]]) if posix[1] else _POSIX[posix[2]]
        if rest[0] == "\\" and len(rest) > 1 and rest[1].lower() in _PERL:
            self._at += 2
            ranges = _PERL[rest[1].lower()]
            return _complement(ranges) if rest[1].isupper() else ranges
        if rest[0] == "\\" and len(rest) > 1 and rest[1] in "pP":
            width, ranges, negated = self._property()
            self._at += width
            return _complement(ranges) if negated else ranges
        low = self._class_character()
        if self._pattern[self._at : self._at + 1] == "-" and self._pattern[self._at + 1 : self._at + 2] not in (
            "]",
            "",
        ):
            self._at += 1
            high = self._class_character()
            if _code(high) < _code(low):
                raise BadRegex("invalid character class range", f"{low}-{high}")
            return f"{low}-{high}"
        return low

    def _class_character(self) -> str:
        rest = self._pattern[self._at :]
        if rest[0] == "\\":
            if len(rest) < 2:
                raise BadRegex("trailing backslash at end of expression", "")
            text, width = self._character()
            self._at += width
            return text
        self._at += 1
        return rest[0] if rest[0].isalnum() or ord(rest[0]) > 127 else "\\" + rest[0]

    def _open(self) -> None:
        rest = self._pattern[self._at :]
        named = re.match(r"\(\?P?<([A-Za-z_][A-Za-z0-9_]*)>", rest)
        flags = re.match(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])", rest)
        if named is not None:
            self._enter(f"(?P<{named[1]}>", named.end())
        elif rest.startswith("(?:"):
            self._enter("(?:", 3)
        elif flags is not None and (flags[1] or flags[2]):
            self._flags(flags)
        elif rest.startswith("(?"):
            raise BadRegex("invalid or unsupported Perl syntax", rest[:3] if rest[2:3] != "<" else rest[:4])
        else:
            self._enter("(", 1)

    def _enter(self, text: str, width: int) -> None:
        self._groups.append((self._closers, self._multiline))
        self._closers = 0
        self._emit(text, width, repeatable=False)

    def _flags(self, match: re.Match[str]) -> None:
        on, off = match[1], match[2] or ""
        if "U" in on + off:
            raise BadRegex("invalid or unsupported Perl syntax", match.group())
        multiline = ("m" in on) or (self._multiline and "m" not in off)
        text = f"(?{on}{'-' + off if off else ''}:"
        if match[3] == ":":
            self._enter(text, match.end())
        else:
            # Flags without a group hold until the surrounding group ends.
            self._closers += 1
            self._emit(text, match.end(), repeatable=False)
        self._multiline = multiline

    def _close(self) -> None:
        if not self._groups:
            raise BadRegex("unexpected )", self._pattern)
        closers, self._closers = self._closers, 0
        self._closers, self._multiline = self._groups.pop()
        self._emit(")" * (closers + 1), 1, repeatable=True)

    def _counted(self) -> None:
        match = re.match(r"\{([0-9]+)(?:,([0-9]*))?\}", self._pattern[self._at :])
        if match is None:
            self._emit(r"\{", 1, repeatable=True)
            return
        low, high = int(match[1]), int(match[2]) if match[2] else None
        if low > MAXIMUM_REPEAT or (high is not None and (high > MAXIMUM_REPEAT or high < low)):
            raise BadRegex("invalid repeat count", match.group())
        self._repeat(match.group(), match.end())

    def _repeat(self, text: str, width: int) -> None:
        if not self._can_repeat:
            what = "missing argument to repetition operator"
            previous = self._pattern[max(0, self._at - 1) : self._at]
            if previous in ("*", "+", "?", "}"):
                raise BadRegex("invalid nested repetition operator", previous + text)
            raise BadRegex(what, text)
        if self._pattern[self._at + width : self._at + width + 1] == "?":
            text += "?"
            width += 1
        self._emit(text, width, repeatable=False)


def _code(text: str) -> int:
    return ord(text) if len(text) == 1 else ord(re.sub(r"\\(.)", r"\1", text)) if len(text) == 2 else 0


def _complement(ranges: str) -> str:
    """All characters outside of the ranges, written as ranges."""
    inside = re.compile(f"[{ranges}]")
    return _spans([code for code in range(sys.maxunicode + 1) if inside.match(chr(code)) is None])


@lru_cache(maxsize=64)
def _category_ranges(name: str) -> str:
    """The characters of a Unicode general category such as L or Lu; empty for names that are none."""
    if name == "Any":
        return r"\x00-\U0010ffff"
    if not re.fullmatch("[CLMNPSZ][a-z]?", name):
        return ""
    members = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith(name)]
    return _spans(members)


def _spans(codes: list[int]) -> str:
    made: list[str] = []
    start = previous = -2
    for code in [*codes, -2]:
        if code == previous + 1:
            previous = code
            continue
        if start >= 0:
            made.append(f"\\U{start:08x}-\\U{previous:08x}")
        start = previous = code
    return "".join(made)
