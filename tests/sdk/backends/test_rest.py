"""A REST service that never heard of Kubernetes becomes an API of it: a real one, over a socket, with its moods."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.sdk.recipes import KIND, ROOT, Recipe, RecipeSpec, kitchen, read, recipe

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.sdk import Key, Metadata, Operator, RestCollection
from pinnace.testing.cluster import Cluster

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Shop:
    """Dishes at /dishes, in pages of two, with ETags, of which a PUT or DELETE must name the right one."""

    def __init__(self) -> None:
        self.url = ""
        self.dishes: dict[str, Object] = {}
        self.requests: list[tuple[str, str, int]] = []
        """Method, path and answer of every request."""
        self.mood: Answer | None = None
        """Answers instead of the shop."""
        self.headers: dict[str, str] = {}
        self.is_weak = False

    @web.middleware
    async def noted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.headers = dict(request.headers)
        answer: web.StreamResponse = await (self.mood(request) if self.mood is not None else handler(request))
        self.requests.append((request.method, request.path_qs, answer.status))
        return answer

    async def everything(self, request: web.Request) -> web.Response:
        first = int(request.query.get("from", 0))
        rows = [self.dishes[name] for name in sorted(self.dishes)]
        answer = self._tagged(request, {"results": rows[first : first + 2]})
        if first + 2 < len(rows):
            answer.headers["Link"] = f'</dishes?from={first + 2}>; rel="next"'
        return answer

    async def answer_item(self, request: web.Request) -> web.Response:
        return self._tagged(request, self._dish(request))

    async def add(self, request: web.Request) -> web.Response:
        row = await request.json()
        if row["name"] in self.dishes:
            return web.Response(status=409)
        self.dishes[row["name"]] = row
        return web.Response(status=201, text="thank you")

    async def put(self, request: web.Request) -> web.Response:
        self._refuse_another(request)
        row = await request.json()
        if row["time"] > 60:
            return web.json_response({"detail": "the oven is needed"}, status=422)
        self.dishes[row["name"]] = row
        return web.Response(status=204)

    async def drop(self, request: web.Request) -> web.Response:
        self._refuse_another(request)
        del self.dishes[request.match_info["name"]]
        return web.Response(status=204)

    def _dish(self, request: web.Request) -> Object:
        name = request.match_info["name"]
        if name not in self.dishes:
            raise web.HTTPNotFound
        return self.dishes[name]

    def _tagged(self, request: web.Request, value: Object) -> web.Response:
        tag = self._tag(value)
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        return web.json_response(value, headers={"ETag": tag})

    def _refuse_another(self, request: web.Request) -> None:
        wanted = request.headers.get("If-Match")
        if wanted is not None and wanted != self._tag(self._dish(request)):
            raise web.HTTPPreconditionFailed

    def _tag(self, value: Object) -> str:
        return f'{"W/" if self.is_weak else ""}"{hashlib.sha256(orjson.dumps(value)).hexdigest()[:16]}"'


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop()
    application = web.Application(middlewares=[shop.noted])
    application.add_routes([web.get("/dishes", shop.everything), web.post("/dishes", shop.add)])
    application.add_routes([web.get("/dishes/{name}", shop.answer_item), web.put("/dishes/{name}", shop.put)])
    application.add_routes([web.delete("/dishes/{name}", shop.drop)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    shop.url = f"http://127.0.0.1:{runner.addresses[0][1]}/dishes"
    yield shop
    await runner.cleanup()


def dish(row: Object) -> Recipe:
    metadata = row.get("kubernetes", {}) | {"namespace": "default", "name": row["name"]}
    return Recipe(metadata=Metadata(**metadata), spec=RecipeSpec(minutes=row["time"]))


def row(obj: Recipe) -> Object:
    return {"name": obj.name, "time": obj.spec.minutes, "kubernetes": obj.metadata.to_wire()}


def dishes(shop: Shop, **options: Any) -> RestCollection:
    return RestCollection(shop.url, to_object=dish, to_row=row, rows="results", **options)


async def test_objects_are_made_read_changed_and_deleted_by_requests(cluster: Cluster, shop: Shop) -> None:
    await cluster.run(kitchen(dishes(shop, headers=lambda: {"Authorization": "Bearer shop"})))
    made = await cluster.client.create({**recipe(minutes=20), "metadata": {"name": "soup", "labels": {"a": "b"}}})
    assert shop.dishes["soup"]["time"] == 20
    assert shop.headers["Authorization"] == "Bearer shop"
    await cluster.client.patch(KIND, "soup", {"spec": {"minutes": 30}})
    kept = await cluster.client.get(KIND, "soup")
    assert (kept["spec"]["minutes"], kept["metadata"]["labels"]) == (30, {"a": "b"})
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    await cluster.client.delete(KIND, "soup")
    assert shop.dishes == {}
    assert await cluster.client.get_or_none(KIND, "soup") is None


async def times(backend: RestCollection) -> list[int]:
    return [result.spec.minutes for result in await backend.list("")]


async def test_all_pages_are_listed_and_those_that_have_not_changed_are_not_sent_again(shop: Shop) -> None:
    shop.dishes = {name: {"name": name, "time": 5} for name in "abcde"}
    async with closing(dishes(shop)) as backend:
        assert await times(backend) == [5, 5, 5, 5, 5]
        shop.dishes["c"]["time"] = 6
        shop.requests.clear()
        assert await times(backend) == [5, 5, 6, 5, 5]
    assert shop.requests == [("GET", "/dishes", 304), ("GET", "/dishes?from=2", 200), ("GET", "/dishes?from=4", 200)]


@pytest.mark.parametrize("count", [2, 4])
async def test_a_page_that_gets_a_successor_leads_there(shop: Shop, count: int) -> None:
    shop.dishes = {name: {"name": name, "time": 5} for name in "abcd"[:count]}
    async with closing(dishes(shop)) as backend:
        assert len(await times(backend)) == count
        shop.dishes["z"] = {"name": "z", "time": 7}
        assert len(await times(backend)) == count + 1
        del shop.dishes["z"]
        assert len(await times(backend)) == count


async def test_pages_are_found_by_a_field_too(shop: Shop) -> None:
    async def in_fields(request: web.Request) -> web.StreamResponse:
        number = int(request.query.get("page", 1))
        following = f"?page={number + 1}" if number < 3 else None
        value = {"next": following, "results": [{"name": f"soup-{number}", "time": number}]}
        return web.json_response(value, headers={"ETag": f'"{number}"'})

    shop.mood = in_fields
    async with closing(dishes(shop, next_page="next")) as backend:
        assert await times(backend) == [1, 2, 3]


@pytest.mark.parametrize("following", ["http://[", "http://h:x/", 5, ["x"], "//elsewhere.example/"], ids=str)
async def test_a_field_that_leads_nowhere_is_reported(shop: Shop, following: Any) -> None:
    shop.mood = answering(200, orjson.dumps({"next": following, "results": []}).decode())
    async with closing(dishes(shop, next_page="next")) as backend:
        with pytest.raises(errors.InternalError, match="leads to"):
            await backend.list("")


async def test_an_object_is_only_in_the_namespace_that_it_says(cluster: Cluster, shop: Shop) -> None:
    shop.dishes = {"soup": {"name": "soup", "time": 5}}
    await cluster.run(kitchen(dishes(shop)))
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    assert await cluster.client.get_or_none(KIND, "soup", namespace="other") is None
    assert await cluster.client.list(KIND, namespace="other") == []
    assert await cluster.client.get_or_none(KIND, "soup") is not None


async def test_a_write_that_overtakes_another_loses_nothing(cluster: Cluster, shop: Shop) -> None:
    shop.dishes = {"soup": {"name": "soup", "time": 5}}
    operator = kitchen(dishes(shop))

    @operator.validate(Recipe, operations=["UPDATE", "DELETE"])
    async def meanwhile(obj: Recipe) -> None:
        shop.dishes["soup"] = {"name": "soup", "time": shop.dishes["soup"]["time"] + 1}
        if not shop.is_weak:  # Another request's version is no precondition of this one.
            await cluster.client.get(KIND, "soup")

    await cluster.run(operator)
    with pytest.raises(errors.Conflict, match="has been modified"):
        await cluster.client.patch(KIND, "soup", {"spec": {"minutes": 50}})
    assert shop.dishes["soup"]["time"] == 6
    with pytest.raises(errors.Conflict, match="has been modified"):
        await cluster.client.delete(KIND, "soup")
    assert shop.dishes["soup"]["time"] == 7
    shop.is_weak = True  # Such tags cannot be named in a write: the last one wins.
    await cluster.client.patch(KIND, "soup", {"spec": {"minutes": 50}})
    assert shop.dishes["soup"]["time"] == 50


async def test_an_object_that_another_client_made_meanwhile_exists_already(cluster: Cluster, shop: Shop) -> None:
    async def nothing_yet(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404 if request.method == "GET" else 409)

    await cluster.run(kitchen(dishes(shop)))
    shop.mood = nothing_yet
    with pytest.raises(errors.AlreadyExists, match=r'recipes.kitchen.example.com "soup" already exists'):
        await cluster.client.create(recipe())


async def test_one_that_is_gone_before_it_is_changed_is_not_found(cluster: Cluster, shop: Shop) -> None:
    shop.dishes = {"soup": {"name": "soup", "time": 5}}
    operator = kitchen(dishes(shop))

    @operator.validate(Recipe, operations=["UPDATE", "DELETE"])
    def meanwhile(obj: Recipe) -> None:
        shop.dishes.clear()

    await cluster.run(operator)
    with pytest.raises(errors.NotFound):
        await cluster.client.patch(KIND, "soup", {"spec": {"minutes": 50}})
    shop.dishes = {"soup": {"name": "soup", "time": 5}}
    await cluster.client.delete(KIND, "soup")  # That is what was wanted.


async def test_a_refusal_of_the_service_is_reported_in_its_words(cluster: Cluster, shop: Shop) -> None:
    shop.dishes = {"soup": {"name": "soup", "time": 5}}
    await cluster.run(kitchen(dishes(shop)))
    with pytest.raises(errors.BadRequest, match="the service behind it refuses it: the oven is needed"):
        await cluster.client.apply(recipe(minutes=90), force=True)
    shop.mood = answering(409, "the oven is in use", only="DELETE")
    with pytest.raises(errors.Conflict, match=r'recipes.kitchen.example.com "soup": the oven is in use'):
        await cluster.client.delete(KIND, "soup")


def answering(status: int, body: str, headers: dict[str, str] | None = None, *, only: str = "") -> Answer:
    """A shop that answers so, if only to one method; to others it has soup."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if only and request.method != only:
            return web.json_response({"name": "soup", "time": 5})
        return web.Response(status=status, text=body, headers=headers)

    return answer


