"""Encodes large lists in groups of consecutive items. Answers with the same items share the bytes of their groups.

After a change of one object, only its group is encoded again. Clients that read slowly hold groups, not copies.
"""

from __future__ import annotations

from typing import NamedTuple

from pinnace.process.work_slices import Slices
from pinnace.serving.cache.representations import Representation
from pinnace.serving.cache.watch_cache import CachedObject
from pinnace.serving.recent_values import RecentValues

GROUP_BYTES = 128 << 10
"""The size of the objects of one group: encoding them takes less than a slice."""
KEPT_BYTES = 32 << 20


class _Group(NamedTuple):
    entries: list[CachedObject]
    is_full: bool
    moment: object
    body: bytes
    encoder: Representation
    """Kept alive, because the key has its id."""


class ItemGroups:
    """The groups of all large lists of one server."""

    def __init__(self) -> None:
        self._groups: RecentValues[_Group] = RecentValues(KEPT_BYTES)

    async def encode(self, encoder: Representation, entries: list[CachedObject], slices: Slices) -> list[bytes]:
        """Return the encoded items in pieces. Other requests are handled in between."""
        self._groups.make_room(2 * sum(len(entry.stored or entry.body) for entry in entries))
        pieces: list[bytes] = []
        at, moment = 0, encoder.moment()
        while at < len(entries):
            await slices.pause()
            group = self._group_at(encoder, entries, at, moment)
            pieces.append(group.body)
            at += len(group.entries)
        return pieces

    def _group_at(self, encoder: Representation, entries: list[CachedObject], at: int, moment: object) -> _Group:
        key = (id(encoder), at > 0, id(entries[at]))
        known = self._groups.get(key)
        if known is not None:
            end = at + len(known.entries)
            is_same = entries[at:end] == known.entries and (known.is_full or end == len(entries))
            if is_same and known.moment == moment:
                return known
            if not is_same:
                known = None
        group = self._make(encoder, entries, at, moment)
        if known is not None and group.body == known.body:  # Another moment, and the same ages: share the bytes.
            group = group._replace(body=known.body)
        self._groups.put(key, group, len(group.body))
        return group

    def _make(self, encoder: Representation, entries: list[CachedObject], at: int, moment: object) -> _Group:
        """Encode items until the group is large enough, or a known group can follow."""
        end, size, last = at, 0, min(len(entries), at + encoder.group_items)
        while end < last and size < GROUP_BYTES:
            if 2 * size >= GROUP_BYTES and (id(encoder), True, id(entries[end])) in self._groups:
                break
            size += len(entries[end].body)
            end += 1
        group = entries[at:end]
        is_full = 2 * size >= GROUP_BYTES or 2 * len(group) >= encoder.group_items
        return _Group(group, is_full, moment, encoder.encode_items(group, lead=b"," if at else b""), encoder)
