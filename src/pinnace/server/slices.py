"""Cuts the work on large answers into slices. A turn of the event loop has one slice, however many requests wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque

SLICE_SECONDS = 0.005


class SliceQueue:
    """Gives each large answer of one server its next slice in turn. Small requests are handled in between."""

    __slots__ = ("_is_scheduled", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def begin(self) -> Slices:
        return Slices(self)

    async def wait(self) -> None:
        """Return when the next slice is the caller's."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append(waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._release, loop)
        await waiter

    def _release(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # The client may have left.
                waiter.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._release, loop)


class Slices:
    """The slices of one answer."""

    __slots__ = ("_end", "_queue")

    def __init__(self, queue: SliceQueue) -> None:
        self._queue = queue
        self._end = 0.0

    async def pause(self) -> None:
        """Return at once within a slice. At its end, and before the first, wait for the next."""
        if time.perf_counter() >= self._end:
            await self._queue.wait()
            self._end = time.perf_counter() + SLICE_SECONDS
