"""Report an `async` handler that blocks the event loop: until it returns, no lease is renewed and no probe answered."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
                frame = sys._current_frames().get(self._thread)
                stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
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
