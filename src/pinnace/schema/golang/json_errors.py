"""Finds the first error in a text that is not JSON, with the message of a Kubernetes server."""

from __future__ import annotations

import re

MAX_DEPTH = 240
"""The deepest nesting of a body. Kubernetes' own limit is 10,000.

orjson encodes 254 levels: field owners and reviews nest an object some levels deeper.
"""

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_BEGUN = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?)?)?")
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_ESCAPED = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\"}
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_UNEXPECTED_END = "unexpected end of JSON input"


class _Error(Exception):
    pass


def error_for(text: str) -> str:
    """Return the first error of the text; empty if it is JSON. Invalid UTF-8 is represented by surrogates."""
    try:
        _Scanner(text).scan()
    except _Error as err:
        return str(err).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return ""


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def scan(self) -> None:
        open_brackets: list[str] = []
        while self._value(open_brackets) or self._close(open_brackets):
            if open_brackets[-1] == "{":
                self._key()

    def _value(self, open_brackets: list[str]) -> bool:
        """Read a scalar, or enter an object or array. Return whether a value inside it comes next."""
        letter = self._next()
        if letter not in ("{", "["):
            self._scalar(letter)
            return False
        self._at += 1
        open_brackets.append(letter)
        if len(open_brackets) > MAX_DEPTH:
            raise _Error(f"invalid character '{letter}' exceeded max depth")
        return self._next() != _close_bracket(letter)

    def _close(self, open_brackets: list[str]) -> bool:
        """After a value, leave the brackets that end here. Return False at the end of the text."""
        while True:
            letter = self._next(end_is_fine=not open_brackets)
            if not open_brackets:
                if letter:
                    raise self._invalid(letter, "after top-level value")
                return False
            if letter == _close_bracket(open_brackets[-1]):
                self._at += 1
                open_brackets.pop()
            elif letter == ",":
                self._at += 1
                return True
            else:
                what = "object key:value pair" if open_brackets[-1] == "{" else "array element"
                raise self._invalid(letter, f"after {what}")

    def _key(self) -> None:
        letter = self._next()
        if letter != '"':
            raise self._invalid(letter, "looking for beginning of object key string")
        self._string()
        letter = self._next()
        if letter != ":":
            raise self._invalid(letter, "after object key")
        self._at += 1

    def _scalar(self, letter: str) -> None:
        if letter == '"':
            self._string()
        elif letter in _LITERALS:
            self._literal(_LITERALS[letter])
        elif letter == "-" or (letter.isascii() and letter.isdigit()):
            self._number()
        else:
            raise self._invalid(letter, "looking for beginning of value")

    def _literal(self, word: str) -> None:
        for wanted in word:
            letter = self._letter()
            if letter != wanted:
                raise self._invalid(letter, f"in literal {word} (expecting '{wanted}')")
            self._at += 1

    def _number(self) -> None:
        whole = _NUMBER.match(self._text, self._at)
        begun = _NUMBER_BEGUN.match(self._text, self._at)
        assert begun is not None
        if whole is not None and whole.end() >= begun.end():
            self._at = whole.end()
            return
        self._at = begun.end()
        last = begun[0].rstrip("+-")[-1:]
        where = {".": "after decimal point in", "": "in"}.get(last, "in exponent of")
        raise self._invalid(self._letter(), f"{where} numeric literal")

    def _string(self) -> None:
        self._at += 1
        while True:
            if self._at >= len(self._text):
                raise _Error(_UNEXPECTED_END)
            letter = self._text[self._at]
            if letter == '"':
                self._at += 1
                return
            if letter < " ":
                raise self._invalid(letter, "in string literal")
            if letter == "\\":
                self._escape()
            else:
                self._at += 1

    def _escape(self) -> None:
        self._at += 1
        letter = self._letter()
        self._at += 1
        if letter == "u":
            for _ in range(4):
                digit = self._letter()
                if digit not in _HEXADECIMAL:
                    raise self._invalid(digit, "in \\u hexadecimal character escape")
                self._at += 1
        elif letter not in '"\\/bfnrt':
            raise self._invalid(letter, "in string escape code")

    def _next(self, *, end_is_fine: bool = False) -> str:
        """Return the next character that is not a space, without consuming it."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        if self._at < len(self._text):
            return self._text[self._at]
        if end_is_fine:
            return ""
        raise _Error(_UNEXPECTED_END)

    def _letter(self) -> str:
        """Return the letter here. Go reads a space at the end of the text, which no number or word may end with."""
        return self._text[self._at] if self._at < len(self._text) else " "

    def _invalid(self, letter: str, where: str) -> _Error:
        return _Error(f"invalid character {_quote(letter)} {where}")


def _close_bracket(bracket: str) -> str:
    return "}" if bracket == "{" else "]"


def _quote(letter: str) -> str:
    if letter == "'":
        return r"'\''"
    if letter in _ESCAPED:
        return f"'{_ESCAPED[letter]}'"
    if letter < " " or letter == "\x7f":
        return f"'\\x{ord(letter):02x}'"
    # Go reads bytes, and quotes the first byte of a letter as the character of that number.
    first = chr(letter.encode("utf-8", "surrogateescape")[0])
    return f"'{first}'" if first.isprintable() else f"'\\u{ord(first):04x}'"
