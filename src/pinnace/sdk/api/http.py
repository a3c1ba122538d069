"""Answer the requests to an API server, over HTTP."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress

import orjson
from aiohttp import web

from pinnace.model import errors
from pinnace.model.clock import AlarmClock
from pinnace.model.objects import Key, Object
from pinnace.model.tracing import active_tracer, continued_trace, span
from pinnace.sdk.api.callers import Caller, Callers
from pinnace.sdk.api.collection import Collection, CollectionChange, CollectionEntry, CollectionWatcher
from pinnace.sdk.api.computed import ComputedApi
from pinnace.sdk.api.pages import DISCOVERY_VERSIONS, Pages
from pinnace.sdk.api.representations import ViewRepresentation, view_of
from pinnace.sdk.api.request_info import RequestInfo
from pinnace.sdk.api.requests import (
    ObjectSelection,
    continue_token,
    parse_request,
    read_body,
    read_continue_token,
    read_flag,
    read_number,
    read_selection,
    read_write_options,
)
from pinnace.sdk.api.writes import CollectionWriter
from pinnace.sdk.handlers.handlers import LocalAdmission
from pinnace.sdk.handlers.reviews import Refused

LARGEST_BODY = 3 * 1024 * 1024
BOOKMARK_SECONDS = 60.0
LONGEST_WATCH_SECONDS = 1800

_log = logging.getLogger(__name__)
_JSON = "application/json"
_HEALTH = frozenset(("/healthz", "/livez", "/readyz"))
_WRITES = frozenset(("create", "update", "patch", "delete", "deletecollection"))


class ApiApplication:
    """One server for several kinds, each over its own collection."""

    def __init__(
        self,
        collections: Sequence[Collection],
        pages: Pages,
        callers: Callers,
        admission: LocalAdmission,
        clock: AlarmClock,
        *,
        computed: ComputedApi | None = None,
    ) -> None:
        self._collections = {
            (one.served.kind.group, one.served.kind.version, one.served.resource.plural): one for one in collections
        }
        self._pages = pages
        self._callers = callers
        self._admission = admission
        self._clock = clock
        self._computed = computed
        self._computed_places = frozenset(computed.versions if computed is not None else ())

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if active_tracer() is None:
            return await self._answer(request)
        with continued_trace(request.headers), span(f"{request.method} {request.path}"):
            return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = parse_request(request.method, request.path, request.query)
            caller = await self._callers.identify(_certificate(request), list(request.headers.items()))
            await self._callers.authorize(caller, asked)
            if asked.path:
                return self._page(request, asked.path)
            if self._computed is not None and (asked.group, asked.version) in self._computed_places:
                return _json(await self._computed.answer(asked, request.query))
            return await self._objects(request, asked, caller)
        except errors.ApiError as error:
            return _status(error)
        except Refused as denied:
            return _status(errors.Forbidden(str(denied)))
        except web.HTTPRequestEntityTooLarge:
            return _status(errors.TooLarge(f"limit is {LARGEST_BODY}"))
        except Exception as error:
            _log.exception("%s %s failed", request.method, request.path)
            return _status(errors.InternalError(f"{type(error).__name__}: {error}"))

    # Pages.

    def _page(self, request: web.Request, path: str) -> web.Response:
        path = path.rstrip("/")
        if request.method not in ("GET", "HEAD"):
            raise errors.BadMethod
        if path in _HEALTH:
            return web.Response(text="ok")
        match path.removeprefix("/").split("/"):
            case ["apis"]:
                return self._groups(request)
            case ["apis", group]:
                page = self._pages.group(group)
            case ["apis", group, version]:
                page = self._pages.resources(group, version)
            case ["openapi", "v3"]:
                page = self._pages.openapi_index()
            case ["openapi", "v3", "apis", group, version] if found := self._pages.openapi_v3(group, version):
                return _document(request, *found)
            case ["openapi", "v2"]:
                return _document(request, *self._pages.openapi_v2())
            case _:
                page = None
        if page is None:
            raise errors.NoSuchPath
        return _json(page)

    def _groups(self, request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "").replace(" ", "")
        for clause in accept.split(","):
            for version in DISCOVERY_VERSIONS:
                if f"g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" in clause and _JSON in clause:
                    content_type = f"{_JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                    body = orjson.dumps(self._pages.aggregated(version))
                    return web.Response(body=body, headers={"Content-Type": content_type, "Vary": "Accept"})
        return _json(self._pages.groups())

    # Objects.

    async def _objects(self, request: web.Request, asked: RequestInfo, caller: Caller) -> web.StreamResponse:
        collection = self._collections.get((asked.group, asked.version, asked.resource))
        if collection is None:
            raise errors.NoSuchPath
        resource = collection.served.resource
        below = resource.subresource(asked.subresource) if asked.subresource else None
        if asked.subresource and below is None:
            raise errors.NoSuchPath
        if asked.verb not in (below.verbs if below is not None else resource.verbs):
            raise errors.MethodNotAllowed(asked.verb, group=resource.group, plural=resource.plural)
        is_everywhere = resource.namespaced and not asked.namespace
        if (asked.namespace and not resource.namespaced) or (is_everywhere and asked.verb not in ("list", "watch")):
            raise errors.NoSuchPath
        warnings = [resource.deprecation] if resource.deprecation else []
        if asked.verb in _WRITES:
            # A write is finished even if its client disconnects.
            return await asyncio.shield(self._write(request, asked, caller, collection, warnings))
        view = view_of(request.headers.get("Accept", ""))
        form = ViewRepresentation(resource, view, include=request.query.get("includeObject", ""), clock=self._clock)
        if asked.verb == "get":
            entry = await collection.get(Key(asked.namespace, asked.name))
            if entry is None:
                raise errors.NotFound(group=resource.group, plural=resource.plural, name=asked.name)
            return _raw(form.one(entry), warnings=warnings)
        chosen = read_selection(asked, request.query, resource)
        if asked.verb == "list":
            return _raw(await self._list(request.query, collection, chosen, form), warnings=warnings)
        return await self._watch(request, collection, chosen, form, warnings)

    async def _write(
        self, request: web.Request, asked: RequestInfo, caller: Caller, collection: Collection, warnings: list[str]
    ) -> web.Response:
        media_type = request.content_type
        agent = request.headers.get("User-Agent", "")
        options = read_write_options(request.query, media_type if asked.verb == "patch" else "", agent, caller)
        raw = await request.read()
        if len(raw) > LARGEST_BODY:
            raise errors.TooLarge(f"limit is {LARGEST_BODY}")
        body = read_body(raw, media_type) if raw else {}
        writer = CollectionWriter(collection, self._admission, self._clock)
        key = Key(asked.namespace, asked.name)
        status = 200
        match asked.verb:
            case "create":
                answer = await writer.create(body, asked.namespace, options)
                status = 201
            case "update":
                answer = await writer.replace(body, key, asked.subresource, options)
            case "patch":
                answer = await writer.patch(body, media_type, key, asked.subresource, options)
            case "delete":
                answer = await writer.delete(key, _delete_options(body, request.query), options)
            case _:
                chosen = read_selection(asked, request.query, collection.served.resource)
                await collection.refresh(asked.namespace)
                gone = [one for one in collection.at(collection.revision, asked.namespace) if chosen.matches(one)]
                for entry in gone:
                    with suppress(errors.NotFound):
                        await writer.delete(entry.key, _delete_options(body, request.query), options)
                kind = collection.served.kind
                answer = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": {}}
                answer["items"] = [entry.object for entry in gone]
        return _json(answer, status=status, warnings=[*warnings, *options.warnings])

    async def _list(
        self, query: Mapping[str, str], collection: Collection, chosen: ObjectSelection, form: ViewRepresentation
    ) -> bytes:
        limit, token = read_number(query, "limit"), query.get("continue", "")
        if token:
            at, last = read_continue_token(token)
        else:
            await collection.refresh(chosen.namespace)
            at, last = collection.revision, None
        entries = [one for one in collection.at(at, chosen.namespace) if chosen.matches(one)]
        if last is not None:
            entries = [one for one in entries if one.key > last]
        metadata: Object = {"resourceVersion": str(at)}
        if limit and len(entries) > limit:
            metadata |= {"continue": continue_token(at, entries[limit - 1].key)}
            metadata |= {"remainingItemCount": len(entries) - limit}
            entries = entries[:limit]
        return form.many(entries, metadata)

    # Watches.

    async def _watch(
        self,
        request: web.Request,
        collection: Collection,
        chosen: ObjectSelection,
        form: ViewRepresentation,
        warnings: list[str],
    ) -> web.StreamResponse:
        query = request.query
        since = read_number(query, "resourceVersion")
        longest = random.randint(LONGEST_WATCH_SECONDS, 2 * LONGEST_WATCH_SECONDS)
        seconds = read_number(query, "timeoutSeconds") or longest
        wants_initial = read_flag(query, "sendInitialEvents") if "sendInitialEvents" in query else not since
        wants_bookmarks = read_flag(query, "allowWatchBookmarks")
        if wants_initial:
            await collection.refresh(chosen.namespace)
            since = collection.revision
        elif not since:
            since = collection.revision
        present = collection.at(since, chosen.namespace) if wants_initial else []
        answer = web.StreamResponse(headers={"Content-Type": _JSON, "Cache-Control": "no-cache, private"})
        _warn(answer, warnings)
        # A watch ends when its client disconnects. The block calls no backend, so the error is this connection's.
        with suppress(ConnectionError):
            async with collection.watching(since) as watcher:
                await answer.prepare(request)
                for entry in filter(chosen.matches, present):
                    await answer.write(form.event("ADDED", entry))
                if wants_initial and read_flag(query, "sendInitialEvents") and wants_bookmarks:
                    await answer.write(form.bookmark(since, is_initial=True))
                sent, end = since, self._clock.monotonic() + seconds
                while not watcher.is_over and (left := end - self._clock.monotonic()) > 0:
                    changes = await self._changes(watcher, min(left, BOOKMARK_SECONDS))
                    lines = [(change.revision, line) for change in changes if (line := _line(change, chosen, form))]
                    if not changes and wants_bookmarks and collection.revision > sent:
                        lines = [(collection.revision, form.bookmark(collection.revision))]
                    if lines:
                        sent = lines[-1][0]
                        await answer.write(b"".join(line for _, line in lines))
            await answer.write_eof()
        return answer

    async def _changes(self, watcher: CollectionWatcher, seconds: float) -> list[CollectionChange]:
        """Return the next changes; none if there are none within `seconds`."""
        alarm = self._clock.call_later(seconds, watcher.wake)
        try:
            return await watcher.next()
        finally:
            alarm.cancel()


def _line(change: CollectionChange, chosen: ObjectSelection, form: ViewRepresentation) -> bytes:
    """Return the watch event for a change; empty if the selection never matched. A match that ends is DELETED."""
    was = change.old is not None and chosen.matches(change.old)
    if change.new is not None and chosen.matches(change.new):
        return form.event("MODIFIED" if was else "ADDED", change.new)
    if not was or change.old is None:
        return b""
    obj = change.old.object
    obj["metadata"]["resourceVersion"] = str(change.revision)
    last = CollectionEntry(change.key, change.revision, orjson.dumps(obj), change.old.digest)
    return form.event("DELETED", last)


def _delete_options(body: object, query: Mapping[str, str]) -> Object:
    options: Object = dict(body) if isinstance(body, dict) else {}
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    return options


def _certificate(request: web.Request) -> bytes | None:
    tls = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    return tls.getpeercert(binary_form=True) if tls is not None else None


def _document(request: web.Request, body: bytes, tag: str) -> web.Response:
    headers = {"Etag": f'"{tag}"', "Cache-Control": "no-cache, private", "Vary": "Accept"}
    if tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=_JSON, headers=headers)


def _json(obj: Object, *, status: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    return _raw(orjson.dumps(obj, option=orjson.OPT_APPEND_NEWLINE), status=status, warnings=warnings)


def _raw(body: bytes, *, status: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    answer = web.Response(status=status, body=body, content_type=_JSON, headers={"Cache-Control": "no-cache, private"})
    _warn(answer, warnings)
    return answer


def _warn(answer: web.StreamResponse, warnings: Sequence[str]) -> None:
    for text in dict.fromkeys(warnings):
        quoted = "".join(char if char.isprintable() else " " for char in text).replace("\\", "\\\\").replace('"', '\\"')
        answer.headers.add("Warning", f'299 - "{quoted}"')


def _status(error: errors.ApiError) -> web.Response:
    answer = _json(error.status, status=error.code)
    if error.retry_after:
        answer.headers["Retry-After"] = str(error.retry_after)
    return answer
