"""What is to be done: each item once, never by two at the same time, now or later, the urgent first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from pinnace.client.retries import Backoff
from pinnace.model.clock import Alarm, AlarmClock

Item = TypeVar("Item", bound=Hashable)

RETRIES = Backoff(first=0.005, longest=1000.0)


class Closed(Exception):
    """Nothing more is given out."""


class QueueObserver(Protocol):
    """Told what goes through a queue, for metrics."""

    def added(self) -> None: ...

    def retried(self) -> None: ...

    def taken(self, waited: float) -> None: ...

    def finished(self, worked: float) -> None: ...


class _Nobody:
    def added(self) -> None: ...

    def retried(self) -> None: ...

    def taken(self, waited: float) -> None: ...

    def finished(self, worked: float) -> None: ...


class Queue(Generic[Item]):
    """Level-triggered: it holds what is to be looked at, not what has happened.

    An item that is added while somebody works on it is given out again when that is done. All in one event loop.
    """

    def __init__(self, *, clock: AlarmClock, backoff: Backoff = RETRIES, observer: QueueObserver | None = None) -> None:
        self._clock = clock
        self._backoff = backoff
        self._observer = observer or _Nobody()
        self._numbers = itertools.count()
        self._ready: list[tuple[int, int, Item]] = []
        self._waiting: dict[Item, tuple[int, float]] = {}  # Priority, and since when.
        self._working: dict[Item, float] = {}
        self._waited: dict[Item, float] = {}
        self._again: dict[Item, int] = {}
        self._later: list[tuple[float, int, Item]] = []
        self._due: dict[Item, tuple[float, int]] = {}
        self._failures: dict[Item, int] = {}
        self._alarm: Alarm | None = None
        self._alarm_due = 0.0
        self._takers: list[asyncio.Future[None]] = []
        self._on_idle: list[asyncio.Future[None]] = []
        self._is_closed = False
        self.added = 0
        """Grows with each item that is to be given out."""

    # Adding

    def add(self, item: Item, *, priority: int = 0) -> None:
        """To be done now. Of two priorities the higher counts."""
        if item in self._working:
            self._again[item] = max(priority, self._again.get(item, priority))
            return
        known = self._waiting.get(item)
        if known is not None and known[0] >= priority:
            return
        self._waiting[item] = (priority, known[1] if known is not None else self._clock.monotonic())
        heapq.heappush(self._ready, (-priority, next(self._numbers), item))
        if known is None:
            self.added += 1
            self._observer.added()
            self._wake_one()

    def add_after(self, item: Item, seconds: float, *, priority: int = 0) -> None:
        """To be done after so many seconds. Of two such wishes the earlier counts."""
        if seconds <= 0:
            self.add(item, priority=priority)
            return
        due = self._clock.monotonic() + seconds
        known = self._due.get(item)
        if known is not None and known[0] <= due:
            return
        self._due[item] = (due, priority)
        heapq.heappush(self._later, (due, next(self._numbers), item))
        self._set_alarm()

    def retry(self, item: Item, *, priority: int = 0) -> float:
        """To be done again after a failure: the more in a row, the later. Returns the seconds until then."""
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        seconds = self._backoff.delay(failures)
        self._observer.retried()
        self.add_after(item, seconds, priority=priority)
        return seconds

    def forget(self, item: Item) -> None:
        """It went well: the next failure is the first."""
        self._failures.pop(item, None)

    def failures(self, item: Item) -> int:
        return self._failures.get(item, 0)

    # Taking

    async def take(self) -> Item:
        """The most urgent item, the oldest of these. Say `done` when it is. Raises Closed."""
        while not self._is_closed:
            item = self._pop()
            if item is not None:
                return item
            waiter = asyncio.get_running_loop().create_future()
            self._takers.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._takers:
                    self._takers.remove(waiter)
                elif self._waiting:
                    self._wake_one()  # It was woken for nothing: another may take the item.
                raise
        raise Closed

    def done(self, item: Item) -> None:
        self._observer.finished(self._clock.monotonic() - self._working.pop(item))
        self._waited.pop(item, None)
        priority = self._again.pop(item, None)
        if priority is not None:
            self.add(item, priority=priority)
        self._tell_if_idle()

    def close(self) -> None:
        """Give out nothing more: takers leave. What is being worked on may be finished."""
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._takers:
            self._wake_one()

    def open(self) -> None:
        """Give out again what has gathered meanwhile."""
        self._is_closed = False
        self._set_alarm()

    # Looking

    @property
    def depth(self) -> int:
        """How many items wait to be given out."""
        return len(self._waiting)

    @property
    def working(self) -> int:
        return len(self._working)

    @property
    def delayed(self) -> int:
        """How many items are for later."""
        return len(self._due)

    @property
    def is_idle(self) -> bool:
        """Nothing is to be done now, and nobody works. Something may be for later."""
        return not (self._waiting or self._working)

    def waited(self, item: Item) -> float:
        """How many seconds an item that is being worked on had waited to be given out."""
        return self._waited.get(item, 0.0)

    def due_in(self, item: Item) -> float:
        """The seconds until an item that is for later is given out; 0 if it is not for later."""
        known = self._due.get(item)
        return max(0.0, known[0] - self._clock.monotonic()) if known is not None else 0.0

    def unfinished_seconds(self) -> list[float]:
        """How long each item has been worked on."""
        now = self._clock.monotonic()
        return [now - began for began in self._working.values()]

    async def idle(self) -> None:
        """Return when it is idle."""
        while not self.is_idle:
            waiter = asyncio.get_running_loop().create_future()
            self._on_idle.append(waiter)
            await waiter

    def _pop(self) -> Item | None:
        while self._ready:
            negative, _, item = heapq.heappop(self._ready)
            waiting = self._waiting.get(item)
            if waiting is None or waiting[0] != -negative:
                continue  # Given out already, or made more urgent since.
            del self._waiting[item]
            now = self._clock.monotonic()
            self._working[item] = now
            self._waited[item] = now - waiting[1]
            self._observer.taken(now - waiting[1])
            return item
        return None

    def _wake_one(self) -> None:
        while self._takers:
            waiter = self._takers.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return

    def _tell_if_idle(self) -> None:
        if self.is_idle and self._on_idle:
            waiters, self._on_idle = self._on_idle, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _set_alarm(self) -> None:
        while self._later and self._due.get(self._later[0][2], (None,))[0] != self._later[0][0]:
            heapq.heappop(self._later)  # An earlier wish has taken its place.
        if not self._later or self._is_closed:
            return
        due = self._later[0][0]
        if self._alarm is not None:
            if self._alarm_due <= due:
                return
            self._alarm.cancel()
        self._alarm_due = due
        self._alarm = self._clock.call_later(due - self._clock.monotonic(), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due, _, item = heapq.heappop(self._later)
            known = self._due.get(item)
            if known is not None and known[0] == due:
                del self._due[item]
                self.add(item, priority=known[1])
        self._set_alarm()
