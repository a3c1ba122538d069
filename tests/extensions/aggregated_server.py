"""A small API server of its own, written without pinnace: recipes, in a group that pinnace knows nothing of.

Started as a process: python -m tests.extensions.aggregated_server <port> <certificate> <key> <client CA>
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

GROUP = "kitchen.example.com"
VERSION = "v1"
ROOT = f"/apis/{GROUP}/{VERSION}"
DOCUMENT = f"/openapi/v3/apis/{GROUP}/{VERSION}"
HASH = "C00C1E"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
SCHEMA = "com.example.kitchen.v1.Recipe"

Object = dict[str, Any]

RESOURCES = [
    {
        "name": "recipes",
        "singularName": "recipe",
        "namespaced": True,
        "kind": "Recipe",
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "shortNames": ["rcp"],
    },
    {"name": "recipes/caller", "singularName": "", "namespaced": True, "kind": "Recipe", "verbs": ["get"]},
    {"name": "recipes/talk", "singularName": "", "namespaced": True, "kind": "Recipe", "verbs": ["create", "get"]},
]


class Kitchen:
    """Recipes in memory, and what was asked."""

    def __init__(self) -> None:
        self.recipes: dict[tuple[str, str], Object] = {}
        self.revision = 1
        self.watchers: list[asyncio.Queue[Object]] = []
        self.requests: list[str] = []
        self.definitions: Any = openapi_v2()
        self.answer_with = 0
        """A status to answer everything with, if not 0."""
        self.hangs = asyncio.Event()
        self.hangs.set()

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._misbehave])
        named = ROOT + "/namespaces/{namespace}/recipes/{name}"
        application.add_routes(
            [
                web.get("/apis", self._groups),
                web.get(ROOT, self._discovery),
                web.get("/openapi/v3", self._index),
                web.get(DOCUMENT, self._document),
                web.get(ROOT + "/recipes", self._list),
                web.get(ROOT + "/namespaces/{namespace}/recipes", self._list),
                web.post(ROOT + "/namespaces/{namespace}/recipes", self._create),
                web.get(named, self._get),
                web.patch(named, self._patch),
                web.put(named, self._replace),
                web.delete(named, self._delete),
                web.get(named + "/caller", self._caller),
                web.get(named + "/talk", self._talk),
                web.post(named + "/talk", self._talk_plainly),
                web.get("/openapi/v2", self._whole_document),
                web.get(ROOT + "/elsewhere", self._redirect),
            ]
        )
        return application

    @web.middleware
    async def _misbehave(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(request.path)
        await self.hangs.wait()
        if self.answer_with:
            return web.Response(status=self.answer_with)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _groups(self, request: web.Request) -> web.Response:
        return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})

    async def _discovery(self, request: web.Request) -> web.Response:
        page = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
        return _json({**page, "resources": RESOURCES})

    async def _index(self, request: web.Request) -> web.Response:
        return _json(
            {"paths": {DOCUMENT.removeprefix("/openapi/v3/"): {"serverRelativeURL": f"{DOCUMENT}?hash={HASH}"}}}
        )

    async def _document(self, request: web.Request) -> web.Response:
        return _json(_openapi(), headers={"Etag": f'"{HASH}"'})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        namespace = request.match_info.get("namespace", "")
        wanted = (request.query.get("fieldSelector") or "").removeprefix("metadata.name=")
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request)
        items = [
            recipe
            for (where, name), recipe in self.recipes.items()
            if namespace in ("", where) and wanted in ("", name)
        ]
        metadata = {"resourceVersion": str(self.revision)}
        return _json({"apiVersion": f"{GROUP}/{VERSION}", "kind": "RecipeList", "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        events: asyncio.Queue[Object] = asyncio.Queue()
        since = int(request.query.get("resourceVersion") or self.revision)
        for recipe in self.recipes.values():
            if int(recipe["metadata"]["resourceVersion"]) > since:
                events.put_nowait({"type": "MODIFIED", "object": recipe})
        self.watchers.append(events)
        try:
            await answer.prepare(request)
            while event := await events.get():
                await answer.write(orjson.dumps(event) + b"\n")
        finally:
            self.watchers.remove(events)
        return answer

    async def _create(self, request: web.Request) -> web.Response:
        recipe = orjson.loads(await request.read())
        recipe["metadata"]["namespace"] = request.match_info["namespace"]
        recipe["metadata"]["uid"] = f"uid-{self.revision}"
        recipe["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z"
        return _json(self._keep(recipe, "ADDED"), status=201)

    async def _get(self, request: web.Request) -> web.Response:
        recipe = self.recipes.get(_key(request))
        return _json(recipe) if recipe is not None else _not_found(request)

    async def _patch(self, request: web.Request) -> web.Response:
        recipe = self.recipes.get(_key(request))
        if recipe is None:
            return _not_found(request)
        return _json(self._keep(_merged(recipe, orjson.loads(await request.read())), "MODIFIED"))

    async def _replace(self, request: web.Request) -> web.Response:
        return _json(self._keep(orjson.loads(await request.read()), "MODIFIED"))

    async def _delete(self, request: web.Request) -> web.Response:
        recipe = self.recipes.pop(_key(request), None)
        if recipe is None:
            return _not_found(request)
        self._tell("DELETED", recipe)
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    async def _caller(self, request: web.Request) -> web.Response:
        """Answer with the caller's name and how the server knows it."""
        peer = request.transport.get_extra_info("peercert") if request.transport is not None else None
        names = dict(pair for entry in (peer or {}).get("subject", ()) for pair in entry)
        headers: dict[str, list[str]] = {}
        for name, value in request.headers.items():
            headers.setdefault(name.lower(), []).append(value)
        return _json({"proxy": names.get("commonName"), "headers": headers, "target": request.raw_path})

    async def _talk(self, request: web.Request) -> web.StreamResponse:
        """Says again what it hears, with the name of who says it, over WebSocket."""
        if "websocket" not in request.headers.get("Upgrade", ""):
            return web.Response(status=400, text="let us talk over WebSocket")
        socket = web.WebSocketResponse(protocols=("kitchen.example.com",))
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{request.headers['X-Remote-User']}: {message.data}")
        return socket

    async def _talk_plainly(self, request: web.Request) -> web.StreamResponse:
        """Send back all received bytes, in no known protocol: proxies do not know SPDY either."""
        transport = request.transport
        assert transport is not None
        upgrade = request.headers["Upgrade"]
        transport.write(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n".encode()
        )
        ended = asyncio.get_running_loop().create_future()
        transport.set_protocol(_Echo(transport, ended))
        await ended
        return web.Response()

    async def _whole_document(self, request: web.Request) -> web.Response:
        etag = f'"{hash(str(self.definitions))}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304)
        return _json(self.definitions, headers={"Etag": etag})

    async def _redirect(self, request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "https://elsewhere.example.com/"})

    def _keep(self, recipe: Object, how: str) -> Object:
        self.revision += 1
        recipe["metadata"]["resourceVersion"] = str(self.revision)
        self.recipes[recipe["metadata"]["namespace"], recipe["metadata"]["name"]] = recipe
        self._tell(how, recipe)
        return recipe

    def _tell(self, how: str, recipe: Object) -> None:
        for events in self.watchers:
            events.put_nowait({"type": how, "object": recipe})