@pytest.mark.parametrize(
    ("status", "body", "headers", "error", "message"),
    [
        (400, "no salt", {}, errors.BadRequest, "refuses it: no salt"),
        (422, '{"detail": "no\\nsalt"}', {}, errors.BadRequest, "refuses it: no salt"),
        (422, "<html>no</html>", {}, errors.BadRequest, "refuses it: 422"),
        (403, "guests may not", {}, errors.Forbidden, "guests may not"),
        (401, "secret", {}, errors.InternalError, "answered 401: are its headers= right?"),
        (405, "", {}, errors.InternalError, "say with methods= which it has"),
        (501, "", {}, errors.InternalError, "say with methods= which it has"),
        (413, "", {}, errors.TooLarge, "answered 413"),
        (429, "", {"Retry-After": "7"}, errors.TooManyRequests, "answered 429"),
        (500, "Traceback", {}, errors.InternalError, "/dishes/soup answered 500"),
        (503, "x", {"Retry-After": "7"}, errors.Unavailable, "answered 503"),
        (503, "x", {"Retry-After": "soon"}, errors.Unavailable, "answered 503"),
        (504, "x", {}, errors.Timeout, "answered 504"),
        (301, "", {"Location": "http://u:p@h/x?k=1"}, errors.InternalError, "answered 301: it is at http://h/x"),
    ],
    ids=str,
)
async def test_every_answer_to_a_write_has_its_status(
    shop: Shop, status: int, body: str, headers: dict[str, str], error: type[errors.ApiError], message: str
) -> None:
    shop.mood = answering(status, body, headers)
    async with closing(dishes(shop)) as backend:
        with pytest.raises(error) as refused:
            await backend._update(dish({"name": "soup", "time": 5}))
    assert type(refused.value) is error
    assert refused.value.message.endswith(message)
    assert refused.value.retry_after == (7 if headers.get("Retry-After") == "7" else 0)


