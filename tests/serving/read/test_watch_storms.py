"""Watches during many writes, and watchers that are too slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from tests.server.conftest import fill, short
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map

from pinnace.cluster.control_plane import SYSTEM
from pinnace.server.local import LocalApi
from pinnace.serving.cache import watch_cache
from pinnace.serving.local_streams import LocalWatch
from pinnace.serving.messages import Peer, Request, RequestHead, StreamingResponse, split_target
from pinnace.serving.read import watch as watches
from pinnace.store.store import Change, Damaged


async def test_a_storm_of_writes_reaches_every_watch_whole_in_order_and_once(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watches begin in the middle of the storm: behind what memory holds, within it, and now."""
    monkeypatch.setattr(watch_cache, "RECENT_EVENTS", 7)
    start = alone.plane.fanout.revision
    writers, rounds = 8, 12
    done = 0

    async def write(writer: int) -> None:
        nonlocal done
        for turn in range(rounds):
            name = f"w{writer}-{turn % 3}"
            if turn % 3 == 2:
                assert (await alone.delete(f"{CONFIG_MAPS}/w{writer}-0")).status == 200
            elif turn % 3 == 1:
                assert (await alone.patch(f"{CONFIG_MAPS}/w{writer}-0", {"data": {"turn": str(turn)}})).status == 200
            else:
                assert (await alone.post(CONFIG_MAPS, config_map(name))).status == 201
            done += 1
            await asyncio.sleep(0)

    begun: list[tuple[int, Any]] = []

    async def begin() -> None:
        while done < writers * rounds:
            revision = alone.plane.fanout.revision
            for since in {start, max(start, revision - 3), revision}:
                watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
                begun.append((since, watch))
            await asyncio.sleep(0)

    await asyncio.gather(begin(), *(write(writer) for writer in range(writers)))
    assert alone.plane.fanout.revision == start + writers * rounds
    assert sum(start < since < start + writers * rounds for since, _ in begun) > 10, "no watch began in the storm"
    await alone.made(CONFIG_MAPS, config_map("the-end"))
    reference: list[dict[str, Any]] | None = None
    for since, watch in begun:
        events = await watch.until(lambda event: short(event)[1] == "the-end")
        revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert revisions == list(range(since + 1, start + writers * rounds + 2))
        if since == start and reference is None:
            reference = events
        if reference is not None:
            assert events == reference[since - start :]
        watch.close()
    assert reference is not None


async def test_a_watch_that_begins_with_a_list_misses_nothing_of_a_storm(alone: InProcess) -> None:
    """The list and its first event meet exactly: replaying events over the list gives what is there at the end."""
    names = [f"c{number}" for number in range(10)]

    async def write() -> None:
        for turn in range(200):
            name = names[turn % len(names)]
            if (await alone.post(CONFIG_MAPS, config_map(name))).status == 409:
                await alone.delete(f"{CONFIG_MAPS}/{name}") if turn % 3 else await alone.patch(
                    f"{CONFIG_MAPS}/{name}", {"data": {"turn": str(turn)}}
                )
            await asyncio.sleep(0)

    async def follow() -> dict[str, Any]:
        watch = await alone.watch(f"{CONFIG_MAPS}?watch=1")
        known: dict[str, Any] = {}
        while True:
            event = await watch.next()
            kind, name = short(event)
            if name == "the-end":
                watch.close()
                return known
            assert (name in known) == (kind != "ADDED"), "an addition twice, or a change of what was not added"
            known[name] = event["object"]
            if kind == "DELETED":
                del known[name]

    storm = asyncio.create_task(write())
    followers = []
    while not storm.done():
        followers.append(asyncio.create_task(follow()))
        await asyncio.sleep(0)
    await storm
    assert len(followers) > 10
    named = {"kind": "ConfigMap", "apiVersion": "v1"}
    final = {item["metadata"]["name"]: {**named, **item} for item in (await alone.get(CONFIG_MAPS)).json["items"]}
    await alone.made(CONFIG_MAPS, config_map("the-end"))
    for known in await asyncio.gather(*followers):
        assert known == final


