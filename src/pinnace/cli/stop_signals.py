"""SIGINT, SIGTERM and SIGHUP: the first of them ends a start that has not finished, or a cluster that runs.

A second one ends the process at once, as with Kubernetes' programs: every answered write is on the disk.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pinnace.model.process_signals import stop_signals

REPEAT_SECONDS = 1.0
"""A signal that comes sooner after the first is the same wish: systemd sends SIGTERM and SIGHUP together."""


class StartStopped(Exception):
    """A signal came before the start was over."""


class StopSignals:
    """Receives the signals of this process from its creation on, within the running loop."""

    def __init__(self) -> None:
        self._received = asyncio.Event()
        self._received_at = 0.0
        self._starting: asyncio.Task[object] | None = None
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._receive)

    async def wait(self) -> None:
        """Return when a signal has been received."""
        await self._received.wait()

    @contextmanager
    def ending_start(self) -> Iterator[None]:
        """Cancel the block at a signal, and raise StartStopped."""
        self._starting = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if not self._received.is_set() or self._starting is None:
                raise
            self._starting.uncancel()
            raise StartStopped from None
        finally:
            self._starting = None

    def _receive(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._received.is_set():
            if now - self._received_at >= REPEAT_SECONDS:
                print("ending at once: this is the second signal", file=sys.stderr, flush=True)
                os._exit(1)
            return
        self._received_at = now
        if self._starting is not None:
            self._starting.cancel()
        self._received.set()