@asynccontextmanager
async def closing(backend: RestCollection) -> AsyncIterator[RestCollection]:
    try:
        yield backend
    finally:
        await backend.aclose()


LOOP = {"Link": '</dishes>; rel="next"'}
ASTRAY = {"Link": '<http://elsewhere.example/dishes>; rel="next"'}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, "<html>", {}), "did not answer JSON"),
        ((200, "[]", {}), "should answer an object with a list in 'results'"),
        ((200, '{"results": {}}', {}), "should answer an object with a list in 'results'"),
        ((200, '{"results": [{"time": 5}]}', {}), "cannot be made an object: KeyError: 'name'"),
        ((200, '{"results": [5]}', {}), "cannot be made an object: AttributeError"),
        ((200, '{"results": []}', LOOP), "leads back to a page that was read already"),
        ((200, '{"results": []}', ASTRAY), "leads to another server, elsewhere.example"),
        ((200, '{"results": []}', {"Link": '<http://[>; rel="next"'}), "failed: "),
        ((304, "", {}), "did not answer JSON"),
        ((404, "", {}), "answered 404: is the URL right?"),
        ((403, "", {}), "answered 403: are its headers= right?"),
    ],
    ids=str,
)
async def test_an_unexpected_answer_of_the_service_is_reported_with_the_expected_one(
    shop: Shop, answer: tuple[int, str, dict[str, str]], message: str
) -> None:
    shop.mood = answering(*answer)
    async with closing(dishes(shop)) as backend:
        with pytest.raises((errors.InternalError, errors.Unavailable)) as refused:
            await backend.list("")
    assert message in refused.value.message


