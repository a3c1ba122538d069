"""Discovery and OpenAPI include those of aggregated servers."""

from __future__ import annotations

from typing import Any

from tests.extensions.aggregated_server import GROUP, HASH, OBJECT_META, ROOT, SCHEMA, VERSION
from tests.extensions.aggregation.aggregating import Aggregating, touch
from tests.extensions.definitions import reached


async def test_discovery_lists_the_group_by_its_priority(cluster: Aggregating) -> None:
    before = list(await cluster.groups())
    await cluster.register(groupPriorityMinimum=17350)
    groups = await cluster.groups()
    names = list(groups)
    assert [name for name in names if name != GROUP] == before
    assert names.index("batch") < names.index(GROUP) < names.index("certificates.k8s.io")
    assert groups[GROUP]["preferredVersion"] == {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    assert (await cluster.get(f"/apis/{GROUP}")).json["versions"] == groups[GROUP]["versions"]
    assert (await cluster.get(ROOT)).json["resources"][0]["name"] == "recipes"


async def test_aggregated_discovery_has_the_resources_of_the_server(cluster: Aggregating) -> None:
    await cluster.register()
    kind = {"group": GROUP, "version": VERSION, "kind": "Recipe"}
    assert (await cluster.discovered())["versions"] == [
        {
            "version": VERSION,
            "resources": [
                {
                    "resource": "recipes",
                    "responseKind": kind,
                    "scope": "Namespaced",
                    "singularResource": "recipe",
                    "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
                    "shortNames": ["rcp"],
                    "subresources": [
                        {"subresource": "caller", "responseKind": kind, "verbs": ["get"]},
                        {"subresource": "talk", "responseKind": kind, "verbs": ["create", "get"]},
                    ],
                }
            ],
            "freshness": "Current",
        }
    ]


async def test_openapi_is_passed_through_and_asked_for_once(cluster: Aggregating) -> None:
    await cluster.register()
    path = f"apis/{GROUP}/{VERSION}"

    async def listed() -> Any:
        return (await cluster.get("/openapi/v3")).json["paths"].get(path)

    url = (await reached(listed))["serverRelativeURL"]
    assert url == f"/openapi/v3/{path}?hash={HASH}"
    first = await cluster.get(url)
    assert "com.example.kitchen.v1.Recipe" in first.json["components"]["schemas"]
    again = await cluster.get(url, **{"if-none-match": first.header("etag")[0]})
    assert again.status == 304
    assert cluster.kitchen.requests.count(f"/openapi/v3/{path}") == 1
    assert "apis/apps/v1" in (await cluster.get("/openapi/v3")).json["paths"]


async def test_openapi_v2_has_what_the_server_serves_and_nothing_else_of_it(cluster: Aggregating) -> None:
    alone = (await cluster.get("/openapi/v2")).json
    await cluster.register()
    first = await cluster.get("/openapi/v2")
    merged, added = first.json, set(first.json["definitions"]) - set(alone["definitions"])
    assert added == {SCHEMA, f"{OBJECT_META}_v2"}
    metadata = merged["definitions"][SCHEMA]["properties"]["metadata"]
    assert metadata == {"$ref": f"#/definitions/{OBJECT_META}_v2"}
    assert merged["definitions"][OBJECT_META] == alone["definitions"][OBJECT_META]
    assert merged["paths"]["/api/v1/pods"] == alone["paths"]["/api/v1/pods"]
    assert set(merged["paths"]) - set(alone["paths"]) == {f"{ROOT}/namespaces/{{namespace}}/recipes/{{name}}"}
    held = {"if-none-match": first.header("etag")[0]}
    assert (await cluster.get("/openapi/v2", **held)).status == 304
    assert cluster.kitchen.requests.count("/openapi/v2") == 1
    packed = await cluster.get("/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert SCHEMA.encode() in packed.body


async def test_openapi_v2_follows_the_server_and_does_without_it_when_it_dies(cluster: Aggregating) -> None:
    await cluster.register()
    first = await cluster.get("/openapi/v2")
    cluster.kitchen.definitions["definitions"][SCHEMA]["description"] = "New."
    await touch(cluster)
    await reached(lambda: _described(cluster, "New."))
    assert (await cluster.get("/openapi/v2")).header("etag") != first.header("etag")
    await cluster.stop_kitchen()
    await touch(cluster)
    await cluster.available("False")
    left = await cluster.get("/openapi/v2")
    assert left.status == 200 and SCHEMA not in left.json["definitions"]


async def _described(cluster: Aggregating, description: str) -> Any:
    obj = (await cluster.get("/openapi/v2")).json["definitions"].get(SCHEMA) or {}
    return obj if obj.get("description") == description else None


async def test_odd_openapi_of_a_server_is_left_out(cluster: Aggregating) -> None:
    await cluster.register()
    unlisted = {"paths": {f"{ROOT}/x": {"$ref": "#/definitions/a"}}, "definitions": [1]}
    oddities: list[Any] = [[], {"paths": []}, unlisted, None]
    for odd in oddities:
        cluster.kitchen.definitions = odd
        await touch(cluster)
        count = cluster.kitchen.requests.count("/openapi/v2")

        async def is_requested_again(count: int = count) -> Any:
            assert "/api/v1/pods" in (await cluster.get("/openapi/v2")).json["paths"]
            return True if cluster.kitchen.requests.count("/openapi/v2") > count else None

        await reached(is_requested_again)
