"""Lists in pages and as of a revision; watches from their start, through storms, to their end."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from tests.server.in_process import (
    CONFIG_MAPS,
    PODS,
    TABLE,
    InProcess,
    config_map,
    control_plane,
    pod,
)

from pinnace.server import reads, shelves, watches
from pinnace.server.continuation import Continuation
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Batch

METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def fill(api: InProcess, count: int, *, size: int = 1, start: int = 0) -> list[str]:
    names = [f"cm-{number:04}" for number in range(start, start + count)]
    for name in names:
        await api.made(CONFIG_MAPS, config_map(name, data={"a": "x" * size}))
    return names


@pytest.fixture
async def alone(api: InProcess) -> InProcess:
    """The namespace `default` without the config maps that every namespace has."""
    assert (await api.delete(CONFIG_MAPS)).status == 200
    return api


# Lists.


async def test_a_list_is_ordered_by_namespace_and_name(alone: InProcess) -> None:
    for namespace, name in (("kube-system", "a"), ("default", "b"), ("default", "a")):
        await alone.made(f"/api/v1/namespaces/{namespace}/configmaps", config_map(name, labels={"mine": "yes"}))
    reply = await alone.get("/api/v1/configmaps?labelSelector=mine")
    found = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in reply.json["items"]]
    assert found == [("default", "a"), ("default", "b"), ("kube-system", "a")]
    assert reply.json["kind"] == "ConfigMapList"
    assert int(reply.version) == alone.plane.fanout.revision


async def test_pages_show_the_first_pages_revision_and_each_object_once_while_writes_go_on(alone: InProcess) -> None:
    names = await fill(alone, 25)
    first = await alone.get(f"{CONFIG_MAPS}?limit=4")
    pages, seen, token = [first], list(first.names), first.json["metadata"]["continue"]
    assert first.json["metadata"]["remainingItemCount"] == 21
    step = 0
    while token:
        await alone.delete(f"{CONFIG_MAPS}/cm-{step + 10:04}")
        await alone.made(CONFIG_MAPS, config_map(f"cm-{step:04}-new"))
        await alone.patch(f"{CONFIG_MAPS}/cm-{24 - step:04}", {"data": {"a": "changed"}})
        step += 1
        page = await alone.get(f"{CONFIG_MAPS}?limit=4&continue={token}")
        assert page.status == 200
        pages.append(page)
        seen += page.names
        token = page.json["metadata"].get("continue", "")
    assert step > 4
    assert seen == names
    assert {page.version for page in pages} == {first.version}
    assert all(item["data"] == {"a": "x"} for page in pages for item in page.json["items"])


async def test_pages_of_a_selection_hold_what_is_selected(alone: InProcess) -> None:
    for number in range(9):
        await alone.made(CONFIG_MAPS, config_map(f"cm-{number}", labels={"even": str(number % 2 == 0).lower()}))
    seen: list[str] = []
    token = ""
    while True:
        page = await alone.get(f"{CONFIG_MAPS}?limit=2&labelSelector=even%3Dtrue&continue={token}")
        seen += page.names
        assert "remainingItemCount" not in page.json["metadata"], "who selects is not told how many are left"
        token = page.json["metadata"].get("continue", "")
        if not token:
            break
    assert seen == ["cm-0", "cm-2", "cm-4", "cm-6", "cm-8"]


async def test_a_token_that_is_too_old_is_answered_with_one_that_goes_on_inconsistently(alone: InProcess) -> None:
    await fill(alone, 6)
    first = await alone.get(f"{CONFIG_MAPS}?limit=2")
    await alone.made(CONFIG_MAPS, config_map("cm-0009"))
    await alone.plane.store.compact(alone.plane.store.revision)
    expired = await alone.get(f"{CONFIG_MAPS}?limit=2&continue={first.json['metadata']['continue']}")
    assert (expired.status, expired.json["reason"]) == (410, "Expired")
    token = expired.json["metadata"]["continue"]
    rest = await alone.get(f"{CONFIG_MAPS}?limit=50&continue={token}")
    assert rest.names == ["cm-0002", "cm-0003", "cm-0004", "cm-0005", "cm-0009"]


@pytest.mark.parametrize(
    "token",
    [
        "xyz",
        "%00",
        "e30",
        "W10",
        "bnVsbA",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6IjEiLCJzdGFydCI6WzFdfQ",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi94In0",
        "eyJ2Ijoib2xkIiwicnYiOjEsInN0YXJ0IjoiYSJ9",
    ],
)
async def test_a_broken_token_is_refused(api: InProcess, token: str) -> None:
    reply = await api.get(f"{CONFIG_MAPS}?limit=1&continue={token}")
    assert (reply.status, reply.json["reason"]) == (400, "BadRequest")
    assert reply.message.startswith("invalid continue token: continue key is not valid: ")


async def test_a_token_of_the_future_is_refused(api: InProcess) -> None:
    token = Continuation(10**9, "default/a").encode()
    assert (await api.get(f"{CONFIG_MAPS}?limit=1&continue={token}")).status == 504


async def test_an_exact_revision_shows_things_as_they_were(alone: InProcess) -> None:
    await fill(alone, 2)
    then = alone.plane.fanout.revision
    await alone.delete(f"{CONFIG_MAPS}/cm-0000")
    await alone.made(CONFIG_MAPS, config_map("later"))
    exact = await alone.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (exact.names, exact.version) == (["cm-0000", "cm-0001"], str(then))
    limited = await alone.get(f"{CONFIG_MAPS}?resourceVersion={then}&limit=1")
    assert (limited.names, limited.version) == (["cm-0000"], str(then)), "a limit makes a revision exact"
    newer = await alone.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")
    assert newer.names == ["cm-0001", "later"]
    assert (await alone.get(f"{CONFIG_MAPS}?resourceVersion=0")).names == ["cm-0001", "later"]
    await alone.plane.store.compact(alone.plane.store.revision)
    gone = await alone.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (gone.status, gone.json["reason"]) == (410, "Expired")
    assert gone.message == "The resourceVersion for the provided list is too old."


async def test_an_exact_revision_from_before_this_process_shows_what_was_deleted_since() -> None:
    store = MemoryStore()
    async with control_plane(store) as first:
        await first.delete(CONFIG_MAPS)
        await fill(first, 2)
        then = store.revision
        for name in ("cm-0000", "cm-0001"):
            await first.delete(f"{CONFIG_MAPS}/{name}")
        # Not closed: the store lives on under the next server.
        async with control_plane(store) as second:
            exact = await second.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
            assert exact.names == ["cm-0000", "cm-0001"]


async def test_a_revision_of_the_future_is_waited_for_and_then_given_up(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    coming = alone.plane.fanout.revision + 1
    waiting = asyncio.create_task(alone.get(f"{CONFIG_MAPS}?resourceVersion={coming}"))
    await asyncio.sleep(0)
    await alone.made(CONFIG_MAPS, config_map("awaited"))
    assert (await waiting).names == ["awaited"]
    monkeypatch.setattr(reads, "_FRESHNESS_SECONDS", 0.01)
    late = await alone.get(f"{CONFIG_MAPS}?resourceVersion={coming + 10}")
    assert (late.status, late.json["reason"], late.header("retry-after")) == (504, "Timeout", ["1"])
    assert late.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422),
        ("resourceVersionMatch=Foo&resourceVersion=1", 422),
        ("resourceVersion=x", 400),
        ("resourceVersion=-1", 400),
        ("limit=x", 400),
        ("timeoutSeconds=x", 400),
        ("continue=e30", 400),
        ("limit=1_0", 400),
        ("limit=99999999999999999999", 400),
        ("limit=%C2%B2", 400),
        ("sendInitialEvents=true", 422),
        ("labelSelector=-", 400),
        ("labelSelector=a%20in%20(", 400),
        ("labelSelector=a%3D%3D%3Db", 400),
        ("fieldSelector=foo", 400),
        ("fieldSelector=foo%3Dbar", 400),
        ("watch=1&resourceVersion=x", 500),
        ("watch=1&timeoutSeconds=x", 400),
        ("watch=1&sendInitialEvents=true", 422),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422),
        ("watch=1&fieldSelector=foo%3Dbar", 400),
    ],
)
async def test_options_that_cannot_be_meant_are_refused(api: InProcess, query: str, code: int) -> None:
    reply = await api.get(f"{CONFIG_MAPS}?{query}")
    assert (reply.status, reply.json["kind"]) == (code, "Status")


async def test_a_limit_below_one_is_none(alone: InProcess) -> None:
    names = await fill(alone, 3)
    for limit in ("-1", "0", ""):
        assert (await alone.get(f"{CONFIG_MAPS}?limit={limit}")).names == names


async def test_field_selectors_choose_by_name_and_by_what_the_kind_offers(api: InProcess) -> None:
    await api.made(PODS, pod("a", nodeName="n1"))
    await api.made(PODS, pod("b"))
    await api.made("/api/v1/namespaces/kube-system/pods", pod("a"))

    async def chosen(target: str, selector: str) -> list[str]:
        reply = await api.get(f"{target}?fieldSelector={quote(selector)}")
        return [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in reply.json["items"]]

    assert await chosen(PODS, "spec.nodeName=n1") == ["default/a"]
    assert await chosen(PODS, "spec.nodeName!=n1,status.phase=Pending") == ["default/b"]
    assert await chosen("/api/v1/pods", "metadata.name=a") == ["default/a", "kube-system/a"]
    assert await chosen("/api/v1/pods", "metadata.name=a,metadata.namespace=default") == ["default/a"]
    assert await chosen("/api/v1/pods", "metadata.name=a,metadata.name!=a") == []
    assert await chosen("/api/v1/pods", "metadata.name=a,metadata.name=b") == []


# Forms.


async def test_a_table_has_columns_and_a_row_for_each_object(api: InProcess) -> None:
    await api.made(PODS, pod())
    table = (await api.get(PODS, accept=TABLE)).json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]][:5] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
    ]
    row = table["rows"][0]
    assert row["cells"][:3] == ["web", "0/1", "Pending"]
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "web")
    one = (await api.get(f"{PODS}/web", accept=TABLE)).json
    assert one["rows"][0]["object"] == row["object"]
    assert one["rows"][0]["cells"][:4] == row["cells"][:4], "its age may have grown"


@pytest.mark.parametrize(
    ("include", "kind"), [("Object", "Pod"), ("Metadata", "PartialObjectMetadata"), ("None", None)]
)
async def test_rows_carry_as_much_of_the_object_as_is_asked_for(api: InProcess, include: str, kind: str | None) -> None:
    await api.made(PODS, pod())
    row = (await api.get(f"{PODS}?includeObject={include}", accept=TABLE)).json["rows"][0]
    assert (row.get("object") or {}).get("kind") == kind


async def test_rows_with_what_no_row_can_have_are_refused(api: InProcess) -> None:
    reply = await api.get(f"{PODS}?includeObject=Foo", accept=TABLE)
    assert (reply.status, "must be 'Metadata', 'Object', 'None', or empty" in reply.message) == (400, True)


async def test_metadata_alone_can_be_had_of_one_and_of_many(api: InProcess) -> None:
    made = await api.made(PODS, pod())
    one = (await api.get(f"{PODS}/web", accept=METADATA)).json
    assert (one["kind"], one["metadata"], one.keys()) == (
        "PartialObjectMetadata",
        made["metadata"],
        {"kind", "apiVersion", "metadata"},
    )
    many = (await api.get(PODS, accept=METADATA_LIST)).json
    assert (many["kind"], many["items"]) == ("PartialObjectMetadataList", [one])
    assert (await api.get(PODS, accept=METADATA)).status == 406
    assert (await api.get(f"{PODS}/web", accept=METADATA_LIST)).status == 406


async def test_a_client_takes_the_first_form_that_there_is(api: InProcess) -> None:
    await api.made(PODS, pod())
    accept = "application/json;as=Table;v=v9;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io"
    assert (await api.get(PODS, accept=accept)).json["apiVersion"] == "meta.k8s.io/v1beta1"
    assert (await api.get(PODS, accept="text/html")).status == 406


async def test_yaml_goes_in_and_out(api: InProcess) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  a: 'on'\n"
    reply = await api.call("POST", CONFIG_MAPS, body, "application/yaml", accept="application/yaml")
    assert (reply.status, reply.header("content-type")) == (201, ["application/yaml"])
    assert yaml.safe_load(reply.body)["data"] == {"a": "on"}
    listed = await api.get(CONFIG_MAPS, accept="application/yaml")
    assert "settings" in [item["metadata"]["name"] for item in yaml.safe_load(listed.body)["items"]]


@pytest.mark.parametrize("count", [5, 60], ids=["at once", "in a thread"])
async def test_large_answers_are_compressed_for_those_who_accept_it(alone: InProcess, count: int) -> None:
    await fill(alone, count, size=30_000)
    plain = await alone.get(CONFIG_MAPS)
    packed = await alone.get(CONFIG_MAPS, accept_encoding="gzip, deflate")
    assert packed.header("content-encoding") == ["gzip"]
    assert gzip.decompress(packed.body) == plain.body
    assert plain.header("content-encoding") == []
    small = await alone.get(f"{CONFIG_MAPS}/cm-0000", accept_encoding="gzip")
    assert small.header("content-encoding") == []


async def test_answers_are_indented_for_people(api: InProcess) -> None:
    compact = await api.get("/api/v1/namespaces/default")
    assert b"\n  " not in compact.body
    for reply in (
        await api.get("/api/v1/namespaces/default?pretty=true"),
        await api.get("/api/v1/namespaces/default?pretty=1"),
        await api.get("/api/v1/namespaces/default", user_agent="curl/8.0"),
    ):
        assert b"\n  " in reply.body
        assert reply.json == compact.json
    for query in ("pretty=false", "pretty=0", "pretty=junk"):
        assert (await api.get(f"/api/v1/namespaces/default?{query}", user_agent="curl/8.0")).body == compact.body
    refused = await api.get("/api/v1/namespaces/nowhere?pretty=true")
    assert b"\n  " in refused.body


# Watches.


def short(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


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
    monkeypatch.setattr(shelves, "RECENT_EVENTS", 5)
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


async def test_a_watch_behind_forgotten_history_is_told_to_list_again(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelves, "RECENT_EVENTS", 1)
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
    defaults = reads.Reader.__init__.__kwdefaults__
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
        bookmarks = await watch.until(lambda one: int(one["object"]["metadata"]["resourceVersion"]) > since)
        assert bookmarks[-1]["object"]["kind"] == "Pod"
        assert int(bookmarks[-1]["object"]["metadata"]["resourceVersion"]) == api.plane.fanout.revision
        watch.close()
        silent = await api.watch(f"{PODS}?watch=1&timeoutSeconds=1")
        assert await silent.rest() == []


async def test_a_watch_that_ends_before_its_next_bookmark_sends_none() -> None:
    async with control_plane() as api:
        watch = await api.watch(f"{PODS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1")
        assert await watch.rest() == []


class HeldStore(MemoryStore):
    """Reads its history, but tells it only once it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.has_read = asyncio.Event()
        self.let_go = asyncio.Event()

    async def watch(self, prefix: str, *, since: int) -> AsyncIterator[Batch]:
        async for changes in super().watch(prefix, since=since):
            self.has_read.set()
            await self.let_go.wait()
            yield changes


