"""One writer of a key at a time, so that a race is lost in a queue and not in wasted work."""

from __future__ import annotations

import asyncio


class WriteTurns:
    """The keys that are being written, each with the future that the next writers of the key wait for."""

    __slots__ = ("_writing",)

    def __init__(self) -> None:
        self._writing: dict[str, asyncio.Future[None] | None] = {}

    def begin_at_once(self, key: str) -> bool:
        """Begin a turn. Return False if another writer has the key: then await `begin`."""
        if key in self._writing:
            return False
        self._writing[key] = None
        return True

    async def begin(self, key: str) -> None:
        """Begin a turn when no writer has the key."""
        while not self.begin_at_once(key):
            before = self._writing[key]
            if before is None:
                before = self._writing[key] = asyncio.get_running_loop().create_future()
            await asyncio.shield(before)

    def end(self, key: str) -> None:
        waited_for = self._writing.pop(key)
        if waited_for is not None:
            waited_for.set_result(None)
