"""The backends of an API that an operator serves: their kinds, their failures, and recovery."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.sdk.recipes import KIND, ROOT, Recipe, RecipeSpec, Scaled, kitchen, read, recipe

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.sdk import Key, Memory, Metadata, Operator, Overtaken, SqliteTable
from pinnace.sdk.api.collection import CollectionStore
from pinnace.serving.cache.fanout import Fanout
from pinnace.testing.cluster import Cluster


class Catalogue:
    """A backend that can only be read, and is filled by others."""

    def __init__(self) -> None:
        self.minutes: dict[str, int] = {}

    async def get(self, key: Key) -> Recipe | None:
        return next((obj for obj in await self.list(key.namespace) if obj.key == key), None)

    async def list(self, namespace: str) -> Iterable[Recipe]:
        return [
            Recipe(metadata=Metadata(namespace="default", name=name), spec=RecipeSpec(minutes=minutes))
            for name, minutes in self.minutes.items()
            if namespace in ("", "default")
        ]


async def test_a_class_with_get_and_list_is_enough_to_be_read(cluster: Cluster) -> None:
    catalogue = Catalogue()
    await cluster.run(kitchen(catalogue))
    catalogue.minutes = {"soup": 20}
    first = await cluster.client.get(KIND, "soup")
    assert first["spec"]["minutes"] == 20
    assert (await cluster.client.get(KIND, "soup")) == first  # Though nothing of it was kept: uid and version.
    row = (await read(cluster.client, ROOT))["resources"][0]
    assert row["verbs"] == ["get", "list", "watch"]
    with pytest.raises(errors.ApiError) as refused:
        await cluster.client.create(recipe())
    assert refused.value.code == 405


async def test_changes_by_others_are_noticed_at_the_next_poll(cluster: Cluster) -> None:
    catalogue = Catalogue()
    operator = Operator("kitchen")
    operator.serves(Recipe, catalogue, refresh=5)
    await cluster.run(operator)
    async with aclosing(cluster.client.lines(f"{ROOT}/recipes?watch=1")) as lines:
        seen: list[tuple[str, int]] = []
        for state in ({"soup": 1}, {"soup": 2}, {}):
            catalogue.minutes = state
            following = asyncio.ensure_future(anext(lines))
            while not following.done():
                await cluster.clock.advance(5)
                await asyncio.wait((following,), timeout=0.1)
            event = orjson.loads(following.result())
            seen.append((event["type"], event["object"]["spec"]["minutes"]))
    assert seen == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]


async def test_a_backend_that_tells_of_changes_is_believed_at_once(cluster: Cluster, tmp_path: Path) -> None:
    table = SqliteTable(tmp_path / "recipes.db", "recipes")
    await cluster.run(kitchen(table))
    await cluster.client.create(recipe(minutes=1))
    async with aclosing(cluster.client.lines(f"{ROOT}/recipes?watch=1")) as lines:
        assert orjson.loads(await anext(lines))["type"] == "ADDED"
        with sqlite3.connect(tmp_path / "recipes.db") as other:
            other.execute("UPDATE recipes SET object = json_set(object, '$.spec.minutes', 44)")
        table.changed(Key("default", "soup"))
        event = orjson.loads(await anext(lines))
    assert (event["type"], event["object"]["spec"]["minutes"]) == ("MODIFIED", 44)


async def test_objects_in_a_table_outlive_the_process(cluster: Cluster, tmp_path: Path) -> None:
    operator = Operator("kitchen")
    operator.serves(Recipe, SqliteTable(tmp_path / "recipes.db", "recipes"))
    async with operator.running(cluster.client):
        made = await cluster.client.create({**recipe(), "metadata": {"name": "soup", "labels": {"a": "b"}}})
    again = Operator("kitchen")
    again.serves(Recipe, SqliteTable(tmp_path / "recipes.db", "recipes"))
    await cluster.run(again)
    kept = await cluster.client.get(KIND, "soup")
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    assert int(kept["metadata"]["resourceVersion"]) > 0
    assert kept["metadata"]["labels"] == {"a": "b"}


def test_a_row_that_another_process_has_put_there_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    soup = Recipe(metadata=Metadata(namespace="default", name="soup"), spec=RecipeSpec())
    SqliteTable(tmp_path / "recipes.db", "recipes").create(soup)
    with pytest.raises(Overtaken):
        SqliteTable(tmp_path / "recipes.db", "recipes").create(soup)


class Broken(Catalogue):
    async def list(self, namespace: str) -> Iterable[Recipe]:
        raise OSError("the disk is full")

    async def watch(self) -> AsyncIterator[Key | None]:
        yield None


async def test_a_backend_that_fails_says_so_and_takes_nothing_else_with_it(cluster: Cluster) -> None:
    await cluster.run(kitchen(Broken()))
    with pytest.raises(errors.ApiError, match="OSError: the disk is full") as refused:
        await read(cluster.client, f"{ROOT}/recipes")
    assert refused.value.code == 500
    assert (await read(cluster.client, ROOT))["kind"] == "APIResourceList"


async def test_a_backend_that_loses_its_own_connection_does_not_lose_the_clients(cluster: Cluster) -> None:
    class Lost(Catalogue):
        async def list(self, namespace: str) -> Iterable[Recipe]:
            raise ConnectionResetError("the database has left")

    await cluster.run(kitchen(Lost()))
    with pytest.raises(errors.InternalError, match="ConnectionResetError: the database has left"):
        await read(cluster.client, f"{ROOT}/recipes")


async def test_when_it_stops_the_cluster_is_reported(cluster: Cluster) -> None:
    api_service = "apiregistration.k8s.io/v1/APIService"
    operator = kitchen()
    async with operator.running(cluster.client):
        assert await cluster.client.get(api_service, "v1.kitchen.example.com")
    assert await cluster.client.get_or_none(api_service, "v1.kitchen.example.com") is None
    assert await cluster.client.get_or_none("v1/Service", "kitchen-dev") is None


async def test_a_watch_ends_when_its_client_leaves(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[CollectionStore] = []
    made = CollectionStore.__init__

    def noted(self: CollectionStore, *arguments: Any) -> None:
        made(self, *arguments)
        stores.append(self)

    fanouts: list[Fanout] = []
    load = Fanout.load

    async def noted_load(self: Fanout) -> None:
        await load(self)
        if self._store in stores:
            fanouts.append(self)

    monkeypatch.setattr(CollectionStore, "__init__", noted)
    monkeypatch.setattr(Fanout, "load", noted_load)
    await cluster.run(kitchen())
    await cluster.settle()
    follower = asyncio.create_task(read(cluster.client, f"{ROOT}/recipes?watch=1"))
    present = len(fanouts[0].watchers())
    while len(fanouts[0].watchers()) == present:
        await asyncio.sleep(0)
    follower.cancel()
    while len(fanouts[0].watchers()) > present:
        await asyncio.sleep(0)


async def test_the_former_api_service_is_restored_afterwards(cluster: Cluster) -> None:
    service = {"namespace": "prod", "name": "kitchen", "port": 443}
    spec = {"group": "kitchen.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    obj: Object = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    obj |= {"metadata": {"name": "v1.kitchen.example.com"}, "spec": {**spec, "service": service}}
    before = (await cluster.client.create(obj))["spec"]
    async with kitchen().running(cluster.client):
        assert await cluster.client.list(KIND) == []
    after = await cluster.client.get("apiregistration.k8s.io/v1/APIService", "v1.kitchen.example.com")
    assert after["spec"] == before


@pytest.mark.parametrize(
    ("kind", "backend", "message"),
    [
        pytest.param(Recipe, object(), "object cannot serve Recipe: it has no get and no list", id="no methods"),
        pytest.param("v1/Pod", Memory(), "cannot be served", id="no class"),
        pytest.param(Scaled, Memory(), "Scaled cannot be scaled", id="a scale"),
    ],
)
def test_a_kind_that_cannot_be_served_raises_an_error_at_its_declaration(kind: Any, backend: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Operator("kitchen").serves(kind, backend)
