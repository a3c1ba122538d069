"""Cuts long work into slices: large answers, and workers of controllers that find everything in memory.

A turn of the event loop has one slice of such work, however many requests and workers wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from weakref import WeakKeyDictionary

SLICE_SECONDS = 0.005


class SliceQueue:
    """Gives each piece of long work its next slice in turn. Small requests are handled in between."""

    __slots__ = ("_is_scheduled", "_waiting")

    @staticmethod
    def of_loop() -> SliceQueue:
        """Return the queue of the running loop."""
        loop = asyncio.get_running_loop()
        queue = _queues.get(loop)
        if queue is None:
            queue = _queues[loop] = SliceQueue()
        return queue

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
            if not waiter.done():  # The client may have left, or the worker been cancelled.
                waiter.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._release, loop)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, SliceQueue] = WeakKeyDictionary()


class Slices:
    """The slices of one piece of work."""

    __slots__ = ("_end", "_queue")

    def __init__(self, queue: SliceQueue) -> None:
        self._queue = queue
        self._end = 0.0

    async def pause(self) -> None:
        """Return at once within a slice. At its end, and before the first, wait for the next."""
        if time.perf_counter() >= self._end:
            await self._queue.wait()
            self._end = time.perf_counter() + SLICE_SECONDS
