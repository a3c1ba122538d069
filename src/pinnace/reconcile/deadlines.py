"""Time limits by a Clock, so that tests decide when they are over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from pinnace.process.clock import AlarmClock

STOP_SECONDS = 15.0
"""Half of the time after which Kubernetes kills a container that is stopping."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def deadline(clock: AlarmClock, seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the block is not done after that many seconds of the clock: it is cancelled then."""
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    try:
        async with limit:
            alarm = clock.call_later(seconds, lambda: limit.reschedule(loop.time()))
            try:
                yield
            finally:
                alarm.cancel()
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"not done after {seconds:g} s") from None
        raise


class StopDeadline:
    """The time for the last requests of a process, all together: a server that is silent must not keep it alive."""

    def __init__(self, clock: AlarmClock, seconds: float = STOP_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end: float | None = None

    async def run(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Await `work` until the time is over, which begins with the first work. Log `what` is left undone."""
        now = self._clock.monotonic()
        if self._end is None:
            self._end = now + self._seconds
        try:
            async with deadline(self._clock, max(self._end - now, 0.0)):
                await work()
        except TimeoutError:
            message = "%s is not undone: the API server did not answer within %g s of the stop"
            _log.warning(message, what, self._seconds)
