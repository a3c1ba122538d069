"""Watches: where they begin, which events they send, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.server.conftest import fill, short
from tests.server.in_process import CONFIG_MAPS, PODS, TABLE, InProcess, config_map, control_plane, pod

from pinnace.serving.cache import fanout, watch_cache
from pinnace.serving.read import reader
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Batch
from pinnace.testing.clock import ManualClock


async def test_a_watch_begins_with_what_is_there_and_goes_on(alone: InProcess) -> None:
    await fill(alone, 2)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    await alone.patch(f"{CONFIG_MAPS}/cm-0001", {"data": {"a": "2"}})
    deleted = await alone.get(f"{CONFIG_MAPS}/cm-0000")
    await alone.delete(f"{CONFIG_MAPS}/cm-0000")
    events = await watch.take(4)
    assert list(map(short, events)) == [
        ("ADDED", "cm-0000"),
        ("ADDED", "cm-0001"),
        ("MODIFIED", "cm-0001"),
        ("DELETED", "cm-0000"),
    ]
    last = events[-1]["object"]
    assert int(last["metadata"]["resourceVersion"]) == alone.plane.fanout.revision, "the revision of the deletion"
    assert last["data"] == deleted.json["data"]
    watch.close()


async def test_a_watch_resumes_behind_any_revision_that_is_kept(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_cache, "RECENT_EVENTS", 5)
    start = alone.plane.fanout.revision
    revisions = [
        int((await alone.made(CONFIG_MAPS, config_map(f"c{number}")))["metadata"]["resourceVersion"])
        for number in range(12)
    ]
    for index, since in enumerate([start, *revisions]):
        watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
        events = await watch.take(12 - index)
        assert [event["object"]["metadata"]["name"] for event in events] == [
            f"c{number}" for number in range(index, 12)
        ]
        watch.close()


async def test_a_watch_resumes_behind_a_revision_from_before_this_process() -> None:
    store = MemoryStore()
    async with control_plane(store) as first:
        await first.delete(CONFIG_MAPS)
        since = store.revision
        await first.made(CONFIG_MAPS, config_map("a"))
        await first.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
        await first.delete(f"{CONFIG_MAPS}/a")
        async with control_plane(store) as second:
            watch = await second.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
            events = await watch.take(3)
            assert list(map(short, events)) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
            await second.made(CONFIG_MAPS, config_map("b"))
            assert short(await watch.next()) == ("ADDED", "b")
            await second.made(CONFIG_MAPS, config_map("c"))
            assert short(await watch.next()) == ("ADDED", "c")
            watch.close()


async def test_a_watch_behind_forgotten_history_is_reported_to_list_again(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_cache, "RECENT_EVENTS", 1)
    since = alone.plane.fanout.revision
    await fill(alone, 4)
    await alone.plane.store.compact(alone.plane.store.revision)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
    (event,) = await watch.rest()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: ")


async def test_a_watch_behind_a_revision_that_is_yet_to_come_waits_for_it(alone: InProcess) -> None:
    since = alone.plane.fanout.revision + 3
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
    await fill(alone, 6)
    events = await watch.take(3)
    assert [event["object"]["metadata"]["name"] for event in events] == ["cm-0003", "cm-0004", "cm-0005"]
    watch.close()


async def test_a_watch_ends_after_its_time(alone: InProcess) -> None:
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1")
    assert await watch.rest() == []
    assert alone.plane.fanout.watchers() == []


@pytest.fixture
def quick_bookmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that are made from now on send a bookmark every few milliseconds."""
    defaults = reader.ObjectReader.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "bookmark_seconds", 0.005)


@pytest.mark.usefixtures("quick_bookmarks")
async def test_bookmarks_tell_who_wants_them_how_far_they_are() -> None:
    async with control_plane() as api:
        since = api.plane.fanout.revision
        watch = await api.watch(f"{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion={since}")
        await api.made(CONFIG_MAPS, config_map())  # Another resource: the watch has nothing to tell but the time.
        event = await watch.next()
        assert event["type"] == "BOOKMARK"
        bookmarks = await watch.until(lambda event: int(event["object"]["metadata"]["resourceVersion"]) > since)
        assert bookmarks[-1]["object"]["kind"] == "Pod"
        assert int(bookmarks[-1]["object"]["metadata"]["resourceVersion"]) == api.plane.fanout.revision
        watch.close()
        silent = await api.watch(f"{PODS}?watch=1&timeoutSeconds=1")
        assert await silent.rest() == []


