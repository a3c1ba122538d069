"""A watch that never ends: lists once, then goes on through lost connections, restarts and forgotten history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Protocol

from pinnace.client.credentials import NoCredentials
from pinnace.client.retries import Backoff
from pinnace.client.snapshots import Snapshot
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.clock import AlarmClock

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
MISSING = 2.0
"""Kinds that are missing are looked for more often than servers: somebody is about to define them."""
_UNSUPPORTED = (errors.MethodNotAllowed, errors.BadMethod)
SHORT = 1.0
"""A connection that ends within so many seconds, having brought nothing, is a failure."""


@dataclass(frozen=True, slots=True)
class Event:
    """One object as it is now; a DELETED one as it was last, at the version of its deletion."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK, whose object has nothing but a version."""
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Restarted:
    """From here to the next `Synced` every object that exists comes once. What does not come is gone."""


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything up to this version has come."""

    version: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Nothing has happened up to this version beyond what has come."""

    version: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """The server cannot be followed now; it is tried again. What was known may grow old meanwhile."""

    error: Exception


Followed = Event | Restarted | Synced | Progress | Trouble


class Source(Protocol):
    """The two reads that following needs."""

    def watch(self, *, version: str, initial: bool, seconds: int) -> AsyncGenerator[Event, None]:
        """One connection. With `initial`, what exists comes first, and a bookmark says where that ends."""

    def everything(self) -> AsyncIterator[tuple[list[Snapshot], str]]:
        """A whole list, by pages, each with the version of the list."""

    def forget(self) -> None:
        """The URL serves nothing: look for another the next time."""


async def follow(
    source: Source,
    *,
    clock: AlarmClock,
    backoff: Backoff | None = None,
    seconds: Callable[[], int] = lambda: random.randint(300, 600),
    nudge: asyncio.Event | None = None,
) -> AsyncGenerator[Followed, None]:
    """Everything that exists, then everything that happens, for ever.

    A kind that is not served, or no longer, has no objects: that is told once, and it is tried again. Setting `nudge`
    makes the next try come at once. One that cannot be watched is listed, then, and whenever there is a nudge: nobody
    tells of its changes. Ends only when it is closed.
    """
    nudge = nudge or asyncio.Event()
    backoff = backoff or Backoff(first=0.2, longest=30.0)
    can_stream_lists = True
    version = ""
    failures = 0
    is_known_missing = False
    while True:
        began = clock.monotonic()
        heard = is_listed = False
        try:
            async with AsyncExitStack() as opened:
                listing = not version
                if listing:
                    yield Restarted()
                    if not can_stream_lists:
                        async for snapshots, listed in source.everything():
                            for snapshot in snapshots:
                                yield Event("ADDED", snapshot)
                            version = listed
                        listing, is_listed = False, True
                        heard, is_known_missing = True, False
                        yield Synced(version)
                watch = source.watch(version=version, initial=listing, seconds=seconds())
                events = await opened.enter_async_context(aclosing(watch))
                async for event in events:
                    heard, is_known_missing = True, False
                    if event.type != "BOOKMARK":
                        if not listing:
                            version = event.snapshot.version
                        yield event
                    elif not listing:
                        version = event.snapshot.version
                        yield Progress(version)
                    elif event.snapshot.annotations.get(INITIAL_EVENTS_END) == "true":
                        listing = False
                        version = event.snapshot.version
                        yield Synced(version)
                    failures = 0
            trouble: Exception | None = None
        except (errors.Expired, errors.Gone):
            version, trouble = "", None
        except errors.NoSuchPath as error:
            source.forget()
            version, trouble = "", error
            if not is_known_missing:
                is_known_missing = True
                yield Restarted()
                yield Synced("")
        except _UNSUPPORTED as error:
            trouble = error
            version = ""  # What has been listed will be again when somebody asks.
            if can_stream_lists:
                can_stream_lists, heard, trouble = False, True, None
            elif not is_listed:
                yield Synced("")  # Nor can it be listed.
        except (errors.Invalid, errors.BadRequest, errors.InternalError) as error:
            if can_stream_lists and not version:
                # Servers before 1.27, those told not to, and those on an old etcd do not begin a watch with a list.
                can_stream_lists, heard, trouble = False, True, None
            else:
                trouble = error
        except (errors.ApiError, ConnectionLost, NoCredentials) as error:
            trouble = error
        if trouble is None and (heard or clock.monotonic() - began >= SHORT):
            failures = 0
            continue
        failures += 1
        if trouble is not None:
            yield Trouble(trouble)
        delay = backoff.delay(failures)
        if isinstance(trouble, errors.NoSuchPath):
            delay = min(delay, MISSING)
        elif isinstance(trouble, errors.ApiError):
            delay = max(delay, trouble.retry_after)
        # What a server does not offer it will not offer in a minute.
        alarm = None if isinstance(trouble, _UNSUPPORTED) else clock.call_later(delay, nudge.set)
        try:
            await nudge.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
            nudge.clear()
