"""A cache that is like the server's own state, and ahead of the watch where this process has written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.client.connecting import WAYS, connected
from tests.server.in_process import config_map, pod

from pinnace.client.client import Client
from pinnace.client.following import Event, Followed, FollowError, Restarted, Synced
from pinnace.client.mapping import NoSuchKind
from pinnace.client.snapshots import Snapshot, snapshot_of
from pinnace.client.status_errors import error_of
from pinnace.client.transport import Answer
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.selectors import label_selector
from pinnace.reconcile.informer import Informer, Informers, is_older

KIND = "v1/ConfigMap"


@pytest.fixture(params=WAYS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with connected(request.param) as client:
        yield client


@asynccontextmanager
async def following(informers: Informers) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informers.run())
        await asyncio.wait_for(informers.synced(), 60)
        yield
        task.cancel()


class Told:
    """Notes what an informer tells."""

    def __init__(self, informer: Informer) -> None:
        self.changes: list[str] = []
        self.leave = informer.on_change(self._receive)

    def _receive(self, old: Snapshot | None, new: Snapshot | None) -> None:
        what = "-" if new is None else "+" if old is None else "~"
        key = (new or old).key  # type: ignore[union-attr]
        self.changes.append(f"{what}{key.name}")


async def test_the_cache_has_what_exists_and_follows_what_happens(client: Client) -> None:
    informers = Informers(client)
    informer = informers.get(KIND, namespace="default")
    message = Told(informer)
    await client.create(config_map("a"))
    async with following(informers):
        assert Key("default", "a") in informer.cache
        await client.create(config_map("b", {"colour": "blue"}))
        await client.patch(KIND, "b", {"data": {"colour": "red"}})
        await client.delete(KIND, "a")
        await informer.catch_up()
        assert message.changes == ["+a", "+b", "~b", "-a"]
        assert [obj["data"] for obj in informer.cache.list()] == [{"colour": "red"}]


async def test_equal_scopes_share_one_watch(client: Client) -> None:
    informers = Informers(client)
    assert informers.get(KIND) is informers.get(("", "v1", "ConfigMap"))
    assert informers.get(KIND) is not informers.get(KIND, labels="a=b")
    async with following(informers):
        late = informers.get("v1/Namespace")
        await asyncio.wait_for(late.synced(), 60)
        assert Key("", "default") in late.cache
        assert late.namespaced is False


async def test_a_late_handler_is_reported_what_is_known(client: Client) -> None:
    informers = Informers(client)
    informer = informers.get(KIND, namespace="default")
    await client.create(config_map("a"))
    async with following(informers):
        message = Told(informer)
        assert message.changes == ["+a"]
        message.leave()
        await client.create(config_map("b"))
        await informer.catch_up()
        assert message.changes == ["+a"]


async def test_a_handler_that_fails_does_not_stop_the_others(client: Client) -> None:
    informers = Informers(client)
    informer = informers.get(KIND, namespace="default")

    def fail(old: Snapshot | None, new: Snapshot | None) -> None:
        raise RuntimeError("sorry")

    informer.on_change(fail)
    message = Told(informer)
    async with following(informers):
        await client.create(config_map("a"))
        await client.create(config_map("b"))
        await informer.catch_up()
        assert message.changes == ["+a", "+b"]


async def test_an_object_from_the_cache_belongs_to_its_reader(client: Client) -> None:
    informers = Informers(client)
    cache = informers.get(KIND, namespace="default").cache
    await client.create(config_map("a", {"colour": "blue"}))
    async with following(informers):
        read = cache.get(Key("default", "a"))
        assert read is not None
        read["data"]["colour"] = "spoilt"
        again = cache.get(Key("default", "a"))
        assert again is not None
        assert again["data"] == {"colour": "blue"}


async def test_indexes_find_and_follow_changes(client: Client) -> None:
    informers = Informers(client)
    informer = informers.get(KIND, namespace="default")
    cache = informer.cache

    def colour(obj: Object) -> list[str]:
        return [obj["data"]["colour"]]  # Fails for those without.

    def owners(obj: Object) -> list[str]:
        return [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]

    await client.create(config_map("a", {"colour": "blue"}))
    await client.create(config_map("odd"))
    async with following(informers):
        cache.add_index("colour", colour)
        cache.add_index("owner", owners)
        cache.add_index("colour", colour)
        assert cache.keys_by_index("colour", "blue") == {Key("default", "a")}
        await client.patch(KIND, "a", {"data": {"colour": "red"}})
        await informer.catch_up()
        assert cache.by_index("colour", "blue") == []
        assert [obj["metadata"]["name"] for obj in cache.by_index("colour", "red")] == ["a"]
        await client.delete(KIND, "a")
        await informer.catch_up()
        assert cache.by_index("colour", "red") == []
    with pytest.raises(ValueError, match="another index"):
        cache.add_index("colour", owners)


async def test_scopes_choose_by_label_and_metadata_can_be_had_alone(client: Client) -> None:
    informers = Informers(client)
    chosen = informers.get(KIND, labels="tier=front", metadata_only=True)
    await client.create(config_map("a", {"big": "x"}, labels={"tier": "front"}))
    await client.create(config_map("b"))
    async with following(informers):
        (only,) = chosen.cache.list(labels=label_selector("tier in (front, back)"))
        assert only["metadata"]["name"] == "a"
        assert "data" not in only
        await client.patch(KIND, "a", {"metadata": {"labels": {"tier": "back"}}})
        await chosen.catch_up()
        assert len(chosen.cache) == 0


class Held(Informer):
    """An informer that receives nothing until the test allows it: a watch that lags behind."""

    def __init__(self, client: Client, scope_of: Informer) -> None:
        super().__init__(client, scope_of.scope)
        self.gate = asyncio.Event()
        self.gate.set()

    async def _receive(self, event: object) -> None:
        await self.gate.wait()
        await super()._receive(event)  # type: ignore[arg-type]


@asynccontextmanager
async def lagging(client: Client) -> AsyncIterator[tuple[Client, Held, Told]]:
    """A client whose writes are noted, and an informer that has heard of none of them yet."""
    informer = Held(client, Informers(client).get(KIND, namespace="default"))
    message = Told(informer)
    writer = client.telling(lambda served, key, answer, encoded: informer.note_write(key, answer, encoded))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await asyncio.wait_for(informer.synced(), 60)
        message.changes.clear()
        informer.gate.clear()
        yield writer, informer, message
        task.cancel()


async def test_own_writes_are_seen_before_the_watch_tells_of_them(client: Client) -> None:
    await client.create(config_map("old"))
    async with lagging(client) as (writer, informer, message):
        await writer.create(config_map("new", {"colour": "blue"}))
        await writer.patch(KIND, "new", {"data": {"colour": "red"}})
        await writer.delete(KIND, "old")
        cached = informer.cache.get(Key("default", "new"))
        assert cached is not None
        assert cached["data"] == {"colour": "red"}
        assert Key("default", "old") not in informer.cache
        assert message.changes == []
        informer.gate.set()
        await informer.catch_up()
        assert message.changes == ["+new", "~new", "-old"]
        assert [key.name for key in informer.cache] == ["new"]
        assert informer._own == {}


async def test_a_watch_that_lags_does_not_bring_back_what_was_before(client: Client) -> None:
    async with lagging(client) as (writer, informer, message):
        await client.create(config_map("a", {"colour": "blue"}))
        await writer.patch(KIND, "a", {"data": {"colour": "red"}})
        seen = []
        informer.on_change(lambda old, new: seen.append(informer.cache.get(Key("default", "a"))))
        informer.gate.set()
        await informer.catch_up()
        assert [obj and obj["data"]["colour"] for obj in seen] == ["red", "red", "red"]
        assert message.changes == ["+a", "~a"]


async def test_an_object_that_another_client_has_deleted_does_not_come_back(client: Client) -> None:
    informers = Informers(client)
    informer = informers.get(KIND, namespace="default")
    async with following(informers):
        made = await client.create(config_map("a"))
        await client.delete(KIND, "a")
        await client.create(config_map("last"))
        await informer.catch_up()
        informer.note_write(Key("default", "a"), made)  # The answer to the write was slow.
        assert [key.name for key in informer.cache] == ["last"]


async def test_an_object_that_was_deleted_and_created_again_is_there(client: Client) -> None:
    await client.create(config_map("a", {"life": "first"}))
    async with lagging(client) as (writer, informer, message):
        await writer.delete(KIND, "a")
        await writer.create(config_map("a", {"life": "second"}))
        informer.gate.set()
        await informer.catch_up()
        cached = informer.cache.get(Key("default", "a"))
        assert cached is not None
        assert cached["data"] == {"life": "second"}
        assert message.changes == ["-a", "+a"]
        assert informer._own == {}


async def test_an_object_without_finalizers_is_gone_before_the_watch_reports_it(client: Client) -> None:
    """A reconciler that saw it again, with the finalizer that was just taken off, would clean up twice."""
    await client.create(config_map("a", finalizers=["example.com/it"]))
    await client.delete(KIND, "a")
    async with lagging(client) as (writer, informer, message):
        await writer.patch(KIND, "a", {"metadata": {"finalizers": []}})
        assert informer.cache.get(Key("default", "a")) is None
        informer.gate.set()
        await informer.catch_up()
        assert message.changes == ["-a"]
        assert informer._own == {}


async def test_an_object_with_a_grace_period_is_there_meanwhile(client: Client) -> None:
    informers = Informers(client)
    informer = informers.get("v1/Pod", namespace="default")
    await client.create(pod("a", nodeName="machine"))
    await client.delete("v1/Pod", "a", grace_seconds=30)
    async with following(informers):
        informer.note_write(
            Key("default", "a"), await client.patch("v1/Pod", "a", {"metadata": {"labels": {"a": "b"}}})
        )
        assert Key("default", "a") in informer.cache


async def test_objects_that_were_deleted_during_a_gap_of_the_watch_are_reported(client: Client) -> None:
    informer = Informers(client).get(KIND, namespace="default")
    message = Told(informer)
    events = [Event("ADDED", snapshot_of(await client.create(config_map(name)))) for name in ("one", "two")]
    heard: list[Followed] = [Restarted(), *events, Synced("100"), Restarted(), events[0], Synced("200")]
    for event in heard:
        await informer._receive(event)
    assert message.changes == ["+one", "+two", "-two"]
    assert [key.name for key in informer.cache] == ["one"]
    assert informer.version == "200"


@pytest.mark.parametrize(("older", "newer"), [("9", "10"), ("", "1"), ("99", "100"), ("101", "102")])
def test_versions_are_ordered_as_numbers(older: str, newer: str) -> None:
    assert is_older(older, newer)
    assert not is_older(newer, older)
    assert not is_older(newer, newer)


async def test_a_missing_permission_says_which_rule_to_add(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    informer = Informers(client).get("apps/v1/Deployment")
    error = errors.Forbidden("no", group="apps", plural="deployments")
    for _ in range(2):
        await informer._receive(FollowError(error))
    (message,) = [record.message for record in caplog.records]
    assert '{apiGroups: ["apps"], resources: ["deployments"], verbs: ["list", "watch"]}' in message


async def test_a_kind_that_is_gone_is_reported_with_the_likely_cause(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    informer = Informers(client).get("example.com/v1/Website")
    for error in (error_of(Answer(404, {}, b"404 page not found\n")), NoSuchKind(Kind("example.com", "v1", "Website"))):
        await informer._receive(FollowError(error))
    first, second = (record.message for record in caplog.records)
    assert first.endswith("; the kind is not served any more: was its definition deleted?")
    assert second.endswith("; if it is a custom kind, install its definition first")


DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
WEBSITES: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "websites.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "websites", "singular": "website", "kind": "Website", "listKind": "WebsiteList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


async def test_a_kind_may_be_defined_later_removed_and_defined_again(client: Client) -> None:
    informers = Informers(client)
    informer = informers.get("example.com/v1/Website")
    site = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "a"}, "spec": {"size": 1}}
    async with asyncio.timeout(60), following(informers):
        assert len(informer.cache) == 0
        for _ in range(2):
            await client.create(WEBSITES)
            while await client.get_or_none("example.com/v1/Website", "a") is None:
                with contextlib.suppress(errors.NoSuchPath):
                    await client.create(site)
            await informer.catch_up()
            assert [obj["spec"] for obj in informer.cache.list()] == [{"size": 1}]
            await client.delete("example.com/v1/Website", "a")
            await client.delete(DEFINITION, "websites.example.com")
            if (
                await client.get_or_none(DEFINITION, "websites.example.com") is not None
            ):  # No controller cleans up after it.
                with contextlib.suppress(errors.NotFound):  # Or the server that is reached over HTTP was faster.
                    await client.patch(DEFINITION, "websites.example.com", {"metadata": {"finalizers": None}})
            await informer.catch_up()
            assert len(informer.cache) == 0


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_a_kind_that_goes_is_a_warning_for_those_who_want_it_alone(
    client: Client, caplog: pytest.LogCaptureFixture, *, metadata_only: bool
) -> None:
    """Those that follow the metadata of whatever kinds there are learn from discovery that one is gone."""
    informers = Informers(client)
    informer = informers.get(Kind("example.com", "v1", "Boat"), metadata_only=metadata_only)
    gone = errors.NoSuchPath("the server could not find the requested resource")
    await informer._receive(FollowError(gone))
    assert bool([record for record in caplog.records if "cannot watch" in record.getMessage()]) is not metadata_only