async def test_a_service_that_is_slow_or_not_there_is_said_without_its_secrets(shop: Shop) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    shop.mood = never
    url = f"{shop.url.replace('//', '//me:password@')}?key=secret"
    async with closing(RestCollection(url, timeout=0.05)) as backend:
        with pytest.raises(errors.Timeout, match=r"GET http://127.0.0.1:\d+/dishes took longer than 0.05 s$"):
            await backend.list("")
    async with closing(RestCollection("http://me:password@127.0.0.1:1/dishes?key=secret")) as backend:
        with pytest.raises(errors.Unavailable, match=r"^GET http://127.0.0.1:1/dishes/soup failed: ") as refused:
            await backend.get(Key("default", "soup"))
    assert "password" not in refused.value.message and "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("name", "requested"),
    [("a b?c#d%2F", "/dishes/a%20b%3Fc%23d%252F?key=1"), ("..", None), (".", None), ("", None)],
    ids=["strange", "up", "here", "none"],
)
async def test_no_name_leads_out_of_the_collection(shop: Shop, name: str, requested: str | None) -> None:
    targets: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        targets.append(request.raw_path)
        return web.Response(status=404)

    shop.mood = note
    async with closing(RestCollection(f"{shop.url}/?key=1")) as backend:
        assert await backend.get(Key("default", name)) is None
    assert targets == ([requested] if requested else [])


