"""Background jobs of the server: old history is compacted, old events are deleted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.server.in_process import InProcess, control_plane

from pinnace.process.clock import SystemClock
from pinnace.server.housekeeping import (
    EVENTS_LIVE,
    compact_regularly,
    expire_events,
    expire_events_regularly,
)
from pinnace.store.memory import MemoryStore
from pinnace.store.store import WriteFailed

EVENTS = "/api/v1/namespaces/default/events"
START = datetime(2030, 1, 1, tzinfo=UTC)


class MovedClock(SystemClock):
    """Time that a test moves."""

    moment = START

    def now(self) -> datetime:
        return self.moment


def event(name: str, **more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "web"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "Started", "type": "Normal", **more}


async def names(api: InProcess) -> list[str]:
    return (await api.get(EVENTS)).names


async def test_events_are_deleted_an_hour_after_they_were_last_written() -> None:
    clock = MovedClock()
    async with control_plane(clock=clock) as api:
        await api.made(EVENTS, event("old"))
        await api.made(EVENTS, event("again"))
        clock.moment = START + timedelta(minutes=30)
        await api.made(EVENTS, event("new"))
        assert (await api.patch(f"{EVENTS}/again", {"count": 2})).status == 200
        late = START + timedelta(minutes=61)
        assert await expire_events(api.plane.fanout, api.plane.store, late - EVENTS_LIVE) == 1
        assert await names(api) == ["again", "new"]
        assert await expire_events(api.plane.fanout, api.plane.store, late) == 2
        assert await names(api) == []


async def test_an_event_with_a_time_in_the_future_delays_nothing() -> None:
    clock = MovedClock()
    async with control_plane(clock=clock) as api:
        await api.made(EVENTS, event("liar", lastTimestamp="2099-01-01T00:00:00Z"))
        await api.made(EVENTS, event("honest"))
        await expire_events(api.plane.fanout, api.plane.store, START + timedelta(hours=2))
        assert await names(api) == []


async def test_watchers_see_events_go() -> None:
    clock = MovedClock()
    async with control_plane(clock=clock) as api:
        await api.made(EVENTS, event("old"))
        watch = await api.watch(f"{EVENTS}?watch=1")
        await expire_events(api.plane.fanout, api.plane.store, START + timedelta(hours=2))
        assert [event["type"] for event in await watch.take(2)] == ["ADDED", "DELETED"]
        watch.close()


class FullStore(MemoryStore):
    """A disk that is full for a while."""

    is_full = False
    refused = 0

    async def delete(self, key: str, *, expected: int | None) -> int:
        self._check_room()
        return await super().delete(key, expected=expected)

    async def compact(self, revision: int) -> None:
        self._check_room()
        await super().compact(revision)

    def _check_room(self) -> None:
        if self.is_full:
            self.refused += 1
            raise WriteFailed("the disk is full")


async def until(is_true: Any) -> None:
    async with asyncio.timeout(60):
        while not is_true():
            await asyncio.sleep(0)


async def test_background_jobs_go_on_when_the_disk_has_room_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = MovedClock(), FullStore()
    often = timedelta(microseconds=1)
    async with control_plane(store, clock=clock) as api:
        await api.made(EVENTS, event("old"))
        clock.moment = START + timedelta(hours=2)
        store.is_full = True
        tasks = [
            asyncio.create_task(expire_events_regularly(api.plane.fanout, store, clock, every=often)),
            asyncio.create_task(compact_regularly(store, every=often)),
        ]
        await until(lambda: store.refused > 3)
        store.is_full = False
        await until(lambda: store.compacted > 0 and not api.plane.fanout.cache("/registry/core/events/").entries)
        for task in tasks:
            task.cancel()
        assert "trying again" in caplog.text


async def test_history_is_forgotten_one_round_late() -> None:
    store = MemoryStore()
    async with control_plane(store) as api:
        first = store.revision
        task = asyncio.create_task(compact_regularly(store, every=timedelta(microseconds=1)))
        await until(lambda: store.compacted == first)
        await api.made(EVENTS, event("one"))
        await until(lambda: store.compacted == store.revision)
        task.cancel()
