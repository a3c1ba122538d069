"""Keeps values that were used lately, up to a total size: encoded parts of large lists, which many answers share."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

KEPT_SECONDS = 5.0
"""A value that is not used for this long is dropped, at the latest after twice as long.

Clients that start together ask for the same list within seconds. To encode one of 5 MB anew takes 4 ms."""

_Value = TypeVar("_Value")


class RecentValues(Generic[_Value]):
    """Values by key, in two generations: a value that is used joins the young one, and the old one is dropped."""

    def __init__(self, most_bytes: int) -> None:
        """The two generations have at most twice `most_bytes`, or more for a while after `make_room`."""
        self._usual_bytes = self._most_bytes = most_bytes
        self._young: dict[Hashable, tuple[_Value, int]] = {}
        self._old: dict[Hashable, tuple[_Value, int]] = {}
        self._bytes = 0
        self._is_timed = False

    def get(self, key: Hashable) -> _Value | None:
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is None:
                return None
            self.put(key, *value)
        return value[0]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._young or key in self._old

    def put(self, key: Hashable, value: _Value, size: int) -> None:
        before = self._young.get(key)
        self._young[key] = (value, size)
        self._bytes += size - (before[1] if before is not None else 0)
        if self._bytes > self._most_bytes:
            self._age()
        if not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._tick)

    def make_room(self, size: int) -> None:
        """Keep the parts of an answer of this size together for a while, however large it is: others may share it."""
        self._most_bytes = max(self._most_bytes, size)

    def _age(self) -> None:
        self._young, self._old, self._bytes = {}, self._young, 0

    def _tick(self) -> None:
        self._age()
        self._most_bytes = self._usual_bytes
        self._is_timed = bool(self._old)
        if self._is_timed:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._tick)
