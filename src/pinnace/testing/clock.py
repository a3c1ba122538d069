"""A clock that a test owns: time stands still until the test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pinnace.process.clock import Alarm

_START = datetime(2026, 1, 1, tzinfo=UTC)
_TURNS = 20
_IDLE_TURNS = 4


class _Alarm:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that only the test advances. Tasks that sleep by it wake in the order of their alarms."""

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._passed = 0.0
        self._alarms: list[tuple[float, int, _Alarm]] = []
        self._numbers = itertools.count()

    def fork(self) -> ManualClock:
        """Return a clock that shows the same time, without alarms. From then on each goes on its own."""
        twin = ManualClock(self._start)
        twin._passed = self._passed
        return twin

    def now(self) -> datetime:
        """Return the time of the test, in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def set(self, now: datetime) -> None:
        """Change the time of day without letting time pass: the alarms stay where they are."""
        self._start = now - timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._passed

    async def sleep(self, seconds: float) -> None:
        """Return after the test has advanced the clock by so many seconds."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        alarm = self.call_later(seconds, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            alarm.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        """Call back when the test has advanced the clock by so many seconds."""
        alarm = _Alarm(callback)
        heapq.heappush(self._alarms, (self._passed + max(0.0, seconds), next(self._numbers), alarm))
        return alarm

    @property
    def next_alarm(self) -> float | None:
        """The seconds until the next alarm; None if there is none."""
        while self._alarms and self._alarms[0][2].callback is None:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] - self._passed if self._alarms else None

    def _take_due(self) -> list[Callable[[], None]]:
        """Remove the alarms whose time has come, and return their callbacks."""
        due: list[Callable[[], None]] = []
        while (wait := self.next_alarm) is not None and wait <= 0:
            _, _, alarm = heapq.heappop(self._alarms)
            callback, alarm.callback = alarm.callback, None
            if callback is not None:
                due.append(callback)
        return due

    async def advance(self, seconds: float) -> None:
        """Let time pass. Tasks that wake run before time goes on, as far as they do not wait for real time."""
        end = self._passed + seconds
        await self._turn()
        while (wait := self.next_alarm) is not None and self._passed + wait <= end:
            due, _, alarm = heapq.heappop(self._alarms)
            self._passed = max(self._passed, due)
            callback, alarm.callback = alarm.callback, None
            if callback is not None:
                callback()
            await self._turn()
        self._passed = end

    async def _turn(self) -> None:
        # Each turn of the event loop advances a chain of awaits by one step. After some turns in which nothing else
        # was ready, only real time can make something ready. The loops of asyncio tell; for others all turns are made.
        ready, idle = getattr(asyncio.get_running_loop(), "_ready", None), 0
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            idle = idle + 1 if ready is not None and not ready else 0
            if idle == _IDLE_TURNS:
                return