async def test_rows_may_be_whole_objects_and_lie_deeper(shop: Shop) -> None:
    whole = {"metadata": {"namespace": "acme", "name": "soup"}, "spec": {"minutes": 5}}

    async def by_customer(request: web.Request) -> web.StreamResponse:
        return web.json_response(whole if request.path == "/dishes/acme/soup/" else [whole])

    shop.mood = by_customer
    async with closing(RestCollection(shop.url, path=lambda key: f"{key.namespace}/{key.name}/")) as backend:
        assert await backend.get(Key("acme", "soup")) == whole
        assert await backend.list("acme") == [whole]
        assert await backend.list("other") == []


async def test_the_api_lacks_verbs_that_the_service_has_no_method_for(cluster: Cluster, shop: Shop) -> None:
    await cluster.run(kitchen(dishes(shop, methods=["DELETE"])))
    result = (await read(cluster.client, ROOT))["resources"][0]
    assert result["verbs"] == ["delete", "deletecollection", "get", "list", "watch"]
    with pytest.raises(errors.ApiError) as refused:
        await cluster.client.create(recipe())
    assert refused.value.code == 405


async def test_changes_by_others_are_noticed_by_polling(cluster: Cluster, shop: Shop) -> None:
    operator = Operator("kitchen")
    operator.serves(Recipe, dishes(shop), refresh=5)
    await cluster.run(operator)
    async with aclosing(cluster.client.lines(f"{ROOT}/recipes?watch=1")) as lines:
        seen: list[tuple[str, int]] = []
        for rows in ({"soup": 1}, {"soup": 2}, {}):
            shop.dishes = {name: {"name": name, "time": time} for name, time in rows.items()}
            following = asyncio.ensure_future(anext(lines))
            while not following.done():
                await cluster.clock.advance(5)
                await asyncio.wait((following,), timeout=0.1)
            event = orjson.loads(following.result())
            seen.append((event["type"], event["object"]["spec"]["minutes"]))
    assert seen == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]


async def test_changes_by_others_are_reported_after_a_notification(
    cluster: Cluster, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    message: asyncio.Queue[Key | None] = asyncio.Queue()

    async def changes() -> AsyncIterator[Key | None]:
        while True:
            yield await message.get()

    await cluster.run(kitchen(dishes(shop, changes=changes)))
    async with aclosing(cluster.client.lines(f"{ROOT}/recipes?watch=1")) as lines:
        following = asyncio.ensure_future(anext(lines))
        shop.dishes["soup"] = {"name": "soup", "time": 1}
        message.put_nowait(Key("default", "soup"))
        assert orjson.loads(await following)["object"]["spec"]["minutes"] == 1
        shop.mood = answering(503, "")
        message.put_nowait(None)
        while "cannot watch the backend" not in caplog.text:
            await asyncio.sleep(0)
        shop.mood, shop.dishes = None, {}
        message.put_nowait(None)
        following = asyncio.ensure_future(anext(lines))
        while not following.done():
            await cluster.clock.advance(5)
            await asyncio.wait((following,), timeout=0.1)
    assert orjson.loads(following.result())["type"] == "DELETED"
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("shop/dishes", {}, "is not the URL of a service"),
        ("ftp://shop/dishes", {}, "is not the URL of a service"),
        ("http://", {}, "is not the URL of a service"),
        ("http://shop", {"methods": "POST"}, "write a list of POST, PUT, DELETE"),
        ("http://shop", {"methods": ["PATCH"]}, "write a list of POST, PUT, DELETE"),
        ("http://shop", {"next_page": "next"}, "say with rows= where the list is"),
        ("http://shop", {"timeout": 0}, "within 0 seconds"),
    ],
)
def test_an_invalid_service_raises_an_error_at_its_declaration(url: str, options: Object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RestCollection(url, **options)
