"""The Kubernetes API as Python: every verb on every kind, over HTTP or within the process.

    async with connect() as client:                                  # pinnace.client.connect: the current kubeconfig
        pod = await client.get("v1/Pod", "web", namespace="default")
        async for page in client.pages("apps/v1/Deployment", limit=500):
            ...
        await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {}})

Objects are plain dicts. A kind is named as "apps/v1/Deployment", as a `Kind`, or by its three parts; which URL serves
it is learnt from the server. What the server refuses is raised as one of `pinnace.model.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Self

from pinnace.client.exchange import JSON, JSON_PATCH, Exchange, Parameters, lines_of, no_object, target_of
from pinnace.client.following import Event, Followed, follow
from pinnace.client.mapping import KindMapping, KindName, ServedKind, kind_from
from pinnace.client.refusals import error_of_status
from pinnace.client.retries import Retries
from pinnace.client.snapshots import DecodeError, ListMetadata, Snapshot, decode_event, decode_list, read_snapshot
from pinnace.client.streams import PodStreams
from pinnace.client.transport import Transport
from pinnace.model import errors
from pinnace.model.clock import AlarmClock, SystemClock
from pinnace.model.objects import Key, Kind, Object, key_of, kind_of

SILENCE = 90.0
"""Servers send a bookmark every minute: a watch that is silent for longer hangs on a dead connection."""
PAGE = 500

_METADATA_ONLY = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
_METADATA_ONLY_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": JSON_PATCH,
    "strategic": "application/strategic-merge-patch+json",
}
_APPLY = "application/apply-patch+yaml"

PatchForm = Literal["merge", "json", "strategic"]
Propagation = Literal["Background", "Foreground", "Orphan"]
Objects = list[Object]
Snapshots = list[Snapshot]
WriteListener = Callable[[ServedKind, Key, Object], None]
"""Told of each write that worked: the object as it is now, or the Status that says that it is gone."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, as the whole list was at `version`."""

    items: Objects
    version: str
    token: str = ""
    """Asks for the next page; empty on the last one."""
    remaining: int = 0
    """How many objects are on the pages that follow, where the server knows."""


