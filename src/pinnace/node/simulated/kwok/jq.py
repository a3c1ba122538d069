"""The part of jq that stages use: paths, indexes, iteration, pipes, select, comparisons, and, or, not, alternatives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Values = list[Any]
Filter = Callable[[Any], Values]

_token = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+(?:\.\d+)?)|(?P<field>\.[A-Za-z_]\w*)"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<sign>//|==|!=|<=|>=|[.|()\[\]<>?]))"""
)
_END = ("end", "")


class InvalidExpression(ValueError):
    """The expression cannot be parsed, or uses an unsupported part of jq."""


class _CannotIndex(Exception):
    """A value has no such index or field, or too many pairs of values would be compared."""


_MOST_PAIRS = 20_000


class Query:
    """A parsed expression."""

    def __init__(self, text: str) -> None:
        """Parse the expression. Raise InvalidExpression."""
        self._filter = _Parser(text).parse()

    def run(self, value: Any) -> Values | None:
        """Return the results that are not null; None if the expression fails on this value."""
        try:
            return [result for result in self._filter(value) if result is not None]
        except _CannotIndex:
            return None


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*_tokens(text), _END]
        self._at = 0

    def parse(self) -> Filter:
        pipe = self._pipe()
        if self._tokens[self._at] != _END:
            raise self._error()
        return pipe

    def _error(self) -> InvalidExpression:
        _, token = self._tokens[self._at]
        return InvalidExpression(f"cannot read {token or 'the end'!r} in the expression {self._text!r}")

    def _takes(self, sign: str) -> bool:
        if self._tokens[self._at][1] != sign or self._tokens[self._at][0] == "string":
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._error()

    def _pipe(self) -> Filter:
        left = self._alternative()
        while self._takes("|"):
            left = _chain(left, self._alternative())
        return left

    def _alternative(self) -> Filter:
        left = self._or()
        while self._takes("//"):
            left = _either(left, self._or())
        return left

    def _or(self) -> Filter:
        left = self._and()
        while self._takes("or"):
            left = _logical(left, self._and(), any)
        return left

    def _and(self) -> Filter:
        left = self._comparison()
        while self._takes("and"):
            left = _logical(left, self._comparison(), all)
        return left

    def _comparison(self) -> Filter:
        left = self._term()
        for sign, compare in _COMPARISONS.items():
            if self._takes(sign):
                return _compare(left, self._term(), compare)
        return left

    def _term(self) -> Filter:
        term = self._primary()
        while True:
            kind, text = self._tokens[self._at]
            if kind == "field":
                self._at += 1
                term = _chain(term, _field(text[1:]))
            elif self._takes("?"):
                term = _tolerant(term)
            elif text == "." and self._tokens[self._at + 1][1] == "[":
                self._at += 1
            elif self._takes("["):
                term = _chain(term, self._index())
            else:
                return term

    def _primary(self) -> Filter:
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "string":
            return _constant(_unquote(text))
        if kind == "number":
            return _constant(float(text) if "." in text else int(text))
        if kind == "field":
            return _field(text[1:])
        if text == ".":
            after = self._tokens[self._at]
            if after[0] == "string":
                self._at += 1
                return _field(_unquote(after[1]))
            return _identity
        if text == "(":
            inner = self._pipe()
            self._expect(")")
            return inner
        if text in _CONSTANTS:
            return _constant(_CONSTANTS[text])
        if text == "select":
            self._expect("(")
            condition = self._pipe()
            self._expect(")")
            return lambda value: [value for result in condition(value) if _is_true(result)]
        if text in _FUNCTIONS:
            return _FUNCTIONS[text]
        self._at -= 1
        raise self._error()

    def _index(self) -> Filter:
        if self._takes("]"):
            return _iterate
        kind, text = self._tokens[self._at]
        if kind == "end":
            raise self._error()
        self._at += 1
        self._expect("]")
        if kind == "string":
            return _field(_unquote(text))
        if kind == "number" and "." not in text:
            return _element(int(text))
        self._at -= 2
        raise self._error()


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _token.match(text, at)
        if match is None or match.lastgroup is None:
            raise InvalidExpression(f"cannot read {text[at:].strip()[:20]!r} in the expression {text!r}")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _identity(value: Any) -> Values:
    return [value]


def _constant(value: Any) -> Filter:
    return lambda _: [value]


def _field(name: str) -> Filter:
    def read(value: Any) -> Values:
        if value is None:
            return [None]
        if not isinstance(value, dict):
            raise _CannotIndex
        return [value.get(name)]

    return read


def _element(index: int) -> Filter:
    def read(value: Any) -> Values:
        if value is None:
            return [None]
        if not isinstance(value, list):
            raise _CannotIndex
        return [value[index] if -len(value) <= index < len(value) else None]

    return read


def _iterate(value: Any) -> Values:
    if isinstance(value, dict):
        return list(value.values())
    if not isinstance(value, list):
        raise _CannotIndex
    return value


def _chain(left: Filter, right: Filter) -> Filter:
    return lambda value: [result for inner in left(value) for result in right(inner)]


def _tolerant(inner: Filter) -> Filter:
    def read(value: Any) -> Values:
        try:
            return inner(value)
        except _CannotIndex:
            return []

    return read


def _either(left: Filter, right: Filter) -> Filter:
    tolerant = _tolerant(left)
    return lambda value: [result for result in tolerant(value) if _is_true(result)] or right(value)


def _logical(left: Filter, right: Filter, combine: Callable[[tuple[bool, bool]], bool]) -> Filter:
    return lambda value: [combine((_is_true(first), _is_true(second))) for first, second in _pairs(left, right, value)]


def _compare(left: Filter, right: Filter, compare: Callable[[Any, Any], bool]) -> Filter:
    def read(value: Any) -> Values:
        try:
            return [compare(first, second) for first, second in _pairs(left, right, value)]
        except TypeError:
            raise _CannotIndex from None

    return read


def _pairs(left: Filter, right: Filter, value: Any) -> list[tuple[Any, Any]]:
    lefts = left(value)
    rights = right(value) if lefts else []  # As jq: without a left value the right side is not evaluated.
    if len(lefts) * len(rights) > _MOST_PAIRS:
        raise _CannotIndex
    return [(first, second) for first in lefts for second in rights]


def _is_true(value: Any) -> bool:
    return value is not None and value is not False


def _length(value: Any) -> Values:
    return [0 if value is None else abs(value) if isinstance(value, int | float) else len(value)]


_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_FUNCTIONS: dict[str, Filter] = {"not": lambda value: [not _is_true(value)], "length": _length}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<=": lambda left, right: bool(left <= right),
    ">=": lambda left, right: bool(left >= right),
    "<": lambda left, right: bool(left < right),
    ">": lambda left, right: bool(left > right),
}
