"""Writes answers as YAML in the style of a Kubernetes server: strings that look like other values are quoted.

The structure is written here, which is ten times faster than PyYAML's dumper and can stop at any value. libyaml writes
every scalar whose form is not obvious: the bytes are the same as if it had written everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from pinnace.server.request.yaml_body import YamlError, by_looks

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
"""libyaml writes a longer key on a line of its own."""
_CHUNK_LINES = 200

_MAP, _LIST = "m", "l"
_END = "\n...\n"


def as_yaml(value: Any) -> bytes:
    return "".join(yaml_chunks(value)).encode()


def yaml_chunks(value: Any) -> Iterator[str]:
    """Return the YAML document in parts, each of which takes less than a millisecond to write."""
    if not isinstance(value, dict | list) or not value:
        yield _dump(value)
        return
    lines: list[str] = []
    blocks: list[_Block] = []
    _begin(value, "", 0, "", blocks, lines)
    while blocks or lines:
        if blocks:
            _write_some(blocks, lines)
        if len(lines) >= _CHUNK_LINES or not blocks:
            chunk = "".join(lines)
            lines.clear()
            # libyaml marks the end of the document after a text that ends with empty lines; Kubernetes does not.
            yield chunk.replace(_END, "\n") if _END in chunk else chunk


def _write_some(blocks: list[_Block], lines: list[str]) -> None:
    """Write the values of the innermost block until it ends, another begins in it, or a chunk is full."""
    block = blocks[-1]
    for key, name, item in block.items:
        head = (block.lead.pop() if block.lead else block.indentation) + name
        if not (isinstance(item, dict | list) and item):
            lines.append(f"{head}{_scalar(item, block, key, len(head))}\n")
            if len(lines) >= _CHUNK_LINES:
                return
        elif key is None:
            return _begin(item, head, block.depth + 2, block.path, blocks, lines)
        else:
            lines.append(f"{head[:-1]}\n")
            depth = block.depth + 2 * isinstance(item, dict)
            return _begin(item, " " * depth, depth, block.path, blocks, lines)
    blocks.pop()


class _Block(NamedTuple):
    """A mapping or a list that is being written."""

    items: Iterator[tuple[str | None, str, Any]]
    """The remaining keys, each as it is written, and values; the keys of a list are None."""
    path: str
    """The kinds of the blocks around this one, and its own."""
    depth: int
    indentation: str
    lead: list[str]
    """The beginning of the first line, until that is written."""


def _begin(
    value: dict[str, Any] | list[Any], lead: str, depth: int, path: str, blocks: list[_Block], lines: list[str]
) -> None:
    """Open a block, or write it if it has keys that only libyaml can write."""
    if isinstance(value, list):
        items = ((None, "- ", item) for item in value)
        blocks.append(_Block(items, path + _LIST, depth, " " * depth, [lead]))
        return
    names = [(key, _simple_key(key) if len(key) <= _LONGEST_KEY else "", item) for key, item in sorted(value.items())]
    if all(name for _, name, _ in names):
        blocks.append(_Block(iter(names), path + _MAP, depth, " " * depth, [lead]))
        return
    before = _dump(_nest(path, {"x": 0}))[: -len("x: 0\n")]
    lines.append(lead + _dump(_nest(path, value))[len(before) :])


def _scalar(value: Any, block: _Block, key: str | None, column: int) -> str:
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
        if "\n" not in written and (column + len(written) <= _WIDTH or " " not in value):
            return written
    around = block.path[:-1]
    nested, other = ({key: value}, {key: "x"}) if key is not None else ([value], ["x"])
    before = _dump(_nest(around, other))[: -len("x\n")]
    return _dump(_nest(around, nested))[len(before) : -1]


@lru_cache(maxsize=8192)
def _short_text(text: str) -> str:
    return _dump({"a": text})[3:-1]


@lru_cache(maxsize=8192)
def _simple_key(key: str) -> str:
    """Return the key and the colon as they are written; empty if the key needs more than one line."""
    written = _dump({key: 0})
    return "" if written.startswith("? ") else written[: -len("0\n")]


def _nest(path: str, value: Any) -> Any:
    """Return a document that has the value at this place, so that libyaml finds the same column and indentation."""
    for kind in reversed(path):
        value = {"a": value} if kind == _MAP else [value]
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