class Client(PodStreams):
    """One user of one server. Closing it closes its transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str = "default",
        field_manager: str = "pinnace",
        user_agent: str = "",
        clock: AlarmClock | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.namespace = namespace
        """Where namespaced objects are looked for that do not say where they are."""
        self.field_manager = field_manager
        self.clock: AlarmClock = clock or SystemClock()
        self._exchange = Exchange(
            transport,
            clock=self.clock,
            retries=retries or Retries(),
            user_agent=user_agent or field_manager,
        )
        self.kinds = KindMapping(self._exchange.fetch)
        self._listeners: tuple[WriteListener, ...] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._exchange.transport.close()

    def telling(self, listener: WriteListener) -> Self:
        """The same client, which tells somebody of each write that worked."""
        twin = copy(self)
        twin._listeners = (*self._listeners, listener)
        return twin

    # Reading

    async def get(self, kind: KindName, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        """One object. Raises NotFound."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        with self._served_there(served):
            return await self._exchange.fetch(path)

    async def get_or_none(self, kind: KindName, name: str, *, namespace: str = "") -> Object | None:
        """One object, or None if there is none of that name."""
        try:
            return await self.get(kind, name, namespace=namespace)
        except errors.NotFound:
            return None

    async def list(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        metadata_only: bool = False,
    ) -> Objects:
        """The objects of a kind, of all namespaces unless one is given; no more than `limit` if that is given."""
        page = await self.page(
            kind, namespace=namespace, labels=labels, fields=fields, limit=limit, metadata_only=metadata_only
        )
        return page.items

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

    async def send(self, method: str, target: str, body: object = None, *, content_type: str = JSON) -> Object:
        """Any request that changes something, with parameters that the verbs below have no name for."""
        return await self._exchange.write(method, target, body, content_type=content_type)

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
                except DecodeError as problem:
                    raise no_object(line, problem) from problem
                if event.type == "ERROR":
                    raise error_of_status(snapshot.object)
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

    # Writing

    async def create(
        self, obj: Object, *, namespace: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Object:
        """Make an object; it comes back as it was stored. Raises AlreadyExists and Invalid."""
        served = await self.kinds.find(kind_of(obj))
        path = self._path(served, "", namespace or (obj.get("metadata") or {}).get("namespace", ""), "")
        return await self._write("POST", served, path, obj, options=self._options(field_manager, dry_run=dry_run))

    async def create_below(
        self, kind: KindName, name: str, subresource: str, obj: Object, *, namespace: str = ""
    ) -> Object:
        """POST to a subresource of an object: pods/eviction, pods/binding, serviceaccounts/token."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        return await self._write("POST", served, path, obj, options={})

    async def update(
        self, obj: Object, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Object:
        """Replace an object. Raises Conflict if it has changed since it was read: read it again and redo the edit."""
        served = await self.kinds.find(kind_of(obj))
        metadata = obj["metadata"]
        path = self._path(served, metadata["name"], metadata.get("namespace", ""), subresource)
        options = self._options(field_manager, dry_run=dry_run)
        return await self._write("PUT", served, path, obj, options=options)

    async def update_status(self, obj: Object, *, field_manager: str = "") -> Object:
        """Replace an object's status; what else differs is ignored."""
        return await self.update(obj, subresource="status", field_manager=field_manager)

    async def patch(
        self,
        kind: KindName,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        form: PatchForm = "merge",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Change a part of an object: with a merge patch, with the operations of a JSON patch, or strategically."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        options = self._options(field_manager, dry_run=dry_run)
        return await self._write("PATCH", served, path, patch, options=options, content_type=_PATCHES[form])

    async def apply(
        self,
        obj: Object,
        *,
        field_manager: str = "",
        force: bool = False,
        subresource: str = "",
        namespace: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: say what fields are to be, and own them; made if it is not there.

        Raises ApplyConflict if another manager owns one of them with another value; `force` takes them over.
        """
        served = await self.kinds.find(kind_of(obj))
        metadata = obj["metadata"]
        path = self._path(served, metadata["name"], namespace or metadata.get("namespace", ""), subresource)
        options: Parameters = {**self._options(field_manager, dry_run=dry_run), "force": force}
        return await self._write("PATCH", served, path, obj, options=options, content_type=_APPLY)

    async def delete(
        self,
        kind: KindName,
        name: str,
        *,
        namespace: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        uid: str = "",
        version: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Delete an object. Raises NotFound, and Conflict if it has not this `uid` or `version`.

        The answer is a Status, or the object if it stays for now: for its finalizers, or to stop gracefully.
        """
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, "")
        body = _delete_options(propagation, grace_seconds, uid, version)
        options = {"dryRun": _dry(dry_run)}
        answer = await self._write("DELETE", served, path, body, options=options)
        if answer.get("kind") == "Status" and not dry_run:
            where = namespace or self.namespace if served.namespaced else ""
            self._tell(served, Key(where, name), answer)
        return answer

    async def delete_collection(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete every object of a kind, or those of one namespace, that the selectors choose."""
        served = await self.kinds.find(kind)
        parameters = {"labelSelector": labels, "fieldSelector": fields}
        body = _delete_options(propagation, grace_seconds, "", "")
        target = target_of(served.path(namespace=namespace), parameters)
        with self._served_there(served):
            await self._exchange.write("DELETE", target, body)

    async def scale(self, kind: KindName, name: str, replicas: int, *, namespace: str = "") -> Object:
        """Set how many replicas are wanted, through /scale."""
        patch = {"spec": {"replicas": replicas}}
        return await self.patch(kind, name, patch, namespace=namespace, subresource="scale")

    # What the verbs share

    def _path(self, served: ServedKind, name: str, namespace: str, subresource: str) -> str:
        return served.path(namespace=namespace or self.namespace, name=name, subresource=subresource)

    def _options(self, field_manager: str, *, dry_run: bool) -> dict[str, str]:
        return {"fieldManager": field_manager or self.field_manager, "dryRun": _dry(dry_run)}

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
        except DecodeError as problem:
            raise no_object(body, problem) from problem

    async def _write(
        self,
        method: str,
        served: ServedKind,
        path: str,
        body: object,
        *,
        options: Parameters,
        content_type: str = JSON,
    ) -> Object:
        with self._served_there(served):
            answer = await self._exchange.write(method, target_of(path, options), body, content_type=content_type)
        # A Scale or a token comes back from a subresource, and a review has no name: nothing that a listener knows.
        if (
            answer.get("kind") == served.kind.name
            and (answer.get("metadata") or {}).get("name")
            and not options.get("dryRun")
        ):
            self._tell(served, key_of(answer), answer)
        return answer

    def _tell(self, served: ServedKind, key: Key, answer: Object) -> None:
        for listener in self._listeners:
            listener(served, key, answer)

    @contextmanager
    def _served_there(self, served: ServedKind) -> Iterator[None]:
        """A URL that serves nothing any more is forgotten: its definition may come back under another."""
        try:
            yield
        except errors.NoSuchPath:
            self.kinds.forget(served.kind)
            raise


class _Following:
    """The reads of one kind and selection, as `follow` needs them."""

    def __init__(
        self, client: Client, kind: Kind, namespace: str, labels: str, fields: str, *, metadata_only: bool
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


def _dry(dry_run: bool) -> str:
    return "All" if dry_run else ""


def _delete_options(
    propagation: Propagation | None, grace_seconds: int | None, uid: str, version: str
) -> Object | None:
    body: Object = {}
    if propagation is not None:
        body["propagationPolicy"] = propagation
    if grace_seconds is not None:
        body["gracePeriodSeconds"] = grace_seconds
    preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}
    if preconditions:
        body["preconditions"] = preconditions
    return {"kind": "DeleteOptions", "apiVersion": "v1", **body} if body else None