@pytest.mark.usefixtures("quick_bookmarks")
async def test_a_bookmark_never_runs_ahead_of_the_events_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "RECENT_EVENTS", 3)
    store = HeldStore()
    async with control_plane(store) as api:
        await api.delete(CONFIG_MAPS)
        since = api.plane.fanout.revision
        names = await fill(api, 10)
        query = "watch=1&allowWatchBookmarks=true"
        behind = await api.watch(f"{CONFIG_MAPS}?{query}&resourceVersion={since}")
        abreast = await api.watch(f"{CONFIG_MAPS}?{query}&resourceVersion={api.plane.fanout.revision}")
        assert [event["type"] for event in await abreast.take(3)] == ["BOOKMARK"] * 3
        assert behind.stream.buffered == 0, "a bookmark would skip the events that are still to come"
        store.let_go.set()
        events = await behind.take(11)
        assert [short(event)[1] for event in events] == [*names, ""]
        assert events[-1]["type"] == "BOOKMARK"
        assert int(events[-1]["object"]["metadata"]["resourceVersion"]) == since + 10
        for watch in (behind, abreast):
            watch.close()


async def test_what_is_written_while_history_is_read_is_neither_lost_nor_told_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shelves, "RECENT_EVENTS", 5)
    store = HeldStore()
    async with control_plane(store) as api:
        await api.delete(CONFIG_MAPS)
        since = api.plane.fanout.revision
        names = await fill(api, 10)
        watch = await api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
        await store.has_read.wait()
        names += await fill(api, 3, start=10)
        store.let_go.set()
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
    assert list(map(short, await watch.take(2))) == [("ADDED", "web"), ("DELETED", "web")]
    watch.close()


