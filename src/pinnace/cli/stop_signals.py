"""SIGINT, SIGTERM and SIGHUP: the first of them ends a start that has not finished, or a cluster that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pinnace.model.process_signals import stop_signals


class StartStopped(Exception):
    """A signal came before the start was over."""


class StopSignals:
    """Receives the signals of this process from its creation on, within the running loop."""

    def __init__(self) -> None:
        self._received = asyncio.Event()
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
        if self._starting is not None and not self._received.is_set():
            self._starting.cancel()
        self._received.set()
