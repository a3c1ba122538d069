"""Sets of fields in the form of managedFields: {"f:data": {".": {}, "f:a": {}}}.

A set is a plain dict. A key is a path element: f:name of a field, k:{"name":"x"} or v:"x" of an item of an associative
list, i:0 of an index. Its value is the set below that path; the path itself is a member if that set is empty, or
contains ".". No function changes its arguments, and results share parts with them: treat every set as frozen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import orjson

from pinnace.process.work_slices import give_way
from pinnace.schema.golang.text import format_value, quote
from pinnace.schema.text_cache import MOST_CACHED, cache_short_texts

FieldSet = dict[str, Any]
Path = tuple[str, ...]
"""Path elements as in a set: ("f:spec", 'k:{"name":"a"}')."""

_NOTHING: FieldSet = {}
_PLAIN_ITEM = re.compile(r"""v:"[^\x00-"\\]*"|k:\{"[^\x00-"\\]*":"[^\x00-"\\]*"\}""")

P = ParamSpec("P")
T = TypeVar("T")


def refusing_depth(function: Callable[P, T]) -> Callable[P, T]:
    """Turn Python's RecursionError into a ValueError, which callers expect for a bad value."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            raise ValueError("the object is nested too deeply") from None

    return guarded


def is_empty(fields: FieldSet) -> bool:
    return not fields


def _is_member(below: FieldSet) -> bool:
    return not below or "." in below


def contains(fields: FieldSet, path: Path) -> bool:
    """Return whether the path itself is a member: being above or below one is not enough."""
    for element in path:
        below = fields.get(element)
        if below is None:
            return False
        fields = below
    return bool(path) and _is_member(fields)


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    if not a or not b:
        return a or b
    give_way()
    out = dict(a)
    for element, below in b.items():
        mine = out.get(element)
        if mine is None:
            out[element] = below
        elif mine is not below and element != ".":
            out[element] = _unite(mine, below)
    return out


def _unite(a: FieldSet, b: FieldSet) -> FieldSet:
    if a and b:
        return union(a, b)
    both = a or b
    return both if not both or "." in both else {".": {}, **both}


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of both."""
    give_way()
    out: FieldSet = {}
    for element, mine in a.items():
        other = b.get(element)
        if other is None or element == ".":
            continue
        below = intersection(mine, other) if mine and other else {}
        if _is_member(mine) and _is_member(other):
            out[element] = {".": {}, **below} if below else below
        elif below:
            out[element] = below
    return out


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of a that are not members of b; fields below a member of b stay."""
    if not a or not b:
        return a
    give_way()
    out: FieldSet = {}
    for element, mine in a.items():
        other = b.get(element)
        if other is None or element == ".":
            out[element] = mine
            continue
        below = difference(mine, other) if other else mine
        is_member = _is_member(mine) and not _is_member(other)
        if is_member:
            out[element] = {} if len(below) == 1 and "." in below else below
        else:
            below = {key: value for key, value in below.items() if key != "."}
            if below:
                out[element] = below
    return out


def recursive_difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of a that are neither members of b nor below one."""
    if not a or not b:
        return a
    give_way()
    out: FieldSet = {}
    for element, mine in a.items():
        other = b.get(element)
        if other is None or element == ".":
            out[element] = mine
        elif not _is_member(other):
            below = recursive_difference(mine, other)
            if len(below) == 1 and "." in below:
                out[element] = {}
            elif below or not mine:
                out[element] = below
    return out


def of_paths(*paths: Path) -> FieldSet:
    """Return the set of these paths."""
    out: FieldSet = {}
    for path in paths:
        path_set: FieldSet = {}
        for element in reversed(path):
            path_set = {element: path_set}
        out = union(out, path_set)
    return out


def paths(fields: FieldSet) -> Iterator[Path]:
    """Yield every member, in Kubernetes' order: those of one level sorted, then those below each."""
    yield from _paths(fields, ())


def _paths(fields: FieldSet, above: Path) -> Iterator[Path]:
    elements = _sorted_elements(fields)
    for element in elements:
        if element != "." and _is_member(fields[element]):
            yield (*above, element)
    for element in elements:
        if element != ".":
            yield from _paths(fields[element], (*above, element))


def format_path(path: Path) -> str:
    """Format a path for messages: .spec.containers[name="nginx"].image"""
    return "".join(map(format_element, path))


def format_element(element: str) -> str:
    kind, rest = element[:2], element[2:]
    if kind == "f:":
        return "." + rest
    if kind == "i:":
        return f"[{rest}]"
    value = orjson.loads(rest)
    if kind == "v:":
        return f"[={_format_value(value)}]"
    return "[" + ",".join(f"{key}={_format_value(value[key])}" for key in sorted(value)) + "]"


def _format_value(value: Any) -> str:
    if value is None:
        return "null"
    return quote(value) if isinstance(value, str) else format_value(value)


def sort_fields(fields: FieldSet) -> FieldSet:
    """Return the set with its elements in Kubernetes' order."""
    give_way()
    if not any(fields.values()):
        return dict.fromkeys(_sorted_elements(fields), _NOTHING)
    out: FieldSet = {}
    for element in _sorted_elements(fields):
        below = fields[element]
        out[element] = sort_fields(below) if below else below
    return out


def _sorted_elements(fields: FieldSet) -> list[str]:
    if len(fields) < 2:
        return list(fields)
    elements = sorted(fields)
    # "." sorts first and "f:" next by themselves; keys and values are sorted by value: port 80 before 443.
    if elements[-1] < "g" or (len(elements) == 2 and elements[0] == "."):
        return elements
    if len(elements) <= MOST_CACHED:
        return sorted(elements, key=_cached_order)
    return elements if _is_sorted_by_text(elements) else sorted(elements, key=_order)


def _is_sorted_by_text(elements: list[str]) -> bool:
    """Whether the order of these elements' texts is that of their values: then thousands of them need no keys.

    So it is if each has one value, a text without characters up to the quote that ends it.
    """
    return all(map(_PLAIN_ITEM.fullmatch, elements[1:] if elements[0] == "." else elements))


def _order(element: str) -> tuple[Any, ...]:
    kind, rest = element[:2], element[2:]
    if element == "." or kind == "f:":
        return (0, element)
    value = orjson.loads(rest)
    if kind == "k:":
        return (1, [(key, _value_order(value[key])) for key in sorted(value)])
    return (2, _value_order(value)) if kind == "v:" else (3, value)


_cached_order = cache_short_texts(8192)(_order)  # The same few names and ports repeat.


def _value_order(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (3, orjson.dumps(value))


def parse(fields: Any) -> FieldSet:
    """Check a set from a client and return it in canonical form. Raise ValueError if it is no set."""
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise ValueError("a set of fields is an object")
    return _parse_elements(fields)


@refusing_depth
def _parse_elements(fields: FieldSet) -> FieldSet:
    give_way()
    out: FieldSet = {}
    for element, below in fields.items():
        if not isinstance(below, dict):
            raise ValueError(f"what is below {element} is no object")
        if element == ".":
            out["."] = {}
        elif len(element) < 2:
            raise ValueError("key must be 2 characters long:")
        elif element[1] != ":":
            raise ValueError(f"missing colon: {element}")
        elif element[0] in "fkvi":
            if element[0] != "f":
                orjson.loads(element[2:])
            parsed = _parse_elements(below)
            out[element] = {} if len(parsed) == 1 and "." in parsed else parsed
    return out
