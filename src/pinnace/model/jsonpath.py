"""JSONPath as kubectl and the printer columns of custom resources use it, compiled to functions.

Beyond Kubernetes a path may end in a function. Both are read by Kubernetes as fields that are not there, so that such a
column is merely empty on a real cluster:

- `.length()` counts: the entries of the array or map that a plain path leads to, or all that a path with a wildcard,
  a slice or a filter finds. `.spec.rules.length()`, `.status.conditions[?(@.status=="True")].length()`
- `.join()` joins with commas what `.length()` would count; `.join(/)` with what stands between the brackets, where a
  backslash must precede a space, and each of `. , [ ] $ @ { }`. `.spec.hosts.join(\\,\\ )`

A short path may find more than a machine can hold: `.spec..a..a..a..a..a` in an object of depth 200 finds 2,500 million
values. So each evaluation counts its steps, and fails beyond a limit. Kubernetes has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from pinnace.model.objects import Object
from pinnace.schema.field_errors import go_float, go_json
from pinnace.schema.golang import text as gotext
from pinnace.schema.text_cache import cache_short_texts

MOST_STEPS = 5_000_000
"""The values that one evaluation of a path may pass, on behalf of a client that prints objects of its own."""
CHARACTERS_PER_STEP = 16
"""Printing so many characters costs as much as passing a value."""


class Find(Protocol):
    """Return all values that a path finds. Raise JsonPathError if the path does not fit the value, or has no steps
    left."""

    def __call__(self, value: Any, steps: Steps | None = None) -> list[Any]: ...


class Steps:
    """The steps that are left to one or several evaluations."""

    __slots__ = ("left",)

    def __init__(self, left: int = MOST_STEPS) -> None:
        self.left = left

    def spend(self, count: int) -> None:
        """Take steps. Raise JsonPathError if there are not so many."""
        self.left -= count
        if self.left < 0:
            raise JsonPathError("the path finds too many values")


_Step = Callable[[list[Any], Steps], list[Any]]

_ENDS_A_NAME = frozenset(" \t\r\n.,[]$@{}")
_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9.]*")
_FUNCTION = re.compile(r"(length|join)\((.*)\)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class JsonPathError(ValueError):
    """The path is invalid, or does not fit the value."""


class _Path:
    """A list of steps, and whether they lead to one place at most."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self.is_plain = True

    def find(self, value: Any, steps: Steps | None = None) -> list[Any]:
        steps = steps or Steps()
        values = [value]
        for step in self.steps:
            values = step(values, steps)
            steps.spend(len(values) + 1)
        return values


@cache_short_texts(4096)
def compile_path(path: str) -> Find:
    """Compile a path such as `.status.conditions[?(@.type=="Ready")].status`. Raise JsonPathError."""
    return _Reader(path).path().find


def text_of(value: Any) -> str:
    """Format a value for printing: objects and arrays as JSON, others plain."""
    if isinstance(value, str):
        return value
    return go_float(value) if isinstance(value, float) else go_json(value)


def fields_of(path: str) -> tuple[str, ...]:
    """Return the fields of a simple path, as the scale subresource uses it: .spec.replicas."""
    return tuple(path.removeprefix(".").split("."))


def value_at(obj: Object, fields: Sequence[str]) -> Any:
    """Return the value at a path, or None. Raise JsonPathError, in Go's words, if a parent has no fields."""
    here: Any = obj
    for number, field in enumerate(fields):
        if here is None:
            return None
        if here.__class__ is not dict:
            raise _wrong_type(fields[: number + 1], here, "map[string]interface{}")
        if field not in here:
            return None
        here = here[field]
    return here


def integer_at(obj: Object, fields: Sequence[str]) -> int | None:
    """Return the integer at a path, or None. Raise JsonPathError, in Go's words, for another type."""
    value = value_at(obj, fields)
    if value is not None and value.__class__ is not int:
        raise _wrong_type(fields, value, "int64")
    return None if value is None else int(value)


def text_at(obj: Object, fields: Sequence[str]) -> str | None:
    """Return the string at a path, or None. Raise JsonPathError, in Go's words, for another type."""
    value = value_at(obj, fields)
    if value is not None and value.__class__ is not str:
        raise _wrong_type(fields, value, "string")
    return None if value is None else str(value)


def _wrong_type(fields: Sequence[str], value: Any, wanted: str) -> JsonPathError:
    mismatch = f"{gotext.format_value(value)} is of the type {gotext.type_name(value)}, expected {wanted}"
    return JsonPathError(f".{'.'.join(fields)} accessor error: {mismatch}")


