"""The server's memory as authentication and authorization want to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pinnace.model.objects import Object
from pinnace.server.fanout import Fanout
from pinnace.server.shelves import Event


class ShelfObjects:
    """The objects below one prefix, decoded when they are asked for."""

    def __init__(self, fanout: Fanout, prefix: str) -> None:
        self._fanout = fanout
        self._prefix = prefix

    def get(self, key: str) -> Object | None:
        entry = self._fanout.shelf(self._prefix).entries.get(key)
        return entry.decode() if entry is not None else None

    def items(self) -> Iterator[tuple[str, Object]]:
        for key, entry in list(self._fanout.shelf(self._prefix).entries.items()):
            yield key, entry.decode()

    def on_change(self, changed: Callable[[str, Object | None], None]) -> None:
        def tell(event: Event) -> None:
            changed(event.key, event.new.decode() if event.new is not None else None)

        self._fanout.on_change(self._prefix, tell)
