"""A work queue: each item once, never with two workers at a time, now or later, by priority."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from pinnace.client.rates import Rate
from pinnace.process.backoff import Backoff
from pinnace.process.clock import Alarm, AlarmClock
from pinnace.reconcile.metrics import Metrics, QueueMetrics

Item = TypeVar("Item", bound=Hashable)

RETRIES = Backoff(first=0.005, longest=1000.0)


class Closed(Exception):
    """The queue is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileLimits:
    """How often a controller reconciles, and how often it repeats a reconcile that fails."""

    backoff: Backoff = RETRIES
    retries: int | None = None
    """Give up after so many failures in a row, until the object changes; None for never."""
    rate: Rate | None = None
    """Reconciles per second, of all objects together; None for no limit."""


class Exclusion(Generic[Item]):
    """The items that workers of several queues have now: each with at most one worker. For one event loop."""

    def __init__(self) -> None:
        self._held: dict[Item, list[Callable[[], None]]] = {}

    def take(self, item: Item, on_release: Callable[[], None]) -> bool:
        """Take an item; if a worker has it, return False and call `on_release` once it is free."""
        waiting = self._held.get(item)
        if waiting is None:
            self._held[item] = []
            return True
        waiting.append(on_release)
        return False

    def release(self, item: Item) -> None:
        for call in self._held.pop(item):
            call()


class Queue(Generic[Item]):
    """Level-triggered: it holds the items to process, not the events that caused them.

    An item that is added while a worker has it is given out again when that worker is done. For one event loop.
    """

    def __init__(
        self,
        *,
        clock: AlarmClock,
        backoff: Backoff = RETRIES,
        metrics: QueueMetrics | None = None,
        exclusion: Exclusion[Item] | None = None,
    ) -> None:
        """Queues with the same `exclusion` never give out the same item at the same time."""
        self._clock = clock
        self._backoff = backoff
        self._exclusion = exclusion
        self._metrics = metrics or QueueMetrics(Metrics(), "")
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
        """The number of items that have become due so far."""

    # Adding

    def add(self, item: Item, *, priority: int = 0) -> None:
        """Add an item that is due now. Of two priorities the higher wins."""
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
            self._metrics.added()
            self._wake_one()

    def add_after(self, item: Item, seconds: float, *, priority: int = 0) -> None:
        """Add an item that is due after so many seconds. Of two times the earlier wins."""
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
        """Add an item again after a failure, and return the delay, which grows with the failures in a row."""
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        seconds = self._backoff.delay(failures)
        self._metrics.retried()
        self.add_after(item, seconds, priority=priority)
        return seconds

    def forget(self, item: Item) -> None:
        """Reset the failures of an item after a success."""
        self._failures.pop(item, None)

    def failures(self, item: Item) -> int:
        return self._failures.get(item, 0)

    # Taking

    async def take(self) -> Item:
        """Take the item with the highest priority, the oldest of these. Call `done` afterwards. Raise Closed."""
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
                    self._wake_one()  # This taker was woken and cancelled: another must take the item.
                raise
        raise Closed

    def done(self, item: Item) -> None:
        self._metrics.finished(self._clock.monotonic() - self._working.pop(item))
        self._waited.pop(item, None)
        if self._exclusion is not None:
            self._exclusion.release(item)
        priority = self._again.pop(item, None)
        if priority is not None:
            self.add(item, priority=priority)
        self._notify_if_idle()

    def close(self) -> None:
        """Give out no more items: `take` raises Closed. Items that workers have may be finished."""
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._takers:
            self._wake_one()

    def open(self) -> None:
        """Give out items again, also those that were added while it was closed."""
        self._is_closed = False
        self._set_alarm()

    # State

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def depth(self) -> int:
        """The number of items that are due."""
        return len(self._waiting)

    @property
    def working(self) -> int:
        return len(self._working)

    @property
    def busy(self) -> list[Item]:
        """The items that are due or with a worker."""
        return [*self._working, *self._waiting]

    @property
    def delayed(self) -> int:
        """The number of delayed items."""
        return len(self._due)

    @property
    def is_idle(self) -> bool:
        """Whether no item is due and no worker has one. There may be delayed items."""
        return not (self._waiting or self._working)

    def waited(self, item: Item) -> float:
        """Return the seconds that an item of a worker has waited after it was due."""
        return self._waited.get(item, 0.0)

    def due_in(self, item: Item) -> float:
        """Return the seconds until a delayed item is due; 0 if it is not delayed."""
        known = self._due.get(item)
        return max(0.0, known[0] - self._clock.monotonic()) if known is not None else 0.0

    def unfinished_seconds(self) -> list[float]:
        """Return how long each worker has had its item."""
        now = self._clock.monotonic()
        return [now - began for began in self._working.values()]

    async def idle(self) -> None:
        """Return when the queue is idle."""
        while not self.is_idle:
            waiter = asyncio.get_running_loop().create_future()
            self._on_idle.append(waiter)
            await waiter

    def _pop(self) -> Item | None:
        while self._ready:
            negative, _, item = heapq.heappop(self._ready)
            waiting = self._waiting.get(item)
            if waiting is None or waiting[0] != -negative:
                continue  # Given out already, or added again with a higher priority.
            if self._exclusion is not None and not self._exclusion.take(item, partial(self._offer_again, item)):
                continue  # It is offered again when the other queue's worker is done with it.
            del self._waiting[item]
            now = self._clock.monotonic()
            self._working[item] = now
            self._waited[item] = now - waiting[1]
            self._metrics.taken(now - waiting[1])
            return item
        return None

    def _offer_again(self, item: Item) -> None:
        """Offer an item that a worker of another queue had."""
        waiting = self._waiting.get(item)
        if waiting is not None:
            heapq.heappush(self._ready, (-waiting[0], next(self._numbers), item))
            self._wake_one()

    def _wake_one(self) -> None:
        while self._takers:
            waiter = self._takers.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return

    def _notify_if_idle(self) -> None:
        if self.is_idle and self._on_idle:
            waiters, self._on_idle = self._on_idle, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _set_alarm(self) -> None:
        while self._later and self._due.get(self._later[0][2], (None,))[0] != self._later[0][0]:
            heapq.heappop(self._later)  # Replaced by an earlier time.
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
