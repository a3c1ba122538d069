"""What the server does by itself from time to time: forget history, let events expire, and say that it lives."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

import orjson

from pinnace.cluster.bootstrap.objects import lease_name
from pinnace.model.clock import Clock, to_rfc3339_micro
from pinnace.model.objects import Object
from pinnace.server.cache.fanout import Fanout
from pinnace.store import store as stores

log = logging.getLogger(__name__)


class Requests(Protocol):
    async def request(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> object: ...


COMPACT_EVERY = timedelta(minutes=5)
"""History is kept for at least this long, and at most half as long again."""
RENEW_EVERY = timedelta(seconds=10)
EVENTS_LIVE = timedelta(hours=1)
SWEEP_EVERY = timedelta(minutes=1)
EVENTS = "/registry/core/events/"


async def compact_regularly(store: stores.Store, *, every: timedelta = COMPACT_EVERY) -> None:
    """Forget what was already there one interval ago. Looked at twice in each, so that nothing lasts much longer."""
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


async def renew_lease_regularly(api: Requests, clock: Clock, *, every: timedelta = RENEW_EVERY) -> None:
    """Say again and again that this server lives, in the Lease that it was born with."""
    target = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease_name()}"
    headers = {"content-type": "application/merge-patch+json", "user-agent": "kube-apiserver"}
    while True:
        await asyncio.sleep(every.total_seconds())
        renewed = orjson.dumps({"spec": {"renewTime": to_rfc3339_micro(clock.now())}})
        try:
            await api.request("PATCH", target, renewed, headers)
        except stores.WriteFailed as error:
            log.warning("the server's lease could not be renewed, trying again in %s: %s", every, error)


async def expire_events_regularly(
    fanout: Fanout, store: stores.Store, clock: Clock, *, every: timedelta = SWEEP_EVERY
) -> None:
    while True:
        await asyncio.sleep(every.total_seconds())
        try:
            await expire_events(fanout, store, clock.now() - EVENTS_LIVE)
        except stores.WriteFailed as error:
            log.warning("old events could not be deleted, trying again in %s: %s", every, error)


async def expire_events(fanout: Fanout, store: stores.Store, before: datetime) -> int:
    """Delete the events last written before a moment, oldest first; how many there were.

    What an event says of its own times is the client's; when it was written is ours.
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
