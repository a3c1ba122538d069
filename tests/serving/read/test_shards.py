"""Lists and watches of some shards of a collection (KEP-5866), compared with answers of a real kube-apiserver 1.37."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.server.conftest import fill, short
from tests.server.in_process import CONFIG_MAPS, TABLE, InProcess, config_map, control_plane

from pinnace.cluster.settings import Settings
from pinnace.model.shards import HASHES, NAMESPACE, UID, HashRange, ShardSelector, hash_of, split_hashes

RECORDED = [
    json.loads(line) for line in Path(__file__).with_name("shard_selectors_1_37.jsonl").read_text().splitlines()
]
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HALVES = [str(ShardSelector(UID, (half,))) for half in split_hashes(2)]
EVERYTHING = str(ShardSelector(UID, (HashRange(0, HASHES),)))
BAD = "invalid shard selector: unexpected expression kind 3; expected shardRange() call or || operator"


@pytest.fixture
async def sharded() -> AsyncIterator[InProcess]:
    settings = Settings(kubernetes_version="1.37", feature_gates="ShardedListAndWatch=true")
    async with control_plane(settings=settings) as api:
        assert (await api.delete(CONFIG_MAPS)).status == 200
        yield api


def of(selector: str, **options: str) -> str:
    return f"{CONFIG_MAPS}?" + "&".join(
        f"{name}={quote(value)}" for name, value in ({"shardSelector": selector} | options).items()
    )


def names_in(halves: int, objects: list[dict[str, Any]]) -> set[str]:
    """The names of the objects of one of two halves, from the uid alone."""
    shard = split_hashes(2)[halves]
    return {obj["metadata"]["name"] for obj in objects if shard.start <= hash_of(obj["metadata"]["uid"]) < shard.end}


async def test_selectors_are_read_and_refused_as_by_kubernetes(sharded: InProcess) -> None:
    for recorded in RECORDED:
        reply = await sharded.get(of(recorded["selector"]))
        if "message" in recorded:
            assert (reply.status, reply.message) == (500, recorded["message"]), recorded
            assert "reason" not in reply.json
        else:
            assert reply.status == 200, recorded
            assert reply.json["metadata"].get("shardInfo", {}).get("selector", "") == recorded["echo"]


async def test_each_object_is_in_exactly_one_of_the_lists_of_all_shards(sharded: InProcess) -> None:
    await fill(sharded, 40)
    everything = (await sharded.get(CONFIG_MAPS)).json["items"]
    lists = [await sharded.get(of(half)) for half in HALVES]
    for number, reply in enumerate(lists):
        assert set(reply.names) == names_in(number, everything)
        assert reply.json["metadata"]["shardInfo"] == {"selector": HALVES[number]}
    assert 0 < len(lists[0].names) < 40
    assert len(lists[0].names) + len(lists[1].names) == 40


async def test_pages_of_a_shard_have_no_count_of_the_rest(sharded: InProcess) -> None:
    await fill(sharded, 10)
    reply = await sharded.get(of(EVERYTHING, limit="4"))
    names = reply.names
    assert len(names) == 4
    while (token := reply.json["metadata"].get("continue")) is not None:
        assert "remainingItemCount" not in reply.json["metadata"]
        reply = await sharded.get(of(EVERYTHING, limit="4", **{"continue": token}))
        assert reply.json["metadata"]["shardInfo"] == {"selector": EVERYTHING}
        names += reply.names
    assert names == [f"cm-{number:04}" for number in range(10)]


async def test_a_past_revision_is_listed_by_shards(sharded: InProcess) -> None:
    await fill(sharded, 20)
    before = await sharded.get(of(HALVES[0]))
    for name in before.names:
        await sharded.delete(f"{CONFIG_MAPS}/{name}")
    again = await sharded.get(of(HALVES[0], resourceVersion=before.version, resourceVersionMatch="Exact"))
    assert again.names == before.names
    assert again.json["metadata"]["shardInfo"] == {"selector": HALVES[0]}


@pytest.mark.parametrize("accept", [TABLE, METADATA_LIST])
async def test_tables_and_metadata_are_filtered_and_do_not_repeat_the_selector(sharded: InProcess, accept: str) -> None:
    await fill(sharded, 20)
    everything = (await sharded.get(CONFIG_MAPS)).json["items"]
    reply = await sharded.get(of(HALVES[1]), accept=accept)
    assert list(reply.json["metadata"]) == ["resourceVersion"]
    rows = reply.json.get("rows") or reply.json["items"]
    obj = {(row.get("object") or row)["metadata"]["name"] for row in rows}
    assert obj == names_in(1, everything)


async def test_custom_objects_are_filtered_and_their_list_does_not_repeat_the_selector(sharded: InProcess) -> None:
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]
    names = {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"}
    spec = {"group": "example.com", "names": names, "scope": "Cluster", "versions": versions}
    await sharded.made(CRDS, {"metadata": {"name": "things.example.com"}, "spec": spec})
    things = "/apis/example.com/v1/things"
    for number in range(12):
        thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": f"t-{number}"}}
        await sharded.made(things, thing)
    everything = (await sharded.get(things)).json["items"]
    for number, half in enumerate(HALVES):
        reply = await sharded.get(f"{things}?shardSelector={quote(half)}")
        assert set(reply.names) == names_in(number, everything)
        assert list(reply.json["metadata"]) == ["continue", "resourceVersion"]


async def test_shards_of_namespaces_keep_the_objects_of_a_namespace_together(sharded: InProcess) -> None:
    for number in range(8):
        await sharded.made("/api/v1/namespaces", {"metadata": {"name": f"n{number}"}})
        for name in ("a", "b"):
            await sharded.made(f"/api/v1/namespaces/n{number}/secrets", {"metadata": {"name": name}})
    results = []
    for shard in split_hashes(2):
        selector = str(ShardSelector(NAMESPACE, (shard,)))
        items = (await sharded.get(f"/api/v1/secrets?shardSelector={quote(selector)}")).json["items"]
        namespaces = [item["metadata"]["namespace"] for item in items if item["metadata"]["namespace"][0] == "n"]
        assert all(shard.start <= hash_of(namespace) < shard.end for namespace in namespaces)
        results += namespaces
    assert sorted(results) == sorted(f"n{number}" for number in range(8) for _ in "ab")


async def test_a_watch_has_the_initial_objects_and_the_changes_of_its_shard(sharded: InProcess) -> None:
    await fill(sharded, 10)
    options = {"watch": "1", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    options |= {"resourceVersionMatch": "NotOlderThan"}
    watches = [await sharded.watch(of(half, **options)) for half in HALVES]
    initial = [await watch.until(lambda event: event["type"] == "BOOKMARK") for watch in watches]
    everything = (await sharded.get(CONFIG_MAPS)).json["items"]
    for number, events in enumerate(initial):
        assert {short(event)[1] for event in events[:-1]} == names_in(number, everything)
        assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    created = [await sharded.made(CONFIG_MAPS, config_map(f"new-{number}")) for number in range(10)]
    for obj in created:
        await sharded.patch(f"{CONFIG_MAPS}/{obj['metadata']['name']}", {"data": {"a": "2"}})
    for obj in created:
        await sharded.delete(f"{CONFIG_MAPS}/{obj['metadata']['name']}")
    for number, watch in enumerate(watches):
        mine = [obj["metadata"]["name"] for obj in created if obj["metadata"]["name"] in names_in(number, created)]
        changes = [short(event) for event in await watch.take(3 * len(mine))]
        assert changes == [(kind, name) for kind in ("ADDED", "MODIFIED", "DELETED") for name in mine]
    text = (await sharded.get("/metrics")).body.decode()
    assert "# TYPE apiserver_watch_shards_total gauge" in text
    assert 'apiserver_watch_shards_total{group="",resource="configmaps"} 2' in text
    assert 'apiserver_watch_filtered_events_total{group="",resource="configmaps"} ' in text
    for watch in watches:
        watch.close()
    assert (
        'apiserver_watch_shards_total{group="",resource="configmaps"} 0'
        in (await sharded.get("/metrics")).body.decode()
    )


async def test_a_watch_resumes_with_the_past_changes_of_its_shard(sharded: InProcess) -> None:
    since = (await sharded.get(CONFIG_MAPS)).version
    created = [await sharded.made(CONFIG_MAPS, config_map(f"c{number}")) for number in range(10)]
    watch = await sharded.watch(of(HALVES[0], watch="1", resourceVersion=since))
    mine = names_in(0, created)
    assert {short(event)[1] for event in await watch.take(len(mine))} == mine
    watch.close()


async def test_labels_and_shards_select_together(sharded: InProcess) -> None:
    created = [
        await sharded.made(CONFIG_MAPS, config_map(f"c{number}", labels={"even": str(number % 2 == 0)}))
        for number in range(20)
    ]
    reply = await sharded.get(of(HALVES[0], labelSelector="even=True"))
    assert set(reply.names) == {name for name in names_in(0, created) if int(name[1:]) % 2 == 0}
    bad = await sharded.get(of("x", labelSelector="a b"))
    assert (bad.status, bad.json["reason"]) == (400, "BadRequest"), "a malformed label selector is reported first"


async def test_a_collection_is_deleted_by_shards(sharded: InProcess) -> None:
    await fill(sharded, 20)
    everything = (await sharded.get(CONFIG_MAPS)).json["items"]
    assert (await sharded.delete(of("x"))).message == BAD
    reply = await sharded.delete(of(HALVES[0]))
    assert reply.json["metadata"]["shardInfo"] == {"selector": HALVES[0]}
    assert set(reply.names) == names_in(0, everything)
    assert set((await sharded.get(CONFIG_MAPS)).names) == names_in(1, everything)


async def test_the_selector_is_checked_before_tokens_and_revisions_and_after_other_options(sharded: InProcess) -> None:
    for options in ({"continue": "x"}, {"resourceVersion": "x"}, {"resourceVersion": "99999999"}):
        assert (await sharded.get(of("x", **options))).message == BAD
        assert (await sharded.get(of(HALVES[0], **options))).message != BAD
    for options in ({"limit": "x"}, {"timeoutSeconds": "x"}, {"timeoutSeconds": "x", "watch": "1"}):
        assert (await sharded.get(of("x", **options))).status == 400
    assert (await sharded.get(of("x", resourceVersionMatch="x"))).status == 422
    assert (await sharded.get(of("x", watch="1"))).message == BAD


async def test_one_object_and_component_statuses_take_no_selector(sharded: InProcess) -> None:
    await fill(sharded, 1)
    assert (await sharded.get(f"{CONFIG_MAPS}/cm-0000?shardSelector=x")).status == 200
    assert (await sharded.get("/api/v1/componentstatuses?shardSelector=x")).status == 200


async def test_the_selector_is_ignored_unless_the_gate_is_on(alone: InProcess) -> None:
    await fill(alone, 10)
    reply = await alone.get(of(HALVES[0]))
    assert len(reply.names) == 10
    assert "shardInfo" not in reply.json["metadata"]
    assert (await alone.get(of("x"))).status == 200
    assert "apiserver_watch_shards_total" not in (await alone.get("/metrics")).body.decode()
