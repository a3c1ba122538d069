"""APIs that an operator serves itself, through the cluster's server: as any other kind, for any client."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from pydantic import field_validator

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.sdk import (
    Admission,
    CustomResource,
    Field,
    Key,
    Memory,
    Metadata,
    Model,
    Operator,
    Refused,
    SqliteTable,
)
from pinnace.sdk.api_collection import Collection
from pinnace.testing.cluster import Cluster

KIND = "kitchen.example.com/v1/Recipe"
ROOT = "/apis/kitchen.example.com/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class RecipeSpec(Model):
    minutes: int = Field(default=10, ge=1, description="How long it cooks.")
    steps: list[str] = Field(default_factory=list)
    dish: str = "plate"

    @field_validator("dish")
    @classmethod
    def is_clean(cls, dish: str) -> str:
        if dish == "dirty":
            raise ValueError("wash it first")
        return dish


class RecipeStatus(Model):
    cooked: int = 0


class Recipe(
    CustomResource[RecipeSpec, RecipeStatus],
    group="kitchen.example.com",
    version="v1",
    short_names=["rcp"],
    columns=[".spec.minutes", ".status.cooked"],
    selectable=[".spec.dish"],
):
    """How a dish is made."""


class Scaled(CustomResource[RecipeSpec, None], group="kitchen.example.com", version="v1", scale=True):
    """Cannot be served."""


def recipe(name: str = "soup", **spec: Any) -> Object:
    return {"apiVersion": "kitchen.example.com/v1", "kind": "Recipe", "metadata": {"name": name}, "spec": spec}


def kitchen(backend: Any = None) -> Operator:
    operator = Operator("kitchen")
    operator.serves(Recipe, Memory() if backend is None else backend)
    return operator


@pytest.fixture
async def client(cluster: Cluster) -> Client:
    """Of a cluster with an API for recipes, which are in memory."""
    await cluster.run(kitchen())
    return cluster.client


async def read(client: Client, path: str, accept: str = "*/*") -> Any:
    return orjson.loads(await client.read(path, accept=accept))


async def test_objects_are_made_read_changed_and_deleted(client: Client) -> None:
    made = await client.create(recipe(minutes=20))
    assert made["spec"] == {"minutes": 20, "steps": [], "dish": "plate"}
    assert made["metadata"]["generation"] == 1 and made["metadata"]["uid"]
    made["spec"]["minutes"] = 30
    changed = await client.update(made)
    assert (changed["spec"]["minutes"], changed["metadata"]["generation"]) == (30, 2)
    assert await client.get(KIND, "soup") == changed
    assert [obj["metadata"]["name"] for obj in await client.list(KIND)] == ["soup"]
    await client.delete(KIND, "soup")
    assert await client.get_or_none(KIND, "soup") is None
    with pytest.raises(errors.NotFound, match='"soup" not found'):
        await client.delete(KIND, "soup")


async def test_no_definition_is_made_of_a_kind_that_is_served(client: Client) -> None:
    assert await client.list("apiextensions.k8s.io/v1/CustomResourceDefinition") == []


async def test_an_object_is_made_once(client: Client) -> None:
    await client.create(recipe())
    with pytest.raises(errors.AlreadyExists):
        await client.create(recipe())


async def test_whoever_has_seen_an_older_object_does_not_overwrite_it(client: Client) -> None:
    first = await client.create(recipe())
    await client.update({**first, "spec": {"minutes": 1}})
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await client.update({**first, "spec": {"minutes": 2}})


async def test_patches_change_what_they_say(client: Client) -> None:
    await client.create(recipe(minutes=5, steps=["cut"]))
    merged = await client.patch(KIND, "soup", {"spec": {"minutes": None, "dish": "bowl"}})
    assert merged["spec"] == {"minutes": 10, "steps": ["cut"], "dish": "bowl"}
    operations = [{"op": "add", "path": "/spec/steps/-", "value": "boil"}]
    assert (await client.patch(KIND, "soup", operations, form="json"))["spec"]["steps"] == ["cut", "boil"]


async def test_server_side_apply_makes_owns_and_contends(client: Client) -> None:
    applied = await client.apply(recipe(minutes=5), field_manager="ann")
    assert [entry["manager"] for entry in applied["metadata"]["managedFields"]] == ["ann"]
    with pytest.raises(errors.ApplyConflict, match='conflict with "ann"'):
        await client.apply(recipe(minutes=6), field_manager="bob")
    taken = await client.apply(recipe(minutes=6), field_manager="bob", force=True)
    assert taken["spec"]["minutes"] == 6
    released = await client.apply(recipe(), field_manager="bob")
    assert released["spec"]["minutes"] == 10


async def test_a_dry_run_changes_nothing(client: Client) -> None:
    assert (await client.create(recipe(), dry_run=True))["metadata"]["uid"]
    assert await client.list(KIND) == []
    await client.create(recipe())
    patched = await client.patch(KIND, "soup", {"spec": {"minutes": 99}}, dry_run=True)
    assert patched["spec"]["minutes"] == 99
    assert (await client.get(KIND, "soup"))["spec"]["minutes"] == 10
    await client.delete(KIND, "soup", dry_run=True)
    assert await client.get(KIND, "soup")


async def test_the_status_is_changed_through_its_own_url_alone(client: Client) -> None:
    made = await client.create({**recipe(), "status": {"cooked": 7}})
    assert made["status"] == {"cooked": 0}
    told = await client.patch(KIND, "soup", {"spec": {"minutes": 3}, "status": {"cooked": 1}}, subresource="status")
    assert (told["spec"]["minutes"], told["status"], told["metadata"]["generation"]) == (10, {"cooked": 1}, 1)
    kept = await client.patch(KIND, "soup", {"status": {"cooked": 9}, "spec": {"minutes": 4}})
    assert (kept["status"], kept["metadata"]["generation"]) == ({"cooked": 1}, 2)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        pytest.param({"minutes": 0}, "spec.minutes in body should be greater than or equal to 1", id="schema"),
        pytest.param({"minutes": "x"}, "must be of type integer", id="type"),
        pytest.param({"dish": "dirty"}, 'spec.dish: Invalid value: "dirty": wash it first', id="the class itself"),
    ],
)
async def test_what_does_not_fit_is_refused_with_the_field(client: Client, spec: Object, told: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        await client.create(recipe(**spec))
    assert told in refused.value.message
    assert await client.list(KIND) == []


async def test_lists_are_chosen_by_labels_and_fields_and_come_in_pages(client: Client) -> None:
    for number in range(5):
        obj = recipe(f"r{number}", dish="bowl" if number % 2 else "plate")
        obj["metadata"]["labels"] = {"number": str(number)}
        await client.create(obj)

    async def names(query: str) -> list[str]:
        found = await read(client, f"{ROOT}/recipes?{query}")
        return [item["metadata"]["name"] for item in found["items"]]

    assert await names("labelSelector=number+in+(1,2)") == ["r1", "r2"]
    assert await names("fieldSelector=spec.dish%3Dbowl") == ["r1", "r3"]
    assert await names("fieldSelector=metadata.name!%3Dr0,spec.dish%3Dplate") == ["r2", "r4"]
    first = await read(client, f"{ROOT}/recipes?limit=2")
    assert first["metadata"]["remainingItemCount"] == 3
    await client.delete(KIND, "r3")
    await client.create(recipe("r9"))
    # The next page is of the same moment as the first.
    assert await names(f"limit=9&continue={first['metadata']['continue']}") == ["r2", "r3", "r4"]
    with pytest.raises(errors.BadRequest, match="field label not supported"):
        await names("fieldSelector=spec.minutes%3D1")
    with pytest.raises(errors.BadRequest, match="continue key is not valid"):
        await names("continue=nonsense")


async def test_a_watch_tells_what_comes_changes_and_goes_and_can_go_on_where_it_was(client: Client) -> None:
    before = (await read(client, f"{ROOT}/recipes"))["metadata"]["resourceVersion"]
    async with aclosing(client.watch(KIND, version=before)) as events:
        await client.create(recipe())
        await client.patch(KIND, "soup", {"spec": {"minutes": 3}})
        await client.delete(KIND, "soup")
        told = [await anext(events) for _ in range(3)]
    assert [event.type for event in told] == ["ADDED", "MODIFIED", "DELETED"]
    assert int(told[2].snapshot.version) > int(told[1].snapshot.version)
    async with aclosing(client.watch(KIND, version=told[0].snapshot.version)) as events:
        assert [(await anext(events)).type for _ in range(2)] == ["MODIFIED", "DELETED"]


async def test_a_watch_from_before_all_that_is_remembered_has_to_begin_anew(client: Client) -> None:
    await client.create(recipe())
    with pytest.raises(errors.ApiError) as refused:
        async with aclosing(client.watch(KIND, version="5")) as events:
            await anext(events)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


async def test_what_no_longer_is_chosen_has_gone_for_those_who_chose(client: Client) -> None:
    async with aclosing(client.lines(f"{ROOT}/recipes?watch=1&fieldSelector=spec.dish%3Dbowl")) as lines:
        await client.create(recipe(dish="bowl"))
        assert orjson.loads(await anext(lines))["type"] == "ADDED"
        await client.patch(KIND, "soup", {"spec": {"dish": "cup"}})
        assert orjson.loads(await anext(lines))["type"] == "DELETED"
        await client.patch(KIND, "soup", {"spec": {"dish": "bowl"}})
        assert orjson.loads(await anext(lines))["type"] == "ADDED"


async def test_bookmarks_say_where_the_beginning_ends_and_how_far_all_is_known(
    cluster: Cluster, client: Client
) -> None:
    await client.create(recipe())
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    async with aclosing(client.lines(f"{ROOT}/recipes?{query}&labelSelector=never%3Dmatched")) as lines:
        end = orjson.loads(await anext(lines))
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        made = await client.create(recipe("stew"))
        following = asyncio.ensure_future(anext(lines))
        while not following.done():
            await cluster.clock.advance(60)
            await asyncio.wait((following,), timeout=0.1)  # It comes over a socket, which no clock of ours moves.
        told = orjson.loads(following.result())
        assert (told["type"], told["object"]["metadata"]["resourceVersion"]) == (
            "BOOKMARK",
            made["metadata"]["resourceVersion"],
        )


async def test_tables_and_metadata_are_answered_where_they_are_asked_for(client: Client) -> None:
    await client.create(recipe(minutes=20))
    table = await read(client, f"{ROOT}/namespaces/default/recipes", TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Minutes", "Cooked", "Age"]
    assert table["rows"][0]["cells"][:3] == ["soup", 20, 0]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    partial = await read(client, f"{ROOT}/namespaces/default/recipes/soup", PARTIAL)
    assert (partial["kind"], "spec" in partial) == ("PartialObjectMetadata", False)
    with pytest.raises(errors.ApiError) as refused:
        await read(client, f"{ROOT}/recipes", "application/vnd.kubernetes.protobuf")
    assert refused.value.code == 406


async def test_discovery_and_openapi_describe_the_kind(client: Client) -> None:
    groups = await read(client, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
    found = next(item for item in groups["items"] if item["metadata"]["name"] == "kitchen.example.com")
    row = found["versions"][0]["resources"][0]
    assert (row["resource"], row["shortNames"], row["scope"]) == ("recipes", ["rcp"], "Namespaced")
    assert row["subresources"][0]["subresource"] == "status"
    v3 = await read(client, f"/openapi/v3{ROOT}")
    schema = v3["components"]["schemas"]["com.example.kitchen.v1.Recipe"]
    assert schema["properties"]["spec"]["properties"]["minutes"]["description"] == "How long it cooks."
    assert schema["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    v2 = await read(client, "/openapi/v2")
    assert "com.example.kitchen.v1.RecipeList" in v2["definitions"]
    assert not [name for name in v2["definitions"] if name.endswith("_v2")]


class Catalogue:
    """A backend that can only be read, and is filled by others."""

    def __init__(self) -> None:
        self.minutes: dict[str, int] = {}

    async def get(self, key: Key) -> Recipe | None:
        return next((one for one in await self.list(key.namespace) if one.key == key), None)

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


class Remote:
    """Recipes behind a REST service, which has never heard of Kubernetes."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def get(self, key: Key) -> Recipe | None:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/{key.name}") as answer:
            return self._recipe(key.name, await answer.json()) if answer.status == 200 else None

    async def list(self, namespace: str) -> Iterable[Recipe]:
        async with aiohttp.ClientSession() as session, session.get(self.url) as answer:
            return [self._recipe(name, minutes) for name, minutes in (await answer.json()).items()]

    async def update(self, dish: Recipe) -> None:
        url = f"{self.url}/{dish.name}"
        async with aiohttp.ClientSession() as session, session.put(url, json=dish.spec.minutes) as answer:
            if answer.status == 409:
                raise Refused(await answer.text())

    def _recipe(self, name: str, minutes: int) -> Recipe:
        return Recipe(metadata=Metadata(namespace="default", name=name), spec=RecipeSpec(minutes=minutes))