async def test_a_watcher_that_does_not_read_is_cut_off_and_delays_no_other(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MAX_BUFFERED", 20_000)
    slow = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    quick = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    for number in range(30):
        await alone.made(CONFIG_MAPS, config_map(f"c{number}", data={"a": "x" * 1000}))
        assert short(await quick.next()) == ("ADDED", f"c{number}")
    assert slow.stream.closed
    assert list(alone.plane.fanout.terminated.values()) == [1]
    assert 'apiserver_terminated_watchers_total{group="",resource="configmaps"} 1\n' in alone.plane.metrics.text()
    received = await slow.rest()
    assert 0 < len(received) < 30, "it gets what was buffered, then the end"
    assert [short(event)[1] for event in received] == [f"c{number}" for number in range(len(received))]
    last = received[-1]["object"]["metadata"]["resourceVersion"]
    resumed = await alone.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={last}")
    assert [short(event)[1] for event in await resumed.take(30 - len(received))] == [
        f"c{number}" for number in range(len(received), 30)
    ]
    for watch in (quick, resumed):
        watch.close()


async def test_a_watch_within_the_process_that_is_cut_off_costs_no_other_a_change(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MAX_BUFFERED", 20_000)
    local, target = LocalApi(alone.plane.api, SYSTEM), f"{CONFIG_MAPS}?watch=1"
    slow = [await local.watch(target, {}) for _ in range(3)]
    quick = await alone.watch(target)
    names = [f"c{number}" for number in range(30)]
    await asyncio.gather(*(alone.made(CONFIG_MAPS, config_map(name, data={"a": "x" * 1000})) for name in names))
    for watch in slow:
        assert isinstance(watch, LocalWatch)
        assert watch.closed
    assert sorted((await alone.get(CONFIG_MAPS)).names) == sorted(names)
    monkeypatch.setattr(watches, "MAX_BUFFERED", 1 << 20)
    for name in names:  # A cache that had missed a change would let these go round for ever.
        assert (await alone.patch(f"{CONFIG_MAPS}/{name}", {"data": {"a": "y"}})).status == 200
    quick.close()


async def test_a_watch_that_fails_ends_and_costs_no_other_a_change(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = await alone.watch(f"{CONFIG_MAPS}?watch=1&labelSelector=a=b")
    (watcher,) = [watch for prefix, watch in alone.plane.fanout.watchers() if watch.matches is not None]
    good = await alone.watch(f"{CONFIG_MAPS}?watch=1")

    def fail(key: str, entry: object) -> bool:
        raise LookupError("odd")

    watcher.matches = fail
    await alone.made(CONFIG_MAPS, config_map("one"))
    assert short(await good.next()) == ("ADDED", "one")
    assert broken.stream.closed
    assert "a watch failed" in caplog.text
    good.close()


async def test_a_watch_whose_history_is_damaged_is_to_list_again(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch_cache, "RECENT_EVENTS", 1)
    since = alone.plane.fanout.revision
    await fill(alone, 5)

    async def read(prefix: str, *, since: int) -> AsyncIterator[list[Change]]:
        raise Damaged("the change fails its checksum")
        yield []

    monkeypatch.setattr(alone.plane.store, "watch", read)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
    (event,) = await watch.rest()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert "its history cannot be read: the change fails its checksum" in caplog.text


async def test_a_write_does_not_go_round_for_ever_if_the_cache_has_missed_a_change(alone: InProcess) -> None:
    await alone.made(CONFIG_MAPS, config_map("one"))
    cache = alone.plane.fanout.cache("/registry/core/configmaps/")
    missed = cache.entries["default/one"]
    assert (await alone.patch(f"{CONFIG_MAPS}/one", {"data": {"a": "b"}})).status == 200
    cache.entries["default/one"] = missed
    for answer in (
        await alone.patch(f"{CONFIG_MAPS}/one", {"data": {"a": "c"}}),
        await alone.delete(f"{CONFIG_MAPS}/one"),
    ):
        assert answer.status == 500
        assert "the watch cache has missed a change" in answer.message


async def test_a_large_beginning_is_not_held_against_a_watcher(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MAX_BUFFERED", 5_000)
    await fill(alone, 20, size=1000)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    await alone.made(CONFIG_MAPS, config_map("new"))
    assert not watch.stream.closed
    assert short((await watch.take(21))[-1]) == ("ADDED", "new")
    watch.close()


async def test_a_few_large_objects_are_sent_no_faster_than_the_client_reads(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MOST_BYTES_AT_ONCE", 20_000)
    monkeypatch.setattr(watches, "CHUNK", 5_000)
    names = [f"c{number:02}" for number in range(30)]
    for name in names:
        await alone.made(CONFIG_MAPS, config_map(name, data={"a": "x" * 5_000}))
    slow = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    for _ in range(100):
        await asyncio.sleep(0)
    assert slow.stream.buffered < 30 * 5_000
    assert [short(event)[1] for event in await slow.take(30)] == names
    slow.close()


async def test_a_watch_that_is_closed_leaves_nothing_behind(alone: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_cache, "RECENT_EVENTS", 1)
    since = alone.plane.fanout.revision
    await fill(alone, 5)
    for query in ("", f"&resourceVersion={since}", "&allowWatchBookmarks=true"):
        watch = await alone.watch(f"{CONFIG_MAPS}?watch=1{query}")
        await watch.take(5)
        assert len(alone.plane.fanout.watchers()) == 1
        watch.close()
        await asyncio.sleep(0)
        assert alone.plane.fanout.watchers() == []


class Recorder:
    """A stream whose client reads nothing: it keeps the chunks themselves, not copies."""

    closed = False
    buffered = 0

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def write(self, chunk: bytes) -> None:
        self.chunks.append(chunk)

    async def drain(self) -> None: ...

    def on_close(self, callback: Any) -> None: ...

    def finish(self) -> None: ...


async def test_watches_that_resume_and_watches_that_follow_share_the_bytes_of_events(alone: InProcess) -> None:
    start, fanout, watches_begun = alone.plane.fanout.revision, alone.plane.fanout, 20
    for number in range(50):
        await alone.made(CONFIG_MAPS, config_map(f"cm-{number}", data={"text": "x" * 1000}))
    streams = [Recorder() for _ in range(watches_begun)]
    for stream in streams:
        target = f"{CONFIG_MAPS}?watch=1&resourceVersion={start}"
        path, query = split_target(target)
        request = Request("GET", target, path, query, RequestHead({}), b"", Peer(asyncio.BaseTransport()))
        pending = alone.plane.api(request, SYSTEM)
        answer = await pending if isinstance(pending, Awaitable) else pending
        assert isinstance(answer, StreamingResponse)
        answer.start(stream)
    keys = [f"/registry/core/configmaps/default/cm-{number}" for number in range(50)]
    page = await alone.plane.store.list("/registry/core/configmaps/default/cm-")
    values = {record.key: record.value for record in page.records}
    fanout.follow([Change(key, fanout.revision + at, values[key], None, 1) for at, key in enumerate(keys, 1)])
    received = {len(b"".join(stream.chunks)) for stream in streams}
    assert len(received) == 1
    [event] = received
    assert event > 100_000
    held = {id(chunk): len(chunk) for stream in streams for chunk in stream.chunks}
    assert sum(held.values()) <= event, f"{watches_begun} watches of {event} bytes hold {sum(held.values())}"
