"""Sends audit events to a webhook in batches. Requests never wait for it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pinnace.auth.remote import RemoteError
from pinnace.process.clock import Alarm, AlarmClock
from pinnace.process.tasks import Tasks

log = logging.getLogger(__name__)

_HEAD = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":['
_AT_ONCE = 4
_ATTEMPTS = 5
_FACTOR, _JITTER = 1.5, 0.2
_CLOSING_SECONDS = 5.0
_TRY_AGAIN = frozenset((0, 429, 500, 502, 503, 504))
"""The statuses after which another attempt may succeed; 0 stands for no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The size of batches and how long events wait for a full one, in seconds."""

    most_waiting: int = 10_000
    """Further events are dropped: requests must not wait."""
    most_together: int = 400
    longest_wait: float = 30.0
    first_pause: float = 10.0
    """Before the second attempt; each further pause is half as long again."""


class AuditWebhook:
    """Collects events and sends them. Events that fail several attempts are dropped and logged."""

    def __init__(
        self, send: Callable[[bytes], Awaitable[None]], clock: AlarmClock, batching: BatchOptions | None = None
    ) -> None:
        """`send` takes a document. It raises RemoteError."""
        self._send_document = send
        self._clock = clock
        self._batching = batching or BatchOptions()
        self._lines: list[bytes] = []
        self._alarm: Alarm | None = None
        self._is_due = False
        """The waiting events are sent now, even if they do not fill a batch."""
        self._sending = Tasks()
        self._closing = asyncio.Event()
        self.lost = 0
        """The number of dropped events."""

    def write(self, line: bytes) -> None:
        """Send a line soon."""
        if self._closing.is_set():
            self._lose(1, "the server has stopped")
            return
        if len(self._lines) >= self._batching.most_waiting:
            self._lose(1, "too many are waiting")
            return
        self._lines.append(line)
        if self._alarm is None and not self._is_due:
            self._alarm = self._clock.call_later(self._batching.longest_wait, self._due)
        self._send()

    async def close(self) -> None:
        """Send the remaining events, each batch once, for at most a few seconds."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._is_due = True
        self._send()
        async with asyncio.timeout(_CLOSING_SECONDS) as limit:
            try:
                while self._sending:
                    await asyncio.wait(list(self._sending), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self._lose(len(self._lines), "the server stops")
                self._lines.clear()
                await self._sending.close()
                if not limit.expired():
                    raise

    def _due(self) -> None:
        self._alarm = None
        self._is_due = True
        self._send()

    def _send(self) -> None:
        """Start sending full or due batches, unless too many are being sent."""
        most = self._batching.most_together
        while self._lines and (self._is_due or len(self._lines) >= most) and len(self._sending) < _AT_ONCE:
            batch = self._lines[:most]
            del self._lines[:most]
            self._sending.start(self._deliver(batch)).add_done_callback(lambda _: self._send())
        if not self._lines:
            self._is_due = self._closing.is_set()
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None

    async def _deliver(self, batch: list[bytes]) -> None:
        document = _HEAD + b",".join(line.rstrip(b"\n") for line in batch) + b"]}"
        pause = self._batching.first_pause
        for attempt in range(1, _ATTEMPTS + 1):
            is_last = attempt == _ATTEMPTS or self._closing.is_set()
            try:
                await self._send_document(document)
                return
            except asyncio.CancelledError:
                self._lose(len(batch), "the server stops")
                raise
            except RemoteError as error:
                if is_last or error.status not in _TRY_AGAIN:
                    self._lose(len(batch), str(error))
                    return
                log.warning("sending audit events failed, trying again: %s", error)
            except Exception:  # The receiver is broken: the task logs the error.
                self._lose(len(batch), "the webhook's client failed")
                raise
            await self._pause(pause * (1 + _JITTER * random.random()))
            pause *= _FACTOR

    async def _pause(self, seconds: float) -> None:
        """Sleep until the server stops at the latest."""
        async with Tasks() as tasks:
            ends = tasks.start(self._clock.sleep(seconds)), tasks.start(self._closing.wait())
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    def _lose(self, events: int, why: str) -> None:
        if events:
            self.lost += events
            log.error("%d audit events are lost: %s", events, why)
