"""The background parts of the server itself: regular jobs, custom kinds and aggregated APIs."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from pinnace.cluster.extensions.aggregation import Aggregation
from pinnace.cluster.extensions.custom_resources import CustomResources
from pinnace.cluster.health.supervisor import Supervisor
from pinnace.cluster.in_process import in_process_client
from pinnace.model.clock import AlarmClock
from pinnace.model.objects import Object
from pinnace.server.cache.fanout import Fanout
from pinnace.server.local import LocalApi
from pinnace.store import store as stores

log = logging.getLogger(__name__)


COMPACT_EVERY = timedelta(minutes=5)
"""History is kept for at least this long, and at most half as long again."""
EVENTS_LIVE = timedelta(hours=1)
SWEEP_EVERY = timedelta(minutes=1)
EVENTS = "/registry/core/events/"


class BackgroundPlane(Protocol):
    """A control plane whose background parts can be started."""

    @property
    def supervisor(self) -> Supervisor: ...
    @property
    def custom_resources(self) -> CustomResources: ...
    @property
    def aggregation(self) -> Aggregation: ...
    @property
    def fanout(self) -> Fanout: ...
    @property
    def store(self) -> stores.Store: ...
    @property
    def clock(self) -> AlarmClock: ...

    def local(self) -> LocalApi: ...


def add_extension_parts(plane: BackgroundPlane) -> None:
    """Keep the status of custom resource definitions and APIServices."""
    client = in_process_client(plane.local(), clock=plane.clock, field_manager="kube-apiserver")
    for name, run in (
        ("start-apiextensions-controllers", plane.custom_resources.run),
        ("apiservice-status-remote-available-controller", plane.aggregation.run_availability),
        ("kube-apiserver-autoregistration", plane.aggregation.run_registration),
        ("metrics-multiplexer", plane.aggregation.metrics.run),
    ):
        plane.supervisor.add(f"poststarthook/{name}", partial(run, client))


def add_regular_jobs(plane: BackgroundPlane) -> None:
    """Compact the store, and expire events."""
    store, clock = plane.store, plane.clock
    add = plane.supervisor.add
    add("store-compaction", partial(compact_regularly, store))
    if not store.is_shared:  # In etcd events have leases.
        add("event-expiry", partial(expire_events_regularly, plane.fanout, store, clock))


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
