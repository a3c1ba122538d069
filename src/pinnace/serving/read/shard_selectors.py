"""Parses the shardSelector of a list or watch, with Kubernetes' error messages, and finds the hashes of objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from pinnace.model import errors
from pinnace.model.shards import HASHES, NAMESPACE, UID, HashRange, ShardSelector, hash_of
from pinnace.schema.cel.errors import CompileError
from pinnace.schema.cel.tree import CelCall, CelNode, Ident, ListLiteral, Literal, MapLiteral, MessageLiteral, Select
from pinnace.schema.cel.values import Uint
from pinnace.schema.golang.text import quote
from pinnace.serving.cache.watch_cache import CachedObject

_NODE_NUMBERS: dict[type[CelNode], int] = {
    CelCall: 1, Ident: 3, ListLiteral: 4, Literal: 5, MapLiteral: 6, Select: 7, MessageLiteral: 8,
}  # fmt: skip
"""The numbers with which cel-go names the kinds of expressions."""
_GO_TYPES: dict[type[Any], str] = {
    int: "int64", Uint: "uint64", float: "float64", bool: "bool", bytes: "[]uint8", type(None): "structpb.NullValue",
}  # fmt: skip
Matches = Callable[[str, CachedObject], bool]
"""Whether a selector selects an object, of which the key in its watch cache is given."""
_DIGITS = frozenset("0123456789abcdef")
_LAST = f"0x{HASHES:016x}"


class BadShardSelector(errors.ApiError):
    """Kubernetes answers 500 to a shard selector that it cannot read, without a reason."""

    code, reason = 500, ""

    def __init__(self, why: str) -> None:
        super().__init__(f"invalid shard selector: {why}")


def parse_shard_selector(text: str) -> ShardSelector:
    """Read the option of a request. Raise BadShardSelector."""
    text = text.strip()
    if not text:
        raise BadShardSelector("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    from pinnace.schema.cel.parser import parse  # noqa: PLC0415 - few clusters are asked for shards.

    try:
        tree = parse(text, is_plain=True)
    except CompileError as error:
        raise BadShardSelector(f"CEL parse error: {error.issues[0].message}") from None
    ranges: list[tuple[str, HashRange]] = []
    _read_ranges(tree, ranges)
    field = ranges[0][0]
    for other, _ in ranges:
        if other != field:
            why = f"all shard ranges must use the same field, got {quote(field)} and {quote(other)}"
            raise BadShardSelector(why)
    return ShardSelector(field, tuple(range_ for _, range_ in ranges))


def in_shards(shards: ShardSelector, matches: Matches | None) -> Matches:
    """Return the test of objects that are in some shards, and for which `matches` is True."""
    if shards.field == UID:

        def is_in_shards(key: str, entry: CachedObject) -> bool:
            return shards.selects(_hash_of_uid(entry)) and (matches is None or matches(key, entry))
    else:

        def is_in_shards(key: str, entry: CachedObject) -> bool:
            namespace = key.rpartition("/")[0]
            return shards.selects(_hash_of_namespace(namespace)) and (matches is None or matches(key, entry))

    return is_in_shards


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""


class _Uid(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_uid = msgspec.json.Decoder(_Uid).decode


@lru_cache(maxsize=4)  # The watches of all shards test the same event, one after the other.
def _hash_of_uid(entry: CachedObject) -> int:
    return hash_of(_decode_uid(entry.body).metadata.uid)


@lru_cache(maxsize=1024)
def _hash_of_namespace(namespace: str) -> int:
    return hash_of(namespace)


def _read_ranges(node: CelNode, ranges: list[tuple[str, HashRange]]) -> None:
    if not isinstance(node, CelCall):
        kind = _NODE_NUMBERS[type(node)]
        raise BadShardSelector(f"unexpected expression kind {kind}; expected shardRange() call or || operator")
    if node.function == "_||_":
        for operand in node.arguments:
            _read_ranges(operand, ranges)
    elif node.function == "shardRange":
        ranges.append(_read_range(node.arguments))
    else:
        function = quote(node.function)
        raise BadShardSelector(f"unsupported function {function}; only shardRange() and || are allowed")


def _read_range(arguments: list[CelNode]) -> tuple[str, HashRange]:
    if len(arguments) != 3:
        raise BadShardSelector(f"shardRange() requires exactly 3 arguments, got {len(arguments)}")
    field = _read_path(arguments[0])
    if field not in (UID, NAMESPACE):
        raise BadShardSelector(f"unsupported field path {quote(field)}; supported: {UID}, {NAMESPACE}")
    start, end = _read_hash(arguments[1], "hexStart"), _read_hash(arguments[2], "hexEnd")
    if start >= end:
        raise BadShardSelector(f"shard range start 0x{start:016x} must be less than end 0x{end:016x}")
    return field, HashRange(start, end)


def _read_path(node: CelNode) -> str:
    names: list[str] = []
    while isinstance(node, Select):
        names.append(node.field_name)
        node = node.operand
    if not isinstance(node, Ident):
        expected = "expected field path (e.g. object.metadata.uid)"
        raise BadShardSelector(
            f"shardRange() first argument: {expected}, got expression kind {_NODE_NUMBERS[type(node)]}"
        )
    return ".".join((node.name, *reversed(names)))


def _read_hash(node: CelNode, name: str) -> int:
    if not isinstance(node, Literal):
        kind = _NODE_NUMBERS[type(node)]
        raise BadShardSelector(f"{name} must be a string literal (e.g. '0xff'), got expression kind {kind}")
    text = node.value
    if not isinstance(text, str):
        raise BadShardSelector(f"{name} must be a string literal, got {_GO_TYPES[type(text)]}")
    digits = text.removeprefix("0x")
    if digits == text:
        raise BadShardSelector(f"{name} must have '0x' prefix, got {quote(text)}")
    if not digits:
        raise BadShardSelector(f"{name}: hex value is required after '0x'")
    if (size := len(digits.encode())) > 17:
        raise BadShardSelector(f"{name}: hex value too long ({size} chars, max 17): {quote(digits)}")
    for digit in digits:
        if digit not in _DIGITS:
            raise BadShardSelector(f"{name}: invalid hex character {quote(digit)} in {quote(text)}")
    if size == 17 and text != _LAST:
        raise BadShardSelector(f"{name}: 17-digit hex value must be '{_LAST}' (2^64), got {quote(text)}")
    if size < 16:
        near = quote(f"0x{digits:0>16}")
        raise BadShardSelector(
            f"{name} must be a 0x-prefixed 16-digit hex value, got {quote(text)} (did you mean {near}?)"
        )
    return int(digits, 16)