class _Echo(asyncio.Protocol):
    def __init__(self, transport: asyncio.Transport, ended: asyncio.Future[None]) -> None:
        self._transport = transport
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


@asynccontextmanager
async def serving(kitchen: Kitchen, tls: ssl.SSLContext, *, port: int = 0) -> AsyncIterator[int]:
    """The port that it listens on."""
    runner = web.AppRunner(kitchen.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def tls_of(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return a TLS context that only accepts clients with a certificate of `client_ca`."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    if client_ca is not None:
        tls.load_verify_locations(client_ca)
        tls.verify_mode = ssl.CERT_REQUIRED
    return tls


def _openapi() -> Object:
    fields = {"type": "object", "properties": {"minutes": {"type": "integer", "description": "How long it cooks."}}}
    text = {"type": "string"}
    recipe = {
        "type": "object",
        "description": "Recipe says how a dish is made.",
        "properties": {"apiVersion": text, "kind": text, "metadata": {"type": "object"}, "spec": fields},
        "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": "Recipe"}],
    }
    operation = {
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": "Recipe"},
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kitchen", "version": "v1"},
        "paths": {f"{ROOT}/namespaces/{{namespace}}/recipes/{{name}}": {"get": operation}},
        "components": {"schemas": {SCHEMA: recipe}},
    }


def openapi_v2() -> Object:
    kind = {"group": GROUP, "version": VERSION, "kind": "Recipe"}
    answer = {"200": {"description": "OK", "schema": {"$ref": f"#/definitions/{SCHEMA}"}}}
    operation = {"responses": answer, "x-kubernetes-action": "get", "x-kubernetes-group-version-kind": kind}
    text = {"type": "string"}
    recipe = {
        "type": "object",
        "description": "Recipe says how a dish is made.",
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": {"$ref": f"#/definitions/{OBJECT_META}"},
            "spec": {"type": "object", "properties": {"minutes": {"type": "integer"}}},
        },
        "x-kubernetes-group-version-kind": [kind],
    }
    return {
        "swagger": "2.0",
        "info": {"title": "Kitchen", "version": "v1"},
        "paths": {
            f"{ROOT}/namespaces/{{namespace}}/recipes/{{name}}": {"get": operation},
            "/api/v1/pods": {"get": {"description": "Not the kitchen's to say."}},
        },
        "definitions": {
            SCHEMA: recipe,
            OBJECT_META: {"type": "object", "description": "The kitchen's own idea of metadata."},
            "com.example.unused": {"type": "object"},
        },
    }


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    kept = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = _merged(kept.get(name), value)
    return kept


def _key(request: web.Request) -> tuple[str, str]:
    return request.match_info["namespace"], request.match_info["name"]


def _not_found(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound"}
    details = {"name": name, "group": GROUP, "kind": "recipes"}
    message = f'recipes.{GROUP} "{name}" not found'
    return _json({**status, "message": message, "details": details, "code": 404}, status=404)


def _json(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json", headers=headers)


async def main(port: int, certificate: Path, key: Path, client_ca: Path) -> None:
    async with serving(Kitchen(), tls_of(certificate, key, client_ca), port=port):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *map(Path, sys.argv[2:5])))
