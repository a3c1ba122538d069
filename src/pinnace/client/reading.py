"""The verbs of a client that read: objects one by one, in lists and pages, and as they change."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, overload

from pinnace.client.addressing import Addressing
from pinnace.client.exchange import JSON, Parameters, decode_object, lines_of, no_object, target_of
from pinnace.client.following import Event, Followed, follow
from pinnace.client.mapping import KindName, ServedKind, kind_from
from pinnace.client.refusals import error_of_status
from pinnace.client.snapshots import DecodeError, ListMetadata, Snapshot, decode_event, decode_list, read_snapshot
from pinnace.client.typed import Resource, typed
from pinnace.model import errors
from pinnace.model.clock import AlarmClock
from pinnace.model.objects import Kind, Object

SILENCE = 90.0
"""Servers send a bookmark every minute: a watch that is silent for longer hangs on a dead connection."""
PAGE = 500

_METADATA_ONLY = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
_METADATA_ONLY_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
Objects = list[Object]
Snapshots = list[Snapshot]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, as the whole list was at `version`."""

    items: Objects
    version: str
    token: str = ""
    """Asks for the next page; empty on the last one."""
    remaining: int = 0
    """How many objects are on the pages that follow, where the server knows."""


class Reading(Addressing):
    """The part of a `Client` that changes nothing. A kind may be a class: its instances come, instead of dicts."""

    clock: AlarmClock

    @overload
    async def get(self, kind: type[Resource], name: str, *, namespace: str = "", subresource: str = "") -> Resource: ...
    @overload
    async def get(self, kind: KindName, name: str, *, namespace: str = "", subresource: str = "") -> Object: ...
    async def get(self, kind: Any, name: str, *, namespace: str = "", subresource: str = "") -> Any:
        """One object. Raises NotFound. What is below it comes as a dict."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        with self._served_there(served):
            found = await self._exchange.fetch(path)
        return typed(kind, found) if found.get("kind") == served.kind.name else found

    @overload
    async def get_or_none(self, kind: type[Resource], name: str, *, namespace: str = "") -> Resource | None: ...
    @overload
    async def get_or_none(self, kind: KindName, name: str, *, namespace: str = "") -> Object | None: ...
    async def get_or_none(self, kind: Any, name: str, *, namespace: str = "") -> Any:
        """One object, or None if there is none of that name."""
        try:
            return await self.get(kind, name, namespace=namespace)
        except errors.NotFound:
            return None

    @overload
    async def list(
        self, kind: type[Resource], *, namespace: str = "", labels: str = "", fields: str = "", limit: int = 0
    ) -> builtins.list[Resource]: ...
    @overload
    async def list(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        metadata_only: bool = False,
    ) -> Objects: ...
    async def list(
        self,
        kind: Any,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        metadata_only: bool = False,
    ) -> builtins.list[Any]:
        """The objects of a kind, of all namespaces unless one is given; no more than `limit` if that is given."""
        page = await self.page(
            kind, namespace=namespace, labels=labels, fields=fields, limit=limit, metadata_only=metadata_only
        )
        return [typed(kind, obj) for obj in page.items]

    @overload
    def each(
        self, kind: type[Resource], *, namespace: str = "", labels: str = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Resource, None]: ...
    @overload
    def each(
        self, kind: KindName, *, namespace: str = "", labels: str = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Object, None]: ...
    async def each(
        self, kind: Any, *, namespace: str = "", labels: str = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Any, None]:
        """The same one by one, read `limit` at a time: for more than should be in memory at once."""
        pages = self.pages(kind, namespace=namespace, labels=labels, fields=fields, limit=limit)
        async with aclosing(pages):
            async for page in pages:
                for obj in page.items:
                    yield typed(kind, obj)

    async def page(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
        metadata_only: bool = False,
    ) -> Page:
        """A list with its version, or the part of it that `token` asks for."""
        parameters = {"labelSelector": labels, "fieldSelector": fields, "limit": limit or None, "continue": token}
        served = await self.kinds.find(kind)
        snapshots, metadata = await self._list(served, namespace, parameters, metadata_only=metadata_only)
        items = [snapshot.object for snapshot in snapshots]
        return Page(items, metadata.resourceVersion, metadata.token, metadata.remainingItemCount)

    async def pages(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Page, None]:
        """A list, page by page, all of one version. Raises Expired if reading took longer than the server remembers."""
        token = ""
        while True:
            page = await self.page(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                limit=limit,
                token=token,
                metadata_only=metadata_only,
            )
            yield page
            token = page.token
            if not token:
                return

    async def snapshots(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[tuple[Snapshots, str], None]:
        """A list as `pages` gives it, its objects left encoded; with each page the version of the list."""
        served = await self.kinds.find(kind)
        token = ""
        while True:
            parameters: Parameters = {
                "labelSelector": labels,
                "fieldSelector": fields,
                "limit": PAGE,
                "continue": token,
            }
            snapshots, metadata = await self._list(served, namespace, parameters, metadata_only=metadata_only)
            yield snapshots, metadata.resourceVersion
            token = metadata.token
            if not token:
                return

    async def read(self, target: str, *, accept: str = "*/*") -> bytes:
        """Any page that is no object: /version, /openapi/v3, a Table. `target` is the path with its query."""
        return await self._exchange.read(target, accept=accept)

    async def lines(self, target: str, *, accept: str = "*/*", silence: float = SILENCE) -> AsyncGenerator[bytes, None]:
        """The lines of a page that goes on, as they come: a watch whose objects are Tables. Close it when done."""
        async with (
            self._exchange.stream(target, accept=accept, silence=silence) as stream,
            aclosing(lines_of(stream)) as lines,
        ):
            async for line in lines:
                yield line

    async def watch(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        version: str = "",
        initial: bool = False,
        seconds: int | None = None,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """What happens after `version`, over one connection, until the server ends it. For one that goes on, `follow`.

        With `initial` all that exists comes first, then a bookmark. Raises Expired if the server has forgotten what
        happened since, MethodNotAllowed where the kind cannot be watched, and ConnectionLost.
        """
        served = await self.kinds.find(kind)
        if served.verbs and "watch" not in served.verbs:
            raise errors.MethodNotAllowed("watch", group=served.kind.group, plural=served.plural)
        parameters: Parameters = {
            "watch": True,
            "allowWatchBookmarks": True,
            "labelSelector": labels,
            "fieldSelector": fields,
            "resourceVersion": version,
            "sendInitialEvents": initial,
            "resourceVersionMatch": "NotOlderThan" if initial else "",
            "timeoutSeconds": seconds,
        }
        target = target_of(served.path(namespace=namespace), parameters)
        accept = _METADATA_ONLY if metadata_only else JSON
        namespaces: dict[str, str] = {}
        async with (
            self._exchange.stream(target, accept=accept, silence=SILENCE) as stream,
            aclosing(lines_of(stream)) as lines,
        ):
            async for line in lines:
                try:
                    event = decode_event(line)
                    snapshot = read_snapshot(event.object, served.kind, namespaces)
                except DecodeError as error:
                    raise no_object(line, error) from error
                if event.type == "ERROR":
                    raise error_of_status(decode_object(snapshot.body))
                yield Event(event.type, snapshot)

    def follow(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        nudge: asyncio.Event | None = None,
    ) -> AsyncGenerator[Followed, None]:
        """All that exists, then all that happens, for ever: through lost connections, restarts and expired versions.

        It is a generator: close it (`contextlib.aclosing`) when done. `following.Followed` says what comes. Where it
        waits before it tries again, `nudge` makes it try at once.
        """
        source = _Following(self, kind_from(kind), namespace, labels, fields, metadata_only=metadata_only)
        return follow(source, clock=self.clock, nudge=nudge)

    @overload
    def changes(
        self, kind: type[Resource], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncGenerator[tuple[str, Resource], None]: ...
    @overload
    def changes(
        self, kind: KindName, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncGenerator[tuple[str, Object], None]: ...
    async def changes(
        self, kind: Any, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncGenerator[tuple[str, Any], None]:
        """All that exist as ADDED, then what happens, for ever: ADDED, MODIFIED or DELETED, with the object.

        `follow` without what only caches need. After a watch was lost those that exist may come again, and what went
        meanwhile is not told: a reconciler, which looks at how things are, minds neither. Close it when done.
        """
        followed = self.follow(kind, namespace=namespace, labels=labels, fields=fields)
        async with aclosing(followed):
            async for told in followed:
                if isinstance(told, Event) and told.type != "BOOKMARK":
                    yield told.type, typed(kind, told.snapshot.object)

    async def _list(
        self, served: ServedKind, namespace: str, parameters: Parameters, *, metadata_only: bool
    ) -> tuple[Snapshots, ListMetadata]:
        accept = _METADATA_ONLY_LIST if metadata_only else JSON
        with self._served_there(served):
            body = await self._exchange.read(target_of(served.path(namespace=namespace), parameters), accept=accept)
        namespaces: dict[str, str] = {}
        try:
            answer = decode_list(body)
            return [read_snapshot(raw, served.kind, namespaces) for raw in answer.items or ()], answer.metadata
        except DecodeError as error:
            raise no_object(body, error) from error


class _Following:
    """The reads of one kind and selection, as `follow` needs them."""

    def __init__(
        self, client: Reading, kind: Kind, namespace: str, labels: str, fields: str, *, metadata_only: bool
    ) -> None:
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._metadata_only = metadata_only

    def watch(self, *, version: str, initial: bool, seconds: int) -> AsyncGenerator[Event, None]:
        return self._client.watch(
            self._kind,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            version=version,
            initial=initial,
            seconds=seconds,
            metadata_only=self._metadata_only,
        )

    def everything(self) -> AsyncIterator[tuple[list[Snapshot], str]]:
        return self._client.snapshots(
            self._kind,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            metadata_only=self._metadata_only,
        )

    def forget(self) -> None:
        self._client.kinds.forget(self._kind)
