"""One writer of a key at a time, so that a race is lost in a queue and not in wasted work."""

from __future__ import annotations

import asyncio


class WriteTurns:
    """The keys that are being written, each with the future that the next writers of the key wait for."""

    __slots__ = ("_writing",)

    def __init__(self) -> None:
        self._writing: dict[str, asyncio.Future[None] | None] = {}

    def is_taken(self, key: str) -> bool:
        return key in self._writing

    async def wait(self, key: str) -> None:
        """Return when no writer has the key; the caller must call `begin` before it awaits anything else."""
        while key in self._writing:
            before = self._writing[key]
            if before is None:
                before = self._writing[key] = asyncio.get_running_loop().create_future()
            await asyncio.shield(before)

    def begin(self, key: str) -> None:
        self._writing[key] = None

    def end(self, key: str) -> None:
        waited_for = self._writing.pop(key)
        if waited_for is not None:
            waited_for.set_result(None)