async def test_a_rest_service_becomes_an_api(cluster: Cluster) -> None:
    dishes = {"soup": 20}

    async def everything(request: web.Request) -> web.Response:
        return web.json_response(dishes)

    async def one(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return web.json_response(dishes[name]) if name in dishes else web.Response(status=404)

    async def put(request: web.Request) -> web.Response:
        if (minutes := await request.json()) > 60:
            return web.Response(status=409, text="the oven is needed")
        dishes[request.match_info["name"]] = minutes
        return web.Response()

    application = web.Application()
    application.add_routes([web.get("/", everything), web.get("/{name}", one), web.put("/{name}", put)])
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await cluster.run(kitchen(Remote(f"http://127.0.0.1:{runner.addresses[0][1]}")))
        assert [obj["spec"]["minutes"] for obj in await cluster.client.list(KIND)] == [20]
        await cluster.client.patch(KIND, "soup", {"spec": {"minutes": 30}})
        assert dishes == {"soup": 30}
        with pytest.raises(errors.Forbidden, match="the oven is needed"):
            await cluster.client.apply(recipe(minutes=90), force=True)
        assert await cluster.client.get_or_none(KIND, "stew") is None
        await cluster.stop()
    finally:
        await runner.cleanup()


async def test_what_others_change_is_noticed_when_it_is_looked_at_again(cluster: Cluster) -> None:
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


async def test_finalizers_hold_an_object_until_they_are_gone(client: Client) -> None:
    await client.create({**recipe(), "metadata": {"name": "soup", "finalizers": ["example.com/taste"]}})
    await client.delete(KIND, "soup")
    held = await client.get(KIND, "soup")
    assert held["metadata"]["deletionTimestamp"]
    await client.patch(KIND, "soup", {"metadata": {"finalizers": None}})
    assert await client.get_or_none(KIND, "soup") is None


async def test_dependents_go_with_their_owner(cluster: Cluster, client: Client) -> None:
    made = await client.create(recipe())
    owner = {"apiVersion": "kitchen.example.com/v1", "kind": "Recipe", "name": "soup", "uid": made["metadata"]["uid"]}
    metadata = {"name": "shopping", "ownerReferences": [owner]}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await client.delete(KIND, "soup")
    await cluster.settle()
    assert await client.get_or_none("v1/ConfigMap", "shopping") is None


async def test_a_namespace_takes_its_objects_along(cluster: Cluster, client: Client) -> None:
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cellar"}})
    await client.create({**recipe(), "metadata": {"name": "wine", "namespace": "cellar"}})
    await client.create(recipe())
    await client.delete("v1/Namespace", "cellar")
    await cluster.settle()
    assert await client.get_or_none("v1/Namespace", "cellar") is None
    assert [obj["metadata"]["name"] for obj in await client.list(KIND)] == ["soup"]


async def test_an_operator_reconciles_the_kind_that_it_serves(cluster: Cluster) -> None:
    operator = kitchen()

    @operator.reconcile(Recipe)
    async def cook(dish: Recipe) -> None:
        dish.status.cooked = dish.spec.minutes

    await cluster.run(operator)
    await cluster.client.create(recipe(minutes=7))
    await cluster.settle()
    async with aclosing(cluster.client.follow(KIND)) as news:
        async for event in news:
            if getattr(event, "snapshot", None) and event.snapshot.object["status"]["cooked"] == 7:  # type: ignore[union-attr]
                break


async def test_functions_change_and_refuse_objects_without_any_webhook(cluster: Cluster) -> None:
    operator = Operator("kitchen")

    @operator.validate(Recipe, operations=["CREATE", "UPDATE", "DELETE"])
    def not_without_ann(dish: Recipe, admission: Admission) -> str | None:
        if admission.operation == "DELETE":
            raise Refused("recipes are for ever")
        admission.warn("salt is bad for you")
        return "no steps" if not dish.spec.steps else None

    operator.serves(Recipe, Memory())

    @operator.mutate(Recipe)
    def washed(dish: Recipe) -> None:
        dish.spec.steps = [*dish.spec.steps, "wash up"] if dish.spec.steps else []

    await cluster.run(operator)
    assert await cluster.client.list("admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration") == []
    made = await cluster.client.create(recipe(steps=["cook"]))
    assert made["spec"]["steps"] == ["cook", "wash up"]
    with pytest.raises(errors.Forbidden, match="no steps"):
        await cluster.client.create(recipe("water"))
    with pytest.raises(errors.Forbidden, match="recipes are for ever"):
        await cluster.client.delete(KIND, "soup")


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


async def test_when_it_stops_the_cluster_is_told(cluster: Cluster) -> None:
    api_service = "apiregistration.k8s.io/v1/APIService"
    operator = kitchen()
    async with operator.running(cluster.client):
        assert await cluster.client.get(api_service, "v1.kitchen.example.com")
    assert await cluster.client.get_or_none(api_service, "v1.kitchen.example.com") is None
    assert await cluster.client.get_or_none("v1/Service", "kitchen-dev") is None


async def test_a_watch_ends_when_its_client_leaves(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    collections: list[Collection] = []
    made = Collection.__init__

    def noted(self: Collection, *arguments: Any) -> None:
        made(self, *arguments)
        collections.append(self)

    monkeypatch.setattr(Collection, "__init__", noted)
    await cluster.run(kitchen())
    await cluster.settle()
    follower = asyncio.create_task(read(cluster.client, f"{ROOT}/recipes?watch=1"))
    present = len(collections[0]._watchers)
    while len(collections[0]._watchers) == present:
        await asyncio.sleep(0)
    follower.cancel()
    while len(collections[0]._watchers) > present:
        await asyncio.sleep(0)


async def test_whoever_served_it_before_serves_it_again_afterwards(cluster: Cluster) -> None:
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
    ("kind", "backend", "told"),
    [
        pytest.param(Recipe, object(), "object cannot serve Recipe: it has no get and no list", id="no methods"),
        pytest.param("v1/Pod", Memory(), "cannot be served", id="no class"),
        pytest.param(Scaled, Memory(), "Scaled cannot be scaled", id="a scale"),
    ],
)
def test_what_cannot_be_served_is_said_where_it_is_declared(kind: Any, backend: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        Operator("kitchen").serves(kind, backend)


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=x",
        "limit=99999999999999999999",
        "continue=%FF",
        "continue=WzEsMl0",
        "resourceVersion=abc&watch=1",
        "timeoutSeconds=1.5&watch=1",
        "labelSelector=a%3D%3D%3Db",
        "labelSelector=" + "(" * 2000,
    ],
)
async def test_odd_questions_are_refused(client: Client, query: str) -> None:
    with pytest.raises(errors.ApiError) as refused:
        await read(client, f"{ROOT}/recipes?{query}")
    assert 400 <= refused.value.code < 500


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"name": "other"}},
        {"metadata": {"namespace": "other"}},
        {"metadata": {"labels": {"a b": "c"}}},
        {"metadata": {"labels": 5}},
        {"metadata": None},
        {"apiVersion": "v1"},
        {"kind": None},
        {"spec": []},
        {"spec": {"steps": [1, {}]}},
    ],
    ids=str,
)
async def test_odd_changes_are_refused_and_nothing_is_changed(client: Client, patch: Object) -> None:
    made = await client.create(recipe())
    with pytest.raises(errors.ApiError) as refused:
        await client.patch(KIND, "soup", patch)
    assert 400 <= refused.value.code < 500
    assert await client.get(KIND, "soup") == made


async def test_what_only_the_server_says_cannot_be_changed(client: Client) -> None:
    made = await client.create({**recipe(), "metadata": {"name": "soup", "uid": "mine", "generation": 9}})
    assert made["metadata"]["uid"] != "mine" and made["metadata"]["generation"] == 1
    forged = {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 5, "deletionTimestamp": "2001-01-01T00:00:00Z"}
    changed = await client.patch(KIND, "soup", {"metadata": {**forged, "labels": {"a": "b"}}})
    kept = {name: value for name, value in changed["metadata"].items() if name not in ("labels", "resourceVersion")}
    before = {name: value for name, value in made["metadata"].items() if name != "resourceVersion"}
    assert {**kept, "managedFields": None} == {**before, "managedFields": None}
    with pytest.raises(errors.Conflict, match="UID in precondition"):
        await client.patch(KIND, "soup", {"metadata": {"uid": "another"}})
