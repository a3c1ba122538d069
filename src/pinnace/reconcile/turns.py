"""Cuts long work on the event loop into slices, so that no loop over many objects holds up other requests."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.005


class Turns:
    """Gives way to other tasks once work has lasted for a slice of time."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause(self) -> None:
        """Return at once within a slice; after it, let every other task that is ready run first."""
        if time.monotonic() - self._since > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()
