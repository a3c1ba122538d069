"""Report an `async` handler that blocks the event loop: until it returns, no lease is renewed and no probe answered."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinnace.model.thread_stacks import stack_of_thread

LIMIT_SECONDS = 1.0

_log = logging.getLogger(__name__)


class _Heartbeat:
    """The time at which the loop last ran, which a thread compares with the current time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._thread = threading.get_ident()
        self._beat = time.monotonic()
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._tick()
        threading.Thread(target=self._watch, name=f"{self._name}-loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._beat = time.monotonic()
        self._timer = self._loop.call_later(LIMIT_SECONDS / 4, self._tick)

    def _watch(self) -> None:
        reported = 0.0
        while not self._stopped.wait(LIMIT_SECONDS / 2):
            beat = self._beat
            late = time.monotonic() - beat - LIMIT_SECONDS / 4
            if late > LIMIT_SECONDS and beat != reported:
                reported = beat
                stack = "\n".join(f"  {frame}" for frame in stack_of_thread(self._thread))
                _log.error(
                    "%s has blocked its event loop for %.1f s: no lease is renewed and no probe is answered meanwhile. "
                    "Write `def` instead of `async def` for a handler that blocks. It is here:\n%s",
                    self._name,
                    late,
                    stack,
                )


@asynccontextmanager
async def loop_watched(name: str) -> AsyncIterator[None]:
    """Log the stack of the event loop's thread whenever it is blocked for more than a second within the block."""
    heartbeat = _Heartbeat(asyncio.get_running_loop(), name)
    heartbeat.start()
    try:
        yield
    finally:
        heartbeat.stop()
