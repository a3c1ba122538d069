"""Time limits by a Clock, so that tests decide when they are over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinnace.model.clock import AlarmClock


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
