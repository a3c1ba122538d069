"""APIs that an operator serves itself: lists, watches, tables and discovery, as of any other kind."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import orjson
import pytest
from tests.sdk.recipes import KIND, PARTIAL, ROOT, TABLE, client, read, recipe

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.serving.read.reader import ObjectReader
from pinnace.testing.cluster import Cluster

__all__ = ["client"]


async def test_lists_are_chosen_by_labels_and_fields_and_come_in_pages(client: Client) -> None:
    for number in range(5):
        obj = recipe(f"r{number}", dish="bowl" if number % 2 else "plate")
        obj["metadata"]["labels"] = {"number": str(number)}
        await client.create(obj)

    async def names(query: str) -> list[str]:
        result = await read(client, f"{ROOT}/recipes?{query}")
        return [item["metadata"]["name"] for item in result["items"]]

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


async def test_a_list_is_read_at_the_revision_that_the_client_chooses(client: Client) -> None:
    await client.create(recipe())
    before = (await read(client, f"{ROOT}/recipes"))["metadata"]["resourceVersion"]
    await client.create(recipe("stew"))
    exact = await read(client, f"{ROOT}/recipes?resourceVersion={before}&resourceVersionMatch=Exact")
    newer = await read(client, f"{ROOT}/recipes?resourceVersion={before}&resourceVersionMatch=NotOlderThan")
    assert [item["metadata"]["name"] for item in exact["items"]] == ["soup"]
    assert [item["metadata"]["name"] for item in newer["items"]] == ["soup", "stew"]
    assert (exact["metadata"]["resourceVersion"], int(newer["metadata"]["resourceVersion"]) > int(before)) == (
        before,
        True,
    )


async def test_a_watch_tells_what_comes_changes_and_goes_and_can_go_on_where_it_was(client: Client) -> None:
    before = (await read(client, f"{ROOT}/recipes"))["metadata"]["resourceVersion"]
    async with aclosing(client.watch(KIND, version=before)) as events:
        await client.create(recipe())
        await client.patch(KIND, "soup", {"spec": {"minutes": 3}})
        await client.delete(KIND, "soup")
        message = [await anext(events) for _ in range(3)]
    assert [event.type for event in message] == ["ADDED", "MODIFIED", "DELETED"]
    assert int(message[2].snapshot.version) > int(message[1].snapshot.version)
    async with aclosing(client.watch(KIND, version=message[0].snapshot.version)) as events:
        assert [(await anext(events)).type for _ in range(2)] == ["MODIFIED", "DELETED"]


async def test_a_watch_from_before_all_that_is_remembered_has_to_begin_anew(client: Client) -> None:
    await client.create(recipe())
    with pytest.raises(errors.ApiError) as refused:
        async with aclosing(client.watch(KIND, version="5")) as events:
            await anext(events)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


async def test_an_object_that_no_longer_matches_is_deleted_for_selective_watches(client: Client) -> None:
    async with aclosing(client.lines(f"{ROOT}/recipes?watch=1&fieldSelector=spec.dish%3Dbowl")) as lines:
        await client.create(recipe(dish="bowl"))
        assert orjson.loads(await anext(lines))["type"] == "ADDED"
        await client.patch(KIND, "soup", {"spec": {"dish": "cup"}})
        assert orjson.loads(await anext(lines))["type"] == "DELETED"
        await client.patch(KIND, "soup", {"spec": {"dish": "bowl"}})
        assert orjson.loads(await anext(lines))["type"] == "ADDED"


@pytest.fixture
def quick_bookmarks(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that run from now on send a bookmark every few milliseconds: no clock of ours moves that timer."""
    defaults = ObjectReader.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "bookmark_seconds", 0.02)


@pytest.mark.usefixtures("quick_bookmarks")  # Before the operator runs, which is of `client`.
async def test_bookmarks_say_where_the_beginning_ends_and_how_far_all_is_known(client: Client) -> None:
    await client.create(recipe())
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    async with aclosing(client.lines(f"{ROOT}/recipes?{query}&labelSelector=never%3Dmatched")) as lines:
        end = orjson.loads(await anext(lines))
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        made = await client.create(recipe("stew"))
        document = orjson.loads(await asyncio.wait_for(anext(lines), 30))
        assert (document["type"], document["object"]["metadata"]["resourceVersion"]) == (
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
    result = next(item for item in groups["items"] if item["metadata"]["name"] == "kitchen.example.com")
    row = result["versions"][0]["resources"][0]
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


@pytest.mark.parametrize(
    "query",
    [
        "limit=x",
        "limit=99999999999999999999",
        "continue=%FF",
        "continue=WzEsMl0",
        "timeoutSeconds=1.5&watch=1",
        "labelSelector=a%3D%3D%3Db",
        "labelSelector=" + "(" * 2000,
    ],
)
async def test_odd_questions_are_refused(client: Client, query: str) -> None:
    with pytest.raises(errors.ApiError) as refused:
        await read(client, f"{ROOT}/recipes?{query}")
    assert 400 <= refused.value.code < 500
