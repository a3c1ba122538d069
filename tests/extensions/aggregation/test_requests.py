"""Requests reach an aggregated server as from a proxy that it knows."""

from __future__ import annotations

import asyncio

import orjson
from tests.extensions.aggregated_server import GROUP, ROOT
from tests.extensions.aggregation.aggregating import (
    AGGREGATED,
    NAME,
    RECIPES,
    Aggregating,
    body_of,
    recipe,
    some,
    touch,
)
from tests.extensions.definitions import reached

from pinnace.model.users import User
from pinnace.server.local import LocalApi


async def test_an_api_service_is_available_once_its_server_has_answered(cluster: Aggregating) -> None:
    result = await cluster.register()
    assert (result["reason"], result["message"]) == ("Passed", "all checks passed")


async def test_requests_reach_the_server_and_its_answers_come_back(cluster: Aggregating) -> None:
    await cluster.register()
    made = await cluster.post(RECIPES, recipe())
    assert (made.status, made.json["metadata"]["uid"]) == (201, "uid-1")
    assert (await cluster.get(f"{RECIPES}/soup")).json["spec"] == {"minutes": 20}
    assert (await cluster.patch(f"{RECIPES}/soup", {"spec": {"minutes": 5}})).json["spec"] == {"minutes": 5}
    missing = await cluster.get(f"{RECIPES}/stew")
    assert (missing.status, missing.message) == (404, f'recipes.{GROUP} "stew" not found')
    assert (await cluster.delete(f"{RECIPES}/soup")).status == 200


async def test_the_server_gets_the_user_in_the_headers_of_a_known_proxy(cluster: Aggregating) -> None:
    await cluster.register()
    user = User("ada", ("cooks", "system:masters"), "7", {"example.com/shift": ("late",)})
    api = LocalApi(cluster.plane.api, user)
    forged = {
        "X-Remote-User": "root",
        "X-Remote-Group": "kings",
        "X-Remote-Extra-Crown": "gold",
        "Authorization": "Bearer secret",
        "Connection": "X-Hop",
        "X-Hop": "by hop",
        "X-Passed": "on",
    }
    answer = await api.request("GET", f"{RECIPES}/soup/caller?a=%2F&b", headers=forged)
    seen = orjson.loads(body_of(answer))
    assert seen["proxy"] == "front-proxy-client"
    assert seen["target"] == f"{RECIPES}/soup/caller?a=%2F&b"
    headers = seen["headers"]
    assert headers["x-remote-user"] == ["ada"]
    assert headers["x-remote-uid"] == ["7"]
    assert headers["x-remote-group"] == ["cooks", "system:masters", "system:authenticated"]
    assert headers["x-remote-extra-example.com%2fshift"] == ["late"]
    assert headers["x-passed"] == ["on"]
    assert not {"authorization", "x-remote-extra-crown", "x-hop"} & set(headers)


async def test_an_unauthorized_request_is_refused_before_the_server_is_called(cluster: Aggregating) -> None:
    await cluster.register()
    request = list(cluster.kitchen.requests)
    answer = await LocalApi(cluster.plane.api, User("mallory")).request("GET", f"{RECIPES}?watch=1")
    assert answer.status == 403
    assert b'cannot watch resource \\"recipes\\"' in body_of(answer)
    assert cluster.kitchen.requests == request


async def test_events_of_a_watch_come_one_by_one_and_it_ends_when_the_client_leaves(cluster: Aggregating) -> None:
    await cluster.register()
    watch = await cluster.watch(f"{RECIPES}?watch=1")
    await reached(lambda: some(cluster.kitchen.watchers))
    for minutes in (1, 2):
        await cluster.post(RECIPES, recipe(minutes=minutes))
        assert (await watch.next())["object"]["spec"] == {"minutes": minutes}
    watch.close()
    await reached(lambda: some(not cluster.kitchen.watchers))


async def test_a_watch_ends_when_the_server_ends_it(cluster: Aggregating) -> None:
    await cluster.register()
    watch = await cluster.watch(f"{RECIPES}?watch=1")
    await reached(lambda: some(cluster.kitchen.watchers))
    cluster.kitchen.watchers[0].put_nowait({})
    assert await watch.rest() == []


async def test_a_redirect_is_not_passed_back(cluster: Aggregating) -> None:
    await cluster.register()
    assert (await cluster.get(f"{ROOT}/elsewhere")).status == 502


async def test_requests_that_were_passed_on_are_counted_by_resource(cluster: Aggregating) -> None:
    await cluster.register()
    for path in (RECIPES, f"{RECIPES}/stew", f"{ROOT}/namespaces/default/nonsense", ROOT):
        await cluster.get(path)
    message = (await cluster.get("/metrics")).body.decode()
    place = f'component="apiserver",dry_run="",group="{GROUP}",resource="recipes",scope="%s",subresource=""'
    assert f'apiserver_request_total{{code="200",{place % "namespace"},verb="LIST",version="v1"}} 1' in message
    assert f'apiserver_request_total{{code="404",{place % "resource"},verb="GET",version="v1"}} 1' in message
    assert "nonsense" not in message
    assert f'aggregator_unavailable_apiservice{{name="{NAME}"}} 0' in message
    await cluster.stop_kitchen()
    await touch(cluster)
    await cluster.available("False")
    message = (await cluster.get("/metrics")).body.decode()
    assert f'aggregator_unavailable_apiservice{{name="{NAME}"}} 1' in message
    assert f'aggregator_unavailable_apiservice_total{{name="{NAME}",reason="FailedDiscoveryCheck"}} 1' in message


async def test_a_client_need_not_wait_for_a_server_that_hangs(cluster: Aggregating) -> None:
    await cluster.register()
    cluster.kitchen.hangs.clear()
    reply = await cluster.get(f"{RECIPES}?timeout=50ms")
    assert (reply.status, reply.json["reason"]) == (504, "Timeout")
    assert reply.message == "Timeout: request did not complete within the allotted timeout"
    cluster.kitchen.hangs.set()
    assert (await cluster.get(f"{RECIPES}?timeout=30s")).status == 200


async def test_a_server_that_hangs_keeps_no_other_request_waiting(cluster: Aggregating) -> None:
    await cluster.register()
    cluster.kitchen.hangs.clear()
    waiting = asyncio.create_task(cluster.get(RECIPES))
    await reached(lambda: some(cluster.kitchen.requests[-1] == RECIPES))
    assert (await cluster.get("/apis", accept=AGGREGATED)).status == 200
    assert (await cluster.get("/api/v1/pods")).status == 200
    assert not waiting.done()
    cluster.kitchen.hangs.set()
    assert (await waiting).status == 200
