"""The verbs of a client that read: objects one by one, in lists and pages, and as they change."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack, overload

from pinnace.client.exchange import JSON, Parameters, decode_object, lines_of, no_object, parts_of, target_of
from pinnace.client.following import Event, Followed, Source, follow
from pinnace.client.mapping import Addressing, KindName, ServedKind, kind_from
from pinnace.client.snapshots import (
    DecodeError,
    ListMetadata,
    Snapshot,
    decode_event,
    decode_list,
    read_snapshot,
    shared_snapshot,
)
from pinnace.client.typed import Resource, Unfit, typed, typed_list
from pinnace.model import errors
from pinnace.model.errors import error_of_status
from pinnace.model.objects import Object, ObjectEvent
from pinnace.model.selectors import LabelsLike, selector_text
from pinnace.process.clock import AlarmClock
from pinnace.process.work_slices import DECODING, in_turns

SILENCE = 90.0
"""Servers send a bookmark every minute: a watch that is silent for longer has lost its connection."""
PAGE = 500

_METADATA_ONLY = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
_METADATA_ONLY_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
Objects = list[Object]
Snapshots = list[Snapshot]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, which is consistent at `version`."""

    items: Objects
    version: str
    token: str = ""
    """The continue token of the next page; empty on the last one."""
    remaining: int = 0
    """The number of objects on the following pages, if the server knows it."""


class Selection(TypedDict, total=False):
    """The objects of a kind to read: all of them by default."""

    namespace: str
    labels: str
    fields: str
    metadata_only: bool