async def test_a_watch_that_ends_before_its_next_bookmark_sends_none() -> None:
    async with control_plane() as api:
        since = api.plane.fanout.revision - 1
        watch = await api.watch(f"{PODS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={since}")
        assert await watch.rest() == []


@pytest.mark.usefixtures("quick_bookmarks")
async def test_a_watch_that_has_got_nowhere_sends_no_bookmarks() -> None:
    async with control_plane() as api:
        since = api.plane.fanout.revision
        query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
        assert await (await api.watch(f"{PODS}?{query}&resourceVersion={since}")).rest() == []
        (end,) = await (await api.watch(f"{PODS}?{query}")).rest()
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


class HeldStore(MemoryStore):
    """Reads its history, but returns it only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_read = asyncio.Event()
        self.release = asyncio.Event()

    async def watch(self, prefix: str, *, since: int) -> AsyncIterator[Batch]:
        async for changes in super().watch(prefix, since=since):
            self.has_read.set()
            await self.release.wait()
            yield changes


@pytest.mark.usefixtures("quick_bookmarks")
async def test_a_bookmark_never_runs_ahead_of_the_events_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_cache, "RECENT_EVENTS", 3)
    store = HeldStore()
    async with control_plane(store) as api:
        await api.delete(CONFIG_MAPS)
        since = api.plane.fanout.revision
        names = await fill(api, 10)
        query = "watch=1&allowWatchBookmarks=true"
        behind = await api.watch(f"{CONFIG_MAPS}?{query}&resourceVersion={since}")
        abreast = await api.watch(f"{PODS}?{query}&resourceVersion={since}")
        assert [event["type"] for event in await abreast.take(3)] == ["BOOKMARK"] * 3
        assert behind.stream.buffered == 0, "a bookmark would skip the events that are still to come"
        store.release.set()
        events = await behind.take(11)
        assert [short(event)[1] for event in events] == [*names, ""]
        assert events[-1]["type"] == "BOOKMARK"
        assert int(events[-1]["object"]["metadata"]["resourceVersion"]) == since + 10
        for watch in (behind, abreast):
            watch.close()


async def test_writes_during_a_read_of_the_history_are_reported_exactly_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_cache, "RECENT_EVENTS", 5)
    store = HeldStore()
    async with control_plane(store) as api:
        await api.delete(CONFIG_MAPS)
        since = api.plane.fanout.revision
        names = await fill(api, 10)
        watch = await api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
        await store.has_read.wait()
        names += await fill(api, 3, start=10)
        store.release.set()
        assert [short(event)[1] for event in await watch.take(13)] == names
        names = await fill(api, 2, start=13)
        assert [short(event)[1] for event in await watch.take(2)] == names
        watch.close()


async def test_a_watch_list_marks_where_its_beginning_ends(alone: InProcess) -> None:
    await fill(alone, 2)
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    watch = await alone.watch(f"{CONFIG_MAPS}?{query}")
    events = await watch.take(3)
    assert list(map(short, events)) == [("ADDED", "cm-0000"), ("ADDED", "cm-0001"), ("BOOKMARK", "")]
    assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) == alone.plane.fanout.revision
    watch.close()


@pytest.mark.parametrize("beginning", ["", "&resourceVersion=", "&resourceVersion=0"])
async def test_a_watch_without_a_revision_gets_a_bookmark_after_the_initial_events(
    alone: InProcess, beginning: str
) -> None:
    await fill(alone, 1)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true{beginning}")
    added, bookmark = await watch.take(2)
    assert (short(added), bookmark["type"]) == (("ADDED", "cm-0000"), "BOOKMARK")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    watch.close()


async def test_an_empty_wish_for_the_beginning_is_one(alone: InProcess) -> None:
    await fill(alone, 1)
    refused = await alone.get(f"{CONFIG_MAPS}?watch=1&sendInitialEvents=")
    assert refused.json["details"]["causes"][0]["message"].startswith("Forbidden: sendInitialEvents requires setting")
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&sendInitialEvents=&resourceVersionMatch=NotOlderThan")
    assert short(await watch.next()) == ("ADDED", "cm-0000")
    watch.close()


async def test_a_beginning_that_is_yet_to_come_is_waited_for_and_then_given_up(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    coming = alone.plane.fanout.revision + 2
    watch = await alone.watch(f"{CONFIG_MAPS}?{query}&resourceVersion={coming}")
    await fill(alone, 3)
    names = [short(event) for event in await watch.take(4)]
    assert sorted(names) == [("ADDED", "cm-0000"), ("ADDED", "cm-0001"), ("ADDED", "cm-0002"), ("BOOKMARK", "")]
    watch.close()
    monkeypatch.setattr(fanout, "FRESHNESS_SECONDS", 1.01)
    late = await alone.watch(f"{CONFIG_MAPS}?{query}&resourceVersion={coming + 100}&timeoutSeconds=1")
    (event,) = await late.rest()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (504, "Timeout")
    assert event["object"]["message"] == f"Timeout: Too large resource version: {coming + 100}, current: {coming + 1}"
    assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_watch_by_its_path_alone_is_asked_for_as_a_list_is(alone: InProcess) -> None:
    await fill(alone, 1)
    path = "/api/v1/watch/namespaces/default/configmaps?timeoutSeconds=1"
    for query in ("allowWatchBookmarks=true", "resourceVersionMatch=NotOlderThan&resourceVersion=0", "continue=abc"):
        events = await (await alone.watch(f"{path}&{query}")).rest()
        assert list(map(short, events)) == [("ADDED", "cm-0000")], "nor is it told where its beginning ends"
    refused = await alone.get(f"{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0")
    assert refused.json["details"]["causes"][0]["message"] == "Forbidden: sendInitialEvents is forbidden for list"
    both = await (await alone.watch(f"{path}&watch=1&allowWatchBookmarks=true")).rest()
    assert list(map(short, both)) == [("ADDED", "cm-0000"), ("BOOKMARK", "")]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=x", 400),
        ("limit=99999999999999999999", 400),
        ("continue=abc", 422),
        ("resourceVersion=18446744073709551616", 500),
    ],
)
async def test_options_without_use_for_a_watch_must_still_be_valid(alone: InProcess, query: str, code: int) -> None:
    assert (await alone.get(f"{CONFIG_MAPS}?watch=1&{query}")).status == code


@pytest.mark.parametrize("query", ["continue=abc&resourceVersion={}", "resourceVersion=18446744073709551615"])
async def test_odd_wishes_that_are_valid_are_granted(alone: InProcess, query: str) -> None:
    since = alone.plane.fanout.revision
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1&{query.format(since)}")
    assert await watch.rest() == []


async def test_a_bookmark_has_the_fields_of_an_empty_object(alone: InProcess) -> None:
    await alone.made(PODS, pod())
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    watch = await alone.watch(f"{PODS}?{query}")
    _, plain = [event["object"] for event in await watch.take(2)]
    watch.close()
    assert plain == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": plain["metadata"],
        "spec": {"containers": None},
        "status": {},
    }


@pytest.mark.parametrize(("include", "kind"), [("None", "PartialObjectMetadata"), ("Object", "Pod")])
async def test_the_row_of_a_bookmark_always_has_an_object(alone: InProcess, include: str, kind: str) -> None:
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    query += f"&includeObject={include}"
    watch = await alone.watch(f"{PODS}?{query}", accept=TABLE)
    first = (await watch.next())["object"]
    assert first["columnDefinitions"], "it is the first"
    assert first["rows"][0]["cells"][:4] == ["", "0/0", "", "0"]
    assert first["rows"][0]["object"]["kind"] == kind
    await alone.made(PODS, pod())
    assert (await watch.next())["object"]["columnDefinitions"] is None
    watch.close()
    again = await alone.watch(f"{PODS}?{query}", accept=TABLE)
    tables = [event["object"]["columnDefinitions"] for event in await again.take(2)]
    assert (bool(tables[0]), tables[1]) == (True, None), "only the first event says what the columns are"
    again.close()


async def test_a_watch_without_its_beginning_has_only_what_comes(alone: InProcess) -> None:
    await fill(alone, 2)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
    await alone.made(CONFIG_MAPS, config_map("new"))
    assert short(await watch.next()) == ("ADDED", "new")
    watch.close()


async def test_a_change_that_enters_or_leaves_a_selection_is_an_addition_or_a_deletion(alone: InProcess) -> None:
    since = alone.plane.fanout.revision
    live = await alone.watch(f"{CONFIG_MAPS}?watch=1&labelSelector=l%3Dx")
    await alone.made(CONFIG_MAPS, config_map("a", labels={"l": "y"}))
    for label in ("x", "x", "y", "y"):
        patch = {"metadata": {"labels": {"l": label}}, "data": {"turn": str(alone.plane.fanout.revision)}}
        await alone.patch(f"{CONFIG_MAPS}/a", patch)
    await alone.delete(f"{CONFIG_MAPS}/a")
    await alone.made(CONFIG_MAPS, config_map("end", labels={"l": "x"}))
    resumed = await alone.watch(f"{CONFIG_MAPS}?watch=1&labelSelector=l%3Dx&resourceVersion={since}")
    for watch in (live, resumed):
        events = await watch.take(4)
        assert list(map(short, events)) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "end")]
        assert events[2]["object"]["metadata"]["labels"] == {"l": "x"}, "shown as it was"
        assert int(events[2]["object"]["metadata"]["resourceVersion"]) == since + 4, "at the revision of the change"
        watch.close()


async def test_a_field_that_changes_is_selected_by_its_new_value(api: InProcess) -> None:
    watch = await api.watch(f"{PODS}?watch=1&fieldSelector=spec.nodeName%3Dn1")
    await api.made(PODS, pod())
    await api.post(f"{PODS}/web/binding", {"metadata": {"name": "web"}, "target": {"name": "n1"}})
    await api.delete(f"{PODS}/web?gracePeriodSeconds=0")
    assert [event["type"] for event in await watch.take(3)] == ["ADDED", "MODIFIED", "DELETED"]
    watch.close()


async def test_watches_see_their_namespace_or_all_and_one_name_or_all(alone: InProcess) -> None:
    here = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    everywhere = await alone.watch("/api/v1/configmaps?watch=1&labelSelector=mine")
    by_name = await alone.watch(f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db")
    old_way = await alone.watch("/api/v1/watch/namespaces/default/configmaps/b")
    for namespace, name in (("kube-system", "a"), ("default", "a"), ("default", "b"), ("kube-system", "b")):
        await alone.made(f"/api/v1/namespaces/{namespace}/configmaps", config_map(name, labels={"mine": "yes"}))
    assert list(map(short, await here.take(2))) == [("ADDED", "a"), ("ADDED", "b")]
    assert [event["object"]["metadata"]["namespace"] for event in await everywhere.take(4)] == [
        "kube-system",
        "default",
        "default",
        "kube-system",
    ]
    await alone.delete(f"{CONFIG_MAPS}/b")
    for watch in (by_name, old_way):
        assert list(map(short, await watch.take(2))) == [("ADDED", "b"), ("DELETED", "b")]
    for watch in (here, everywhere, by_name, old_way):
        watch.close()


async def test_a_name_in_the_path_is_a_get_whatever_the_query_says(alone: InProcess) -> None:
    await alone.made(CONFIG_MAPS, config_map())
    reply = await alone.get(f"{CONFIG_MAPS}/settings?watch=1")
    assert (reply.status, reply.json["kind"]) == (200, "ConfigMap")


async def test_rows_of_a_watch_name_their_columns_once(alone: InProcess) -> None:
    await fill(alone, 1)
    since = alone.plane.fanout.revision
    beginning = await alone.watch(f"{CONFIG_MAPS}?watch=1", accept=TABLE)
    resumed = await alone.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}", accept=TABLE)
    await alone.patch(f"{CONFIG_MAPS}/cm-0000", {"data": {"a": "2"}})
    await alone.patch(f"{CONFIG_MAPS}/cm-0000", {"data": {"a": "3"}})
    for watch in (beginning, resumed):
        tables = [event["object"] for event in await watch.take(2)]
        assert [table["kind"] for table in tables] == ["Table", "Table"]
        assert [bool(table["columnDefinitions"]) for table in tables] == [True, False]
        assert tables[0]["rows"][0]["object"]["metadata"]["name"] == "cm-0000"
        watch.close()


async def test_rows_of_the_past_tell_the_ages_of_now() -> None:
    clock = ManualClock()
    async with control_plane(clock=clock) as api:
        since = api.plane.fanout.revision
        live = await api.watch(f"{PODS}?watch=1&resourceVersion={since}", accept=TABLE)
        await api.made(PODS, pod())
        await clock.advance(90)
        resumed = await api.watch(f"{PODS}?watch=1&resourceVersion={since}", accept=TABLE)
        ages = [(await watch.next())["object"]["rows"][0]["cells"][4] for watch in (live, resumed)]
        assert ages == ["0s", "90s"]
        for watch in (live, resumed):
            watch.close()


async def test_a_watch_cannot_be_reported_in_yaml(api: InProcess) -> None:
    refused = await api.get("/api/v1/configmaps?watch=1", accept="application/yaml")
    assert refused.status == 406
    assert b"application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch" in refused.body.replace(
        b"\n ", b""
    )
