"""Writes answers as YAML in the style of a Kubernetes server: strings that look like other values are quoted.

The structure is written here, which is ten times faster than PyYAML's dumper and can stop at any value. libyaml writes
every scalar whose form is not obvious: the bytes are the same as if it had written everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple

import yaml

from pinnace.serving.request.yaml_body import YamlError, by_looks

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT = "tag:yaml.org,2002:str"
_is_time = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([Tt ]\s*\d{1,2}:\d{1,2}:\d{1,2}(\.\d*)?(\s*(Z|[-+]\d{1,2}(:?\d{2})?))?)?"
).fullmatch
_is_sexagesimal = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?").fullmatch
_is_plain_word = re.compile(r"[A-Za-z/][A-Za-z0-9/_.-]{5,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
"""A word that is longer than every word with a meaning of its own, or a UUID."""
_is_number = re.compile(r"[1-9][0-9]{0,17}").fullmatch

_WIDTH = 80
"""libyaml breaks longer lines at spaces."""
_SHORT = 64
"""The length up to which the form of a text is remembered."""
_LONGEST_KEY = 128
"""libyaml writes a key of more bytes on a line of its own."""
_has_break = re.compile("[\n\r\x85\u2028\u2029]").search
_A_LONG_KEY = "a" * (_LONGEST_KEY + 1)
_CHUNK_SECONDS = 0.001

_MAP, _LIST, _LONG = "m", "l", "k"
"""The kinds of blocks; the last is a mapping below a key that has lines of its own."""
_END = "\n...\n"


def as_yaml(value: Any) -> bytes:
    return "".join(yaml_chunks(value)).encode()


def yaml_chunks(value: Any) -> Iterator[str]:
    """Return the YAML document in parts, each of which takes about a millisecond to write."""
    if not isinstance(value, dict | list) or not value:
        yield _dump(value)
        return
    lines: list[str] = []
    blocks: list[_Block] = []
    _begin(value, "", 0, "", blocks)
    end = perf_counter() + _CHUNK_SECONDS
    while blocks:
        _write_some(blocks, lines, end)
        if perf_counter() >= end or not blocks:
            chunk = "".join(lines)
            lines.clear()
            # libyaml marks the end of the document after a text that ends with empty lines; Kubernetes does not.
            yield chunk.replace(_END, "\n") if _END in chunk else chunk
            end = perf_counter() + _CHUNK_SECONDS


def _write_some(blocks: list[_Block], lines: list[str], end: float) -> None:
    """Write the values of the innermost block until it ends, another begins in it, or the time is up."""
    block = blocks[-1]
    for key, item in block.items:
        lead = block.lead.pop() if block.lead else block.indentation
        path = block.path
        if key is None:
            head = f"{lead}- "
        elif _is_simple(key):
            head = lead + _simple_key(key)
        else:  # On lines of its own, with its value like the item of a list.
            head, key, path = lead + _long_key(key, path), None, path[:-1] + _LONG
        if not (isinstance(item, dict | list) and item):
            column = len(head) if path is block.path else block.depth + 2
            lines.append(f"{head}{_scalar(item, path, key, column)}\n")
            if perf_counter() >= end:
                return
        elif key is None:
            return _begin(item, head, block.depth + 2, path, blocks)
        else:
            lines.append(f"{head[:-1]}\n")
            depth = block.depth + 2 * isinstance(item, dict)
            return _begin(item, " " * depth, depth, path, blocks)
    blocks.pop()


class _Block(NamedTuple):
    """A mapping or a list that is being written."""

    items: Iterator[tuple[str | None, Any]]
    """The remaining keys and values; the keys of a list are None."""
    path: str
    """The kinds of the blocks around this one, and its own."""
    depth: int
    indentation: str
    lead: list[str]
    """The beginning of the first line, until that is written."""


def _begin(value: dict[str, Any] | list[Any], lead: str, depth: int, path: str, blocks: list[_Block]) -> None:
    """Open a block."""
    items: Iterator[tuple[str | None, Any]]
    if isinstance(value, list):
        items, path = ((None, item) for item in value), path + _LIST
    else:
        items, path = ((key, value[key]) for key in sorted(value)), path + _MAP
    blocks.append(_Block(items, path, depth, " " * depth, [lead]))


def _is_simple(key: str) -> bool:
    """Whether libyaml writes a key and its value on one line."""
    if key.isascii():
        return len(key) <= _LONGEST_KEY and (key.isprintable() or not _has_break(key))
    return len(key.encode()) <= _LONGEST_KEY and not _has_break(key)


def _scalar(value: Any, path: str, key: str | None, column: int) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None:
        return "null"
    if type(value) is int:
        return str(value)
    if type(value) is not str:
        return "{}" if value == {} else "[]" if value == [] else _dump({"a": value})[3:-1]
    if _is_plain_word(value):
        return value
    if _is_number(value):
        return f'"{value}"'
    if len(value) <= _SHORT:
        written = _short_text(value)
        if written and (column + len(written) <= _WIDTH or " " not in value):
            return written
    if key is not None:
        nested, other = _nest(path[:-1], {key: value}), _nest(path[:-1], {key: "x"})
    else:
        nested, other = _nest(path, value), _nest(path, "x")
    before = _dump(other)[: -len("x\n")]
    return _dump(nested)[len(before) : -1]


@lru_cache(maxsize=8192)
def _short_text(text: str) -> str:
    """Return the text as it is written; empty if it needs more than one line."""
    written = _dump({"a": text})[3:-1]
    return "" if _has_break(written) else written


@lru_cache(maxsize=8192)
def _simple_key(key: str) -> str:
    """Return the key and the colon as they are written."""
    return f"{key}: " if _is_plain_word(key) else _dump({key: 0})[: -len("0\n")]


def _long_key(key: str, path: str) -> str:
    """Return a key that needs lines of its own, and the colon on the last of them."""
    before = _dump(_nest(path[:-1], {"x": 0}))[: -len("x: 0\n")]
    written = _dump(_nest(path[:-1], {key: 0})).removesuffix(_END[1:])
    return written[len(before) : -len("0\n")]


def _nest(path: str, value: Any) -> Any:
    """Return a document that has the value at this place, so that libyaml finds the same column and indentation."""
    for kind in reversed(path):
        value = [value] if kind == _LIST else {"a" if kind == _MAP else _A_LONG_KEY: value}
    return value


def _dump(value: Any) -> str:
    dumped: str = yaml.dump(value, Dumper=_Answers, default_flow_style=False, allow_unicode=True)
    return dumped


class _Answers(_Dumper):  # type: ignore[misc]
    """A dumper class of its own, because PyYAML registers representers per class."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(dumper: Any, text: str) -> yaml.ScalarNode:
    node: yaml.ScalarNode = dumper.represent_scalar(_TEXT, text, style=_style(text))
    return node


def _style(text: str) -> str | None:
    if "\n" in text:
        return "|"
    return None if _looks_like_text(text) else '"'


def _looks_like_text(text: str) -> bool:
    if text in ("<<", "") or _is_time(text) or _is_sexagesimal(text):
        return False
    try:
        return isinstance(by_looks(text), str)
    except YamlError:  # A number that JSON does not have.
        return False


_Answers.add_representer(str, _represent)