class Reading(Addressing):
    """The reading part of a `Client`. A kind may be a class: then objects are its instances instead of dicts."""

    clock: AlarmClock

    @overload
    async def get(self, kind: type[Resource], name: str, *, namespace: str = "", subresource: str = "") -> Resource: ...
    @overload
    async def get(self, kind: KindName, name: str, *, namespace: str = "", subresource: str = "") -> Object: ...
    async def get(self, kind: Any, name: str, *, namespace: str = "", subresource: str = "") -> Any:
        """Return one object, or a subresource as a dict. Raise NotFound."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        with self._forgetting_if_missing(served):
            obj = await self._exchange.fetch(path)
        return typed(kind, obj) if obj.get("kind") == served.kind.name else obj

    @overload
    async def get_or_none(self, kind: type[Resource], name: str, *, namespace: str = "") -> Resource | None: ...
    @overload
    async def get_or_none(self, kind: KindName, name: str, *, namespace: str = "") -> Object | None: ...
    async def get_or_none(self, kind: Any, name: str, *, namespace: str = "") -> Any:
        """Return one object, or None if there is none of that name."""
        try:
            return await self.get(kind, name, namespace=namespace)
        except errors.NotFound:
            return None

    @overload
    async def list(
        self,
        kind: type[Resource],
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        unfit: Literal["skip", "raise"] = "skip",
    ) -> builtins.list[Resource]: ...
    @overload
    async def list(
        self,
        kind: type[Resource],
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        unfit: Literal["raw"],
    ) -> builtins.list[Resource | Object]: ...
    @overload
    async def list(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        metadata_only: bool = False,
    ) -> Objects: ...
    async def list(
        self,
        kind: Any,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        metadata_only: bool = False,
        unfit: Unfit = "skip",
    ) -> builtins.list[Any]:
        """Return the objects of a kind, of all namespaces unless one is given; at most `limit` if that is given.

        An object that does not fit the class is logged and skipped; `unfit` keeps it as a dict or raises instead.
        """
        page = await self.page(
            kind, namespace=namespace, labels=labels, fields=fields, limit=limit, metadata_only=metadata_only
        )
        return typed_list(kind, page.items, unfit=unfit)

    @overload
    def each(
        self, kind: type[Resource], *, namespace: str = "", labels: LabelsLike = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Resource, None]: ...
    @overload
    def each(
        self, kind: KindName, *, namespace: str = "", labels: LabelsLike = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Object, None]: ...
    async def each(
        self, kind: Any, *, namespace: str = "", labels: LabelsLike = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Any, None]:
        """Yield the objects of a kind, read `limit` at a time: for lists that are too large for memory.

        An object that does not fit the class is logged and skipped.
        """
        pages = self.pages(kind, namespace=namespace, labels=labels, fields=fields, limit=limit)
        async with aclosing(pages):
            async for page in pages:
                for obj in typed_list(kind, page.items):
                    yield obj

    async def page(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
        metadata_only: bool = False,
    ) -> Page:
        """Return a list with its version, or the page that `token` names."""
        parameters: Parameters = {
            "labelSelector": selector_text(labels),
            "fieldSelector": fields,
            "limit": limit or None,
            "continue": token,
        }
        served = await self.kinds.find(kind)
        snapshots, metadata = await self._list(served, namespace, parameters, metadata_only=metadata_only)
        items = [snapshot.object async for some in in_turns(snapshots, cost=DECODING) for snapshot in some]
        return Page(items, metadata.resourceVersion, metadata.token, metadata.remainingItemCount)

    async def pages(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = PAGE,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Page, None]:
        """Yield a list, page by page, all of one version. Raise Expired if the server has compacted that version."""
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
        self, kind: KindName, *, shards: str = "", **selection: Unpack[Selection]
    ) -> AsyncGenerator[tuple[Snapshots, str], None]:
        """Yield the pages of a list, with objects left encoded, and the version of the list.

        `shards` is a shard selector, which servers without the feature gate ShardedListAndWatch ignore.
        """
        served = await self.kinds.find(kind)
        metadata_only = selection.get("metadata_only", False)
        token = ""
        while True:
            parameters: Parameters = {
                "labelSelector": selector_text(selection.get("labels", "")),
                "fieldSelector": selection.get("fields"),
                "shardSelector": shards,
                "limit": PAGE,
                "continue": token,
            }
            namespace = selection.get("namespace", "")
            snapshots, metadata = await self._list(served, namespace, parameters, metadata_only=metadata_only)
            yield snapshots, metadata.resourceVersion
            token = metadata.token
            if not token:
                return

    async def read(self, target: str, *, accept: str = "*/*") -> bytes:
        """Return the body of any page: /version, /openapi/v3, a Table. `target` is the path with its query."""
        return await self._exchange.read(target, accept=accept)

    async def lines(self, target: str, *, accept: str = "*/*", silence: float = SILENCE) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a stream as they arrive, such as a watch whose objects are Tables. Close it when done."""
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
        version: str = "",
        initial: bool = False,
        seconds: int | None = None,
        shards: str = "",
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[Event, None]:
        """Yield the changes after `version`, over one connection, until the server ends it. `follow` resumes instead.

        With `initial` existing objects come first, then a bookmark. Raise Expired if the server no longer has the
        changes since `version`, MethodNotAllowed if the kind cannot be watched, and ConnectionLost.
        """
        served = await self.kinds.find(kind)
        if served.verbs and "watch" not in served.verbs:
            raise errors.MethodNotAllowed("watch", group=served.kind.group, plural=served.plural)
        parameters: Parameters = {
            "watch": True,
            "allowWatchBookmarks": True,
            "labelSelector": selector_text(selection.get("labels", "")),
            "fieldSelector": selection.get("fields"),
            "shardSelector": shards,
            "resourceVersion": version,
            "sendInitialEvents": initial,
            "resourceVersionMatch": "NotOlderThan" if initial else "",
            "timeoutSeconds": seconds,
        }
        target = target_of(served.path(namespace=selection.get("namespace", "")), parameters)
        accept = _METADATA_ONLY if selection.get("metadata_only") else JSON
        namespaces: dict[str, str] = {}
        async with (
            self._exchange.watch(target, accept=accept, silence=SILENCE) as stream,
            aclosing(parts_of(stream)) as parts,
        ):
            async for line in parts:
                if isinstance(line, ObjectEvent):
                    yield Event(line.type, shared_snapshot(line, namespaces))
                    del line  # It may be large, and the next event may be long in coming.
                    continue
                try:
                    event = decode_event(line)
                    snapshot = read_snapshot(event.object, served.kind, namespaces)
                except (DecodeError, UnicodeDecodeError) as error:
                    raise no_object(line, error) from error
                if event.type == "ERROR":
                    raise error_of_status(decode_object(snapshot.body))
                yield Event(event.type, snapshot)
                del line, event, snapshot

    def follow(
        self, kind: KindName, *, nudge: asyncio.Event | None = None, shards: str = "", **selection: Unpack[Selection]
    ) -> AsyncGenerator[Followed, None]:
        """Yield everything that exists, then every change, through lost connections, restarts and expired versions.

        Close the generator (`contextlib.aclosing`) when done. `following.Followed` lists the events. Setting `nudge`
        ends a delay before the next attempt.
        """
        known = kind_from(kind)
        source = Source(
            lambda version, initial, seconds: self.watch(
                known, version=version, initial=initial, seconds=seconds, shards=shards, **selection
            ),
            lambda: self.snapshots(known, shards=shards, **selection),
            lambda: self.kinds.forget(known),
        )
        return follow(source, clock=self.clock, nudge=nudge)

    @overload
    def changes(
        self, kind: type[Resource], *, namespace: str = "", labels: LabelsLike = "", fields: str = ""
    ) -> AsyncGenerator[tuple[str, Resource], None]: ...
    @overload
    def changes(
        self, kind: KindName, *, namespace: str = "", labels: LabelsLike = "", fields: str = ""
    ) -> AsyncGenerator[tuple[str, Object], None]: ...
    async def changes(
        self, kind: Any, *, namespace: str = "", labels: LabelsLike = "", fields: str = ""
    ) -> AsyncGenerator[tuple[str, Any], None]:
        """Yield every existing object as ADDED, then every change as ADDED, MODIFIED or DELETED, until closed.

        It is `follow` without the events that only caches need. After a lost watch existing objects may come again,
        and deletions during the gap are not reported: reconcilers, which read the current state, need neither.
        """
        followed = self.follow(kind, namespace=namespace, labels=selector_text(labels), fields=fields)
        async with aclosing(followed):
            async for event in followed:
                if isinstance(event, Event) and event.type != "BOOKMARK":
                    yield event.type, typed(kind, event.snapshot.object)

    async def _list(
        self, served: ServedKind, namespace: str, parameters: Parameters, *, metadata_only: bool
    ) -> tuple[Snapshots, ListMetadata]:
        accept = _METADATA_ONLY_LIST if metadata_only else JSON
        with self._forgetting_if_missing(served):
            body = await self._exchange.read(target_of(served.path(namespace=namespace), parameters), accept=accept)
        namespaces: dict[str, str] = {}
        try:
            answer = decode_list(body)
            return [
                read_snapshot(raw, served.kind, namespaces)
                async for some in in_turns(answer.items or (), cost=DECODING)
                for raw in some
            ], answer.metadata
        except (DecodeError, UnicodeDecodeError) as error:
            raise no_object(body, error) from error
