"""All time comes from a Clock, so that tests can control it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime: ...


class Alarm(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class AlarmClock(Clock, Protocol):
    """A clock that can also wait and call back."""

    def monotonic(self) -> float:
        """Return monotonic seconds, for measuring."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of this clock."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        """Call back on the running event loop after that many seconds of this clock."""


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        return asyncio.get_running_loop().call_later(seconds, callback)


_SERVER_CLOCK: ContextVar[Clock | None] = ContextVar("server clock", default=None)


def enter_server_clock(clock: Clock) -> None:
    """Make `server_now` read this clock for the rest of the current task. Every write begins with it."""
    _SERVER_CLOCK.set(clock)


def server_now() -> datetime:
    """Return the time of the server whose write is being prepared or validated; the machine's own outside of one.

    The few kinds that need the time call this: a clock in every call would cost all the others.
    """
    return (_SERVER_CLOCK.get() or SystemClock()).now()


def later(moment: datetime, seconds: float) -> datetime:
    """Return the moment so many seconds later, or earlier if they are negative.

    Users choose seconds of 64 bits: where the calendar ends, its last or first moment is returned.
    """
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=moment.tzinfo)


def to_rfc3339(moment: datetime) -> str:
    """Format as Kubernetes' `Time`: whole seconds, UTC, with a Z."""
    return moment.isoformat(timespec="seconds")[:19] + "Z"


_SECOND = timedelta(seconds=1)


class SecondFormatter:
    """Formats as `to_rfc3339`, once for each second: a server formats the time of every write."""

    __slots__ = ("_begin", "_end", "_text")

    def __init__(self) -> None:
        self._begin = self._end = datetime.min.replace(tzinfo=UTC)
        self._text = ""

    def format(self, moment: datetime) -> str:
        if not self._begin <= moment < self._end:
            self._begin = moment.replace(microsecond=0)
            self._end = self._begin + _SECOND
            self._text = to_rfc3339(moment)
        return self._text


def to_rfc3339_micro(moment: datetime) -> str:
    """Format as Kubernetes' `MicroTime`: six digits, UTC, with a Z."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"
