"""A watch that never ends: it lists once, then resumes after lost connections, restarts and expired versions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from pinnace.client.credentials import NoCredentials
from pinnace.client.snapshots import Snapshot
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.process.backoff import Backoff
from pinnace.process.clock import AlarmClock

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
MISSING_SECONDS = 2.0
"""The longest delay before a kind that is not served is looked for again: its definition may be about to appear."""
LONGEST_SECONDS = 300.0
"""The longest delay that a server may ask for."""
UNSUPPORTED_SECONDS = 300.0
"""The delay before a kind that cannot be watched is tried again: an aggregated server may have been wrong about it."""
SHORT_SECONDS = 1.0
"""A connection that ends within this time without an event counts as a failure."""
_UNSUPPORTED = (errors.MethodNotAllowed, errors.BadMethod)


@dataclass(frozen=True, slots=True)
class Event:
    """One object in its current state; for DELETED its last state, at the version of its deletion."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK, whose object has only a version."""
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Restarted:
    """A new list begins: every existing object follows once before the next `Synced`. Objects that do not are gone."""


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything up to this version has been sent."""

    version: str


@dataclass(frozen=True, slots=True)
class Progress:
    """There were no further changes up to this version."""

    version: str


@dataclass(frozen=True, slots=True)
class FollowError:
    """The server cannot be followed now; it is tried again. Known objects may be out of date until then."""

    error: Exception


Followed = Event | Restarted | Synced | Progress | FollowError


@dataclass(frozen=True, slots=True)
class Source:
    """The reads that following needs."""

    watch: Callable[[str, bool, int], AsyncGenerator[Event, None]]
    """Watch after a version, over one connection, for so many seconds. If the second argument is true, existing objects
    come first, and a bookmark ends them."""
    everything: Callable[[], AsyncIterator[tuple[list[Snapshot], str]]]
    """Yield a whole list, by pages, each with the version of the list."""
    forget: Callable[[], None]
    """Look up the URL again next time: it serves nothing."""


async def follow(
    source: Source,
    *,
    clock: AlarmClock,
    backoff: Backoff | None = None,
    seconds: Callable[[], int] = lambda: random.randint(300, 600),
    nudge: asyncio.Event | None = None,
) -> AsyncGenerator[Followed, None]:
    """Yield everything that exists, then every change, until closed.

    A kind that is not served has no objects: that is reported once, and the kind is looked for again. Setting `nudge`
    ends the delay before the next attempt. A kind that cannot be watched is listed again after each nudge and every
    `UNSUPPORTED_SECONDS`.
    """
    nudge = nudge or asyncio.Event()
    backoff = backoff or Backoff(first=0.2, longest=30.0)
    attempts = _Attempts(source, seconds)
    while True:
        began = clock.monotonic()
        error: Exception | None = None
        try:
            async with aclosing(attempts.list_and_watch()) as events:
                async for event in events:
                    yield event
                    del event  # It may be large, and the next one may be long in coming.
        except (errors.ApiError, ConnectionLost, NoCredentials) as failure:
            error = attempts.handle(failure)
            for event in attempts.take_events():
                yield event
        if error is None and (attempts.was_useful or clock.monotonic() - began >= SHORT_SECONDS):
            attempts.failures = 0
            continue
        attempts.failures += 1
        if error is not None:
            yield FollowError(error)
        await _wait(nudge, clock, _delay_after(error, backoff.delay(attempts.failures)))


class _Attempts:
    """The state between attempts to follow: where to resume, and what the server supports."""

    def __init__(self, source: Source, seconds: Callable[[], int]) -> None:
        self._source = source
        self._seconds = seconds
        self._version = ""  # Resume after this version; empty to list first.
        self._can_stream_lists = True
        self._is_known_missing = False
        self._is_listed = False
        self._events: list[Followed] = []
        self.was_useful = False
        """Whether the last attempt received something, or learnt what the server does not support."""
        self.failures = 0

    async def list_and_watch(self) -> AsyncGenerator[Followed, None]:
        """Make one attempt: list if there is no version to resume after, then watch until the connection ends."""
        self.was_useful = self._is_listed = False
        is_listing = not self._version
        if is_listing:
            yield Restarted()
        if is_listing and not self._can_stream_lists:
            version = ""
            async for snapshots, page_version in self._source.everything():
                version = page_version
                for snapshot in snapshots:
                    yield Event("ADDED", snapshot)
            is_listing, self._is_listed = False, True
            self._version = version
            self._receive()
            yield Synced(version)
        watch = self._source.watch(self._version, is_listing, self._seconds())
        async with aclosing(watch) as events:
            async for event in events:
                self._receive()
                if event.type != "BOOKMARK":
                    if not is_listing:
                        self._version = event.snapshot.version
                    yield event
                    del event
                elif not is_listing:
                    self._version = event.snapshot.version
                    yield Progress(self._version)
                elif event.snapshot.annotations.get(INITIAL_EVENTS_END) == "true":
                    is_listing = False
                    self._version = event.snapshot.version
                    yield Synced(self._version)
                self.failures = 0

    def _receive(self) -> None:
        self.was_useful, self._is_known_missing = True, False

    def handle(self, error: Exception) -> Exception | None:
        """Prepare the next attempt. Return the error to report; None if there is nothing wrong."""
        if isinstance(error, errors.Expired | errors.Gone):
            self._version = ""
            return None
        if isinstance(error, errors.NoSuchPath):
            self._source.forget()
            self._version = ""
            if not self._is_known_missing:
                self._is_known_missing = True
                self._events = [Restarted(), Synced("")]
            return error
        if isinstance(error, _UNSUPPORTED):
            self._version = ""  # A listed kind is listed again after the next nudge.
            if self._can_stream_lists:
                self._stop_streaming_lists()
                return None
            if not self._is_listed:
                self._events = [Synced("")]  # It cannot be listed either.
            return error
        is_rejected = isinstance(error, errors.Invalid | errors.BadRequest | errors.InternalError)
        if is_rejected and self._can_stream_lists and not self._version:
            # Servers before 1.27, those with the feature off and those on an old etcd do not stream lists.
            self._stop_streaming_lists()
            return None
        if isinstance(error, errors.ApiError):
            self._source.forget()  # The URL may come from a malformed discovery page.
        return error

    def _stop_streaming_lists(self) -> None:
        self._can_stream_lists, self.was_useful = False, True

    def take_events(self) -> Iterable[Followed]:
        """Return the events that follow from the last error."""
        events, self._events = self._events, []
        return events


def _delay_after(error: Exception | None, delay: float) -> float:
    """Return the seconds until the next attempt."""
    if isinstance(error, _UNSUPPORTED):
        return UNSUPPORTED_SECONDS  # The server will hardly support it in a minute.
    if isinstance(error, errors.NoSuchPath):
        return min(delay, MISSING_SECONDS)
    if isinstance(error, errors.ApiError):
        return max(delay, min(error.retry_after, LONGEST_SECONDS))
    return delay


async def _wait(nudge: asyncio.Event, clock: AlarmClock, delay: float) -> None:
    alarm = clock.call_later(delay, nudge.set)
    try:
        await nudge.wait()
    finally:
        alarm.cancel()
        nudge.clear()
