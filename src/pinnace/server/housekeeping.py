"""Compacts the history of a store regularly, and expires events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import datetime, timedelta

from pinnace.model.objects import Object
from pinnace.process.clock import AlarmClock
from pinnace.serving.cache.fanout import Fanout
from pinnace.store import store as stores

log = logging.getLogger(__name__)

COMPACT_EVERY = timedelta(minutes=5)
"""History is kept for at least this long, and at most half as long again."""
EVENTS_LIVE = timedelta(hours=1)
SWEEP_EVERY = timedelta(minutes=1)
EVENTS = "/registry/core/events/"


async def compact_regularly(store: stores.Store, *, every: timedelta = COMPACT_EVERY) -> None:
    """Compact the history that is older than an interval, twice per interval so that nothing lasts much longer."""
    marks = deque([store.revision])
    while True:
        await asyncio.sleep(every.total_seconds() / 2)
        marks.append(store.revision)
        if len(marks) < 3:
            continue
        try:
            await store.compact(marks[0])
        except stores.WriteFailed as error:
            log.warning("history could not be compacted, trying again in %s: %s", every / 2, error)
        marks.popleft()


async def expire_events_regularly(
    fanout: Fanout, store: stores.Store, clock: AlarmClock, *, every: timedelta = SWEEP_EVERY
) -> None:
    """Delete events an hour after their last write."""
    while True:
        await clock.sleep(every.total_seconds())
        try:
            await expire_events(fanout, store, clock.now() - EVENTS_LIVE)
        except stores.WriteFailed as error:
            log.warning("old events could not be deleted, trying again in %s: %s", every, error)


async def expire_events(fanout: Fanout, store: stores.Store, before: datetime) -> int:
    """Delete the events last written before a moment, oldest first, and return their number.

    The time of the last write is the server's own; the times inside an event are its client's and do not count.
    """
    cache = fanout.cache(EVENTS)
    expired = 0
    for key, entry in sorted(cache.entries.items(), key=lambda item: item[1].revision):
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
