"""Which simulated nodes are registered: a cluster is ready once all of them are."""

from __future__ import annotations

import asyncio


class SimulatedRegistration:
    """The nodes that were added and are not ready yet, and those without a range of pod addresses."""

    def __init__(self) -> None:
        self._unready: set[str] = set()
        self._without_range: set[str] = set()
        self._progress = asyncio.Event()

    def missing(self, *, needs_ranges: bool) -> int:
        """Return how many nodes `complete` waits for."""
        return len(self._without_range if needs_ranges else self._unready)

    def expect(self, name: str) -> None:
        self._unready.add(name)
        self._without_range.add(name)

    def note(self, name: str, *, has_range: bool) -> None:
        """Note that a node exists and is ready."""
        if not self._without_range:
            return
        self._unready.discard(name)
        if has_range:
            self._without_range.discard(name)
        if not self._unready:
            self._progress.set()

    async def complete(self, *, needs_ranges: bool) -> None:
        """Return when all nodes are registered. With `needs_ranges` a controller gives each node its range first."""
        while self.missing(needs_ranges=needs_ranges):
            self._progress.clear()
            await self._progress.wait()
