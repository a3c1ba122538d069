"""What the server does by itself from time to time: forget old history, and let events expire."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from pinnace.model.clock import Clock
from pinnace.model.objects import Object
from pinnace.server.fanout import Fanout
from pinnace.store import store as stores

log = logging.getLogger(__name__)

COMPACT_EVERY = timedelta(minutes=5)
"""History is kept for at least this long, and at most twice as long, as Kubernetes does."""
EVENTS_LIVE = timedelta(hours=1)
SWEEP_EVERY = timedelta(minutes=1)
EVENTS = "/registry/core/events/"


async def compact_regularly(store: stores.Store, *, every: timedelta = COMPACT_EVERY) -> None:
    """Forget what was already old at the last round."""
    old = store.revision
    while True:
        await asyncio.sleep(every.total_seconds())
        newer = store.revision
        try:
            await store.compact(old)
        except stores.WriteFailed as problem:
            log.warning("history could not be compacted, trying again in %s: %s", every, problem)
            continue
        old = newer


async def expire_events_regularly(
    fanout: Fanout, store: stores.Store, clock: Clock, *, every: timedelta = SWEEP_EVERY
) -> None:
    while True:
        await asyncio.sleep(every.total_seconds())
        try:
            await expire_events(fanout, store, clock.now() - EVENTS_LIVE)
        except stores.WriteFailed as problem:
            log.warning("old events could not be deleted, trying again in %s: %s", every, problem)


async def expire_events(fanout: Fanout, store: stores.Store, before: datetime) -> int:
    """Delete the events last written before a moment, oldest first; how many there were.

    What an event says of its own times is the client's; when it was written is ours.
    """
    shelf = fanout.shelf(EVENTS)
    expired = 0
    for key, entry in sorted(shelf.entries.items(), key=lambda item: item[1].revision):
        if _last_written(entry.decode()) >= before:
            break
        try:
            await store.delete(EVENTS + key, expected=entry.revision)
            expired += 1
        except stores.Conflict:
            continue  # Written again meanwhile: it lives on.
    return expired


def _last_written(event: Object) -> datetime:
    metadata = event["metadata"]
    times = [metadata["creationTimestamp"], *(entry.get("time") for entry in metadata.get("managedFields") or [])]
    return max(datetime.fromisoformat(time) for time in times if time)
