"""Lets long work give way: in slices on the event loop, as large answers do, or in steps in a thread.

A turn of the event loop has one slice of such work, however many requests and workers wait. A write needs several
turns: while there is one, slices are rare and short, so that a write takes some milliseconds and not some slices.
In a thread, long work calls `give_way` between its steps. On the event loop, where work is short, that does nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextvars import ContextVar
from itertools import islice
from typing import TypeVar
from weakref import WeakKeyDictionary

SLICE_SECONDS = 0.005
SHORT_SLICE_SECONDS = 0.003
"""The length of a slice that begins while there is a write."""
DEFERRED_SECONDS = 0.012
"""The CPU time of the loop between the beginnings of two slices while the store has a write: slices have a quarter."""
LONGEST_DEFERRED_SECONDS = 0.03
"""The real time after which the next slice begins all the same: the loop may be idle, or the machine busy."""
DEFERRING_SECONDS = 0.1
"""How long a write defers slices. One that takes longer waits for a webhook or a disk, and needs few turns."""


class SliceQueue:
    """Gives each piece of long work its next slice in turn. Small requests are handled in between."""

    __slots__ = ("_begun", "_deferred", "_is_scheduled", "_released", "_released_cpu", "_waiting", "_writes")

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
        self._writes = 0
        self._begun = 0.0
        """The time at which the last write began."""
        self._released = 0.0
        """The time at which the last slice began."""
        self._released_cpu = 0.0
        """The CPU time of the loop at that time."""
        self._deferred: asyncio.TimerHandle | None = None
        """The next slice, while it waits for writes."""

    def begin_write(self) -> None:
        """Defer slices until `end_write`: a small write has arrived, or the store has one."""
        self._writes += 1
        self._begun = time.perf_counter()

    def end_write(self) -> None:
        self._writes -= 1
        if not self._writes and self._deferred is not None:
            self._deferred.cancel()
            self._deferred = None
            loop = asyncio.get_running_loop()
            loop.call_soon(self._release, loop)

    @property
    def slice_seconds(self) -> float:
        """The length of a slice that begins now."""
        return SHORT_SLICE_SECONDS if self._has_write(time.perf_counter()) else SLICE_SECONDS

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for a slice."""
        return not self._waiting

    def begin(self) -> Slices:
        return Slices(self)

    async def wait(self) -> None:
        """Return when the next slice is the caller's."""
        await self._queue_up()

    def call(self, callback: Callable[[], None]) -> None:
        """Call back when the next slice is the caller's."""
        self._queue_up().add_done_callback(lambda _: callback())

    def _has_write(self, now: float) -> bool:
        return self._writes > 0 and now < self._begun + DEFERRING_SECONDS

    def _queue_up(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._release, loop)
        return waiter

    def _release(self, loop: asyncio.AbstractEventLoop) -> None:
        self._deferred = None
        now, cpu = time.perf_counter(), time.thread_time()
        if self._has_write(now):
            left = min(
                self._released_cpu + DEFERRED_SECONDS - cpu,
                self._released + LONGEST_DEFERRED_SECONDS - now,
            )
            if left > 0:
                self._deferred = loop.call_later(left, self._release, loop)
                return
        self._released, self._released_cpu = now, cpu
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
            self._end = time.perf_counter() + self._queue.slice_seconds


class Turns:
    """The slices of one worker. It begins with one, unlike `Slices`: most work needs no second."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause(self) -> None:
        """Return at once within a slice; after it, wait until the next slice is the caller's."""
        if time.monotonic() - self._since > SLICE_SECONDS:
            await SliceQueue.of_loop().wait()
            self._since = time.monotonic()


_Item = TypeVar("_Item")

AT_ONCE = 1_000
"""So many small items, such as facts about pods, are handled in one turn of the event loop: they take about 2 ms."""
DECODING = 4
"""To decode an object of some KB costs as much as so many small items."""


async def in_turns(items: Iterable[_Item], *, cost: int = 1) -> AsyncIterator[list[_Item]]:
    """Yield the items in parts. Other work has its turn before each part but the first.

    For what a user may have thousands of, in a controller or in a request: a few are handled without waiting. `cost`
    is that of one item, in small items.
    """
    remaining, at_once = iter(items), max(1, AT_ONCE // cost)
    while part := list(islice(remaining, at_once)):
        yield part
        if len(part) < at_once:
            return
        await SliceQueue.of_loop().wait()


FEW = 64
"""So many items of a list, or options of a schema, are looked at without giving way in between."""

PACE: ContextVar[Callable[[], None] | None] = ContextVar("pace", default=None)
"""Set where work runs in a thread: waits until it is this work's turn, or raises the error that stops it."""


def give_way() -> None:
    """Let other long work have its turn, if this work runs in a thread and has had its own."""
    pace = PACE.get()
    if pace is not None:
        pace()


def paced(items: Iterable[_Item]) -> Iterable[_Item]:
    """Return the items; long work gives way before each."""
    pace = PACE.get()
    return items if pace is None else _pace(items, pace)


def _pace(items: Iterable[_Item], pace: Callable[[], None]) -> Iterator[_Item]:
    for item in items:
        pace()
        yield item