async def test_watches_see_their_namespace_or_all_and_one_name_or_all(alone: InProcess) -> None:
    here = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    everywhere = await alone.watch("/api/v1/configmaps?watch=1&labelSelector=mine")
    one = await alone.watch(f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db")
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
    for watch in (one, old_way):
        assert list(map(short, await watch.take(2))) == [("ADDED", "b"), ("DELETED", "b")]
    for watch in (here, everywhere, one, old_way):
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


async def test_a_storm_of_writes_reaches_every_watch_whole_in_order_and_once(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watches begin in the middle of the storm: behind what memory holds, within it, and now."""
    monkeypatch.setattr(shelves, "RECENT_EVENTS", 7)
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
    final = {item["metadata"]["name"]: item for item in (await alone.get(CONFIG_MAPS)).json["items"]}
    await alone.made(CONFIG_MAPS, config_map("the-end"))
    for known in await asyncio.gather(*followers):
        assert known == final


async def test_a_watcher_that_does_not_read_is_cut_off_and_hurts_nobody(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MAX_BUFFERED", 20_000)
    slow = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    quick = await alone.watch(f"{CONFIG_MAPS}?watch=1")
    for number in range(30):
        await alone.made(CONFIG_MAPS, config_map(f"c{number}", data={"a": "x" * 1000}))
        assert short(await quick.next()) == ("ADDED", f"c{number}")
    assert slow.stream.closed
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


async def test_a_watch_that_is_closed_leaves_nothing_behind(alone: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "RECENT_EVENTS", 1)
    since = alone.plane.fanout.revision
    await fill(alone, 5)
    for query in ("", f"&resourceVersion={since}", "&allowWatchBookmarks=true"):
        watch = await alone.watch(f"{CONFIG_MAPS}?watch=1{query}")
        await watch.take(5)
        assert len(alone.plane.fanout.watchers()) == 1
        watch.close()
        await asyncio.sleep(0)
        assert alone.plane.fanout.watchers() == []
