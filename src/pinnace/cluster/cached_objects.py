"""The server's memory as authentication and authorization want to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pinnace.model.objects import Object
from pinnace.server.cache.fanout import Fanout


class CachedObjects:
    """The objects below one prefix, decoded when they are asked for."""

    def __init__(self, fanout: Fanout, prefix: str) -> None:
        self._fanout = fanout
        self._prefix = prefix

    def get(self, key: str) -> Object | None:
        entry = self._fanout.cache(self._prefix).entries.get(key)
        return entry.decode() if entry is not None else None

    def items(self) -> Iterator[tuple[str, Object]]:
        for key, entry in list(self._fanout.cache(self._prefix).entries.items()):
            yield key, entry.decode()

    def in_namespace(self, namespace: str) -> Iterator[tuple[str, Object]]:
        cache = self._fanout.cache(self._prefix)
        for key in cache.keys_of(namespace):
            yield key, cache.entries[key].decode()

    def on_change(self, changed: Callable[[str], None]) -> None:
        self._fanout.on_change(self._prefix, lambda event: changed(event.key))
