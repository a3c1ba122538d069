"""Shards of a collection: ranges of a hash of each object's uid or namespace, as KEP-5866 defines them."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

HASHES = 1 << 64
"""The number of hashes: every hash is less."""
UID = "object.metadata.uid"
NAMESPACE = "object.metadata.namespace"

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = HASHES - 1


class HashRange(NamedTuple):
    start: int
    end: int
    """The first hash after the range."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShardSelector:
    """Selects the objects the hash of whose field is in one of the ranges."""

    field: str
    """`UID` or `NAMESPACE`."""
    ranges: tuple[HashRange, ...]
    _bounds: list[int] = dataclasses.field(init=False, compare=False, repr=False)
    """The starts and ends of the ranges in turn, joined where they touch: a request may have many ranges."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bounds", _join(self.ranges))

    def __str__(self) -> str:
        """Return the text in the query of a request."""
        return " || ".join(f"shardRange({self.field}, '0x{start:016x}', '0x{end:016x}')" for start, end in self.ranges)

    def selects(self, hash_: int) -> bool:
        return bisect_right(self._bounds, hash_) % 2 == 1


def hash_of(value: str) -> int:
    """Return the hash of a uid or namespace: FNV-1a with 64 bits."""
    hash_ = _OFFSET
    for byte in value.encode():
        hash_ = (hash_ ^ byte) * _PRIME & _MASK
    return hash_


def split_hashes(count: int) -> list[HashRange]:
    """Return the ranges of so many shards of about the same size."""
    bounds = [HASHES * number // count for number in range(count + 1)]
    return [HashRange(start, end) for start, end in pairwise(bounds)]


def _join(ranges: Iterable[HashRange]) -> list[int]:
    bounds: list[int] = []
    for start, end in sorted(ranges):
        if bounds and start <= bounds[-1]:
            bounds[-1] = max(bounds[-1], end)
        else:
            bounds += (start, end)
    return bounds