def put_at(obj: Object, fields: Sequence[str], value: Any) -> None:
    """Set the value at a path, creating missing parents. None removes it."""
    here = obj
    for field in fields[:-1]:
        if value is None and field not in here:
            return
        here = here.setdefault(field, {})
    if value is None:
        here.pop(fields[-1], None)
    else:
        here[fields[-1]] = value


class _Reader:
    """Parses one path from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._path = _Path()

    def path(self) -> _Path:
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if text.startswith("[?(", self._at):
                self._filter()
            elif text.startswith("..", self._at):
                self._descent()
            elif character in " @$":
                self._at += 1
            elif character == "[":
                self._brackets()
            elif character in "\"'":
                self._quoted(character)
            elif character == ".":
                self._at += 1
                self._field()
            elif character in "+-" or character.isdigit():
                self._number()
            elif character == "_" or character.isalpha():
                self._word()
            elif character in "\r\n":
                raise JsonPathError("unclosed action")
            else:
                raise JsonPathError(f"unrecognized character in action: U+{ord(character):04X} '{character}'")
        return self._path

    def _step(self, step: _Step, *, is_plain: bool = False) -> None:
        self._path.steps.append(step)
        self._path.is_plain &= is_plain

    def _name(self) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in _ENDS_A_NAME:
            self._at += 2 if self._text[self._at] == "\\" else 1
        return self._text[start : self._at]

    def _field(self) -> None:
        written = self._name()
        name = written.replace("\\", "")
        if name == "*":
            self._step(_wildcard)
        elif (function := _FUNCTION.fullmatch(name)) and self._at >= len(self._text):
            self._call(function[1], function[2])
        else:
            self._step(_field_step(name), is_plain=True)

    def _call(self, name: str, separator: str) -> None:
        if name == "length" and separator:
            self._step(_field_step(f"length({separator})"), is_plain=True)
        elif name == "length":
            self._step(_count(is_plain=self._path.is_plain))
        else:
            self._step(_join(separator or ",", is_plain=self._path.is_plain))

    def _descent(self) -> None:
        if self._path.steps and self._path.steps[-1] is _everything:
            raise JsonPathError("invalid multiple recursive descent")
        self._at += 2
        self._step(_everything)
        following = self._text[self._at : self._at + 1]
        if following == "_" or following.isalnum():
            self._field()

    def _quoted(self, quote: str) -> None:
        end = self._at + 1
        while not (self._text.startswith(quote, end) and self._text[end - 1] != "\\"):
            end += 1
            if end >= len(self._text):
                raise JsonPathError("unterminated quoted string")
        written = self._text[self._at + 1 : end]
        literal = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), written)
        self._at = end + 1
        self._step(lambda values, steps: [literal])

    def _number(self) -> None:
        number_text = _NUMBER.match(self._text, self._at)
        assert number_text is not None
        self._at = number_text.end()
        try:
            number = float(number_text[0]) if "." in number_text[0] else int(number_text[0])
        except ValueError:
            raise JsonPathError(f"cannot parse number {number_text[0]}") from None
        self._step(lambda values, steps: [number] * len(values))

    def _word(self) -> None:
        word = self._name()
        if word in ("true", "false"):
            self._step(lambda values, steps: [word == "true"] * len(values))
        else:
            self._step(_fail(f"unrecognized identifier {word}"))

    def _brackets(self) -> None:
        end = self._text.find("]", self._at)
        if end < 0:
            raise JsonPathError("unterminated array")
        inside = self._text[self._at + 1 : end]
        self._at = end + 1
        parts = inside.split(",")
        if len(parts) > 1:
            options = [_Reader(f"[{part.strip(' ')}]").path().find for part in parts]
            self._step(
                lambda values, steps: [value for option in options for each in values for value in option(each, steps)]
            )
        elif key := _KEY.fullmatch(inside):
            below = _Reader(f".{key[1]}").path()
            self._path.steps += below.steps
            self._path.is_plain &= below.is_plain
        else:
            self._slice(":" if inside == "*" else inside)

    def _slice(self, inside: str) -> None:
        written = _SLICE.fullmatch(inside)
        if written is None:
            raise JsonPathError(f"invalid array index {inside}")
        try:
            bounds = [
                int(part) if part else None
                for part in (group.lstrip(":") if group else "" for group in written.groups())
            ]
        except ValueError:
            raise JsonPathError(f"array index {inside} is not a number") from None
        is_index = written[2] is None
        self._step(_slice_step(bounds, is_index=is_index), is_plain=is_index)

    def _filter(self) -> None:
        start = at = self._at + 3
        quote = ""
        while at < len(self._text) and (quote or self._text[at] != ")"):
            character = self._text[at]
            if character in "\"'" and not quote:
                quote = character
            elif character == quote and self._text[at - 1] != "\\":
                quote = ""
            at += 1
        if at >= len(self._text):
            raise JsonPathError("unterminated filter")
        if not self._text.startswith(")]", at):
            raise JsonPathError("unclosed array expect ]")
        inside, self._at = self._text[start:at], at + 2
        comparison = _COMPARISON.fullmatch(inside)
        if comparison is None:
            self._step(_exists(_Reader(inside).path().find))
            return
        sides = (_Reader(comparison[1]).path().find, _Reader(comparison[3]).path().find)
        if comparison[2] in _COMPARISONS:
            self._step(_compare(*sides, comparison[2]))
        else:
            self._step(_fail(f"unrecognized filter operator {comparison[2]}"))


def _fail(why: str) -> _Step:
    """Return a step that fails: the path is valid but unsupported, so that such a column exists and is empty."""

    def fail(values: list[Any], steps: Steps) -> list[Any]:
        raise JsonPathError(why)

    return fail


def _field_step(name: str) -> _Step:
    def field(values: list[Any], steps: Steps) -> list[Any]:
        return [value[name] for value in values if value.__class__ is dict and name in value]

    return field


def _wildcard(values: list[Any], steps: Steps) -> list[Any]:
    return [inside for value in values for inside in _inside(value)]


def _inside(value: Any) -> Iterable[Any]:
    if value.__class__ is dict:
        return list(value.values())
    return value if value.__class__ is list else ()


def _everything(values: list[Any], steps: Steps) -> list[Any]:
    """Return the values and all their descendants that have children, from the outside inwards."""
    parents = []
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        if inside := list(_inside(value)):
            steps.spend(len(inside))
            parents.append(value)
            waiting += reversed(inside)
    return parents


def _slice_step(bounds: list[int | None], *, is_index: bool) -> _Step:
    first, last, step = bounds
    if step is not None and step <= 0:
        raise JsonPathError("step must be > 0")

    def cut(values: list[Any], steps: Steps) -> list[Any]:
        parts: list[Any] = []
        for value in values:
            if value is None:
                continue
            if value.__class__ is not list:
                raise JsonPathError("it is not array or slice")
            size = len(value)
            start = first or 0
            end = (start + 1 if is_index else size) if last is None else last
            is_last = is_index and end == 0
            start += size if start < 0 else 0
            end += size if end < 0 or is_last else 0
            if start == end:
                return parts
            if not 0 <= start < size or not start <= end <= size:
                raise JsonPathError(f"array index out of bounds: index {start}, length {size}")
            parts += value[start : end : step or 1]
        return parts

    return cut


def _items_of(values: list[Any]) -> Iterable[Any]:
    for value in values:
        if value.__class__ is not list:
            raise JsonPathError("it is not array or slice and cannot be filtered")
        yield from value


def _exists(left: Find) -> _Step:
    def exists(item: Any, steps: Steps) -> bool:
        steps.spend(1)
        try:
            return bool(left(item, steps))
        except JsonPathError:
            return False

    return lambda values, steps: [item for item in _items_of(values) if exists(item, steps)]


def _compare(left: Find, right: Find, operator: str) -> _Step:
    compare = _COMPARISONS[operator]

    def passes(item: Any, steps: Steps) -> bool:
        sides = left(item, steps), right(item, steps)
        if not sides[0] or not sides[1]:
            return False
        if len(sides[0]) > 1 or len(sides[1]) > 1:
            raise JsonPathError("can only compare one element at a time")
        first, second = sides[0][0], sides[1][0]
        if first.__class__ is not second.__class__ or first.__class__ not in (bool, int, float, str):
            raise JsonPathError("incompatible types for comparison")
        if first.__class__ is bool and operator not in ("==", "!="):
            raise JsonPathError("invalid type for comparison")
        return compare(first, second)

    return lambda values, steps: [item for item in _items_of(values) if passes(item, steps)]


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    ">": lambda left, right: bool(left > right),
    "<=": lambda left, right: bool(left <= right),
    ">=": lambda left, right: bool(left >= right),
}


def _count(*, is_plain: bool) -> _Step:
    def count(values: list[Any], steps: Steps) -> list[Any]:
        if not is_plain:
            return [len(values)]
        return [len(value) for value in values if value.__class__ in (list, dict, str)]

    return count


def _join(separator: str, *, is_plain: bool) -> _Step:
    def text(value: Any, steps: Steps) -> str:
        written = text_of(value)
        steps.spend(1 + (len(written) + len(separator)) // CHARACTERS_PER_STEP)
        return written

    def join(values: list[Any], steps: Steps) -> list[Any]:
        if not is_plain:
            return [separator.join([text(value, steps) for value in values])]
        return [separator.join([text(each, steps) for each in value]) for value in values if value.__class__ is list]

    return join
