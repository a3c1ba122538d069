"""A clock for programs outside of the test's process: time passes by itself, and a test can stop it or make it jump."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from pinnace.process.clock import Alarm
from pinnace.testing.clock import ManualClock


class LiveClock(ManualClock):
    """Follows the system's clock until it is paused. `advance` makes it jump, and it goes on from there."""

    def __init__(self, start: datetime | None = None) -> None:
        super().__init__(start or datetime.now(UTC))
        self._synced_at = time.monotonic()
        self._is_paused = False
        self._is_jumping = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_paused(self) -> bool:
        """Whether time stands still."""
        return self._is_paused

    def pause(self) -> None:
        """Let time stand still until `resume`; `advance` works meanwhile."""
        self._sync()
        self._is_paused = True
        self._arm()

    def resume(self) -> None:
        """Let time pass again."""
        self._sync()
        self._is_paused = False
        self._arm()

    def fork(self) -> LiveClock:
        """Return a clock that shows the same time, without alarms; it stands still if this one does."""
        self._sync()
        twin = LiveClock(self._start)
        twin._passed = self._passed
        twin._is_paused = self._is_paused
        return twin

    def now(self) -> datetime:
        self._sync()
        return super().now()

    def set(self, now: datetime) -> None:
        """Change the time of day without letting time pass: the alarms stay where they are."""
        self._sync()
        super().set(now)

    def monotonic(self) -> float:
        self._sync()
        return super().monotonic()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        self._sync()
        alarm = super().call_later(seconds, callback)
        self._arm()
        return alarm

    async def advance(self, seconds: float) -> None:
        """Make time jump. Tasks that wake run before time goes on, as far as they do not wait for real time."""
        self._sync()
        self._is_jumping = True
        try:
            await super().advance(max(0.0, seconds))
        finally:
            self._is_jumping = False
            self._synced_at = time.monotonic()
            self._arm()

    def close(self) -> None:
        """Call nothing back any more."""
        self._is_paused = True
        self._arm()

    def _sync(self) -> None:
        """Add the time that has passed since the last call."""
        if not self._is_jumping:
            now = time.monotonic()
            if not self._is_paused:
                self._passed += now - self._synced_at
            self._synced_at = now

    def _arm(self) -> None:
        """Set the event loop's timer to the next alarm."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = self.next_alarm
        if wait is not None and not self._is_paused and not self._is_jumping:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._sync()
        for alarm in self._take_due():
            alarm()
        self._arm()
