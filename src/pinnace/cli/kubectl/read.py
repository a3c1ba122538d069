"""Reads the objects that a command line names: whole objects or Tables, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson

from pinnace.cli.kubectl.documents import Document
from pinnace.cli.kubectl.resource_types import ResourceTypes, parse_resources
from pinnace.cli.kubectl.tables import ACCEPT
from pinnace.cli.progress import progress
from pinnace.cli.session import CommandError
from pinnace.client.client import Client
from pinnace.client.exchange import target_of
from pinnace.client.mapping import ServedKind
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of
from pinnace.schema.golang.text import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The selection of objects on a command line."""

    words: tuple[str, ...] = ()
    documents: tuple[Document, ...] = ()
    all_namespaces: bool = False
    labels: str = ""
    fields: str = ""
    subresource: str = ""
    chunk: int = 500
    whole_objects: bool = False
    """Request the object with each row of a Table, to sort by its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """A request for one object, or for those of a kind that the selectors match."""

    served: ServedKind
    namespace: str
    name: str = ""
    labels: str = ""
    fields: str = ""
    subresource: str = ""
    chunk: int = 500
    whole_objects: bool = False
    source: str = ""
    """The file that names the object, if any."""

    def target(self, *, token: str = "", **more: str | int | bool) -> str:
        path = self.served.path(namespace=self.namespace, name=self.name, subresource=self.subresource)
        wanted = {"labelSelector": self.labels, "fieldSelector": self.fields, "continue": token}
        if self.whole_objects:
            wanted["includeObject"] = "Object"
        limit = None if self.name or not self.chunk or "watch" in more else self.chunk
        return target_of(path, {**wanted, "limit": limit, **more})


def requests_for(types: ResourceTypes, read: Read, namespace: str) -> list[ReadRequest]:
    """Return one request for each named object, else one for each kind. Raise CommandError."""
    if read.documents:
        return [_request_of(types, document, namespace, read) for document in read.documents]
    arguments = parse_resources(types, read.words)
    if any(argument.name for argument in arguments):
        if read.labels or read.fields:
            raise CommandError("name cannot be provided when a selector is specified")
        if read.all_namespaces and any(argument.served.namespaced for argument in arguments):
            raise CommandError("a resource cannot be retrieved by name across all namespaces")
    return [
        ReadRequest(
            served=argument.served,
            namespace="" if read.all_namespaces or not argument.served.namespaced else namespace,
            name=argument.name,
            labels=read.labels,
            fields=read.fields,
            subresource=read.subresource,
            chunk=read.chunk,
            whole_objects=read.whole_objects,
        )
        for argument in arguments
    ]


def _request_of(types: ResourceTypes, document: Document, namespace: str, read: Read) -> ReadRequest:
    obj = document.object
    served = served_for(types, document)
    name = (obj.get("metadata") or {}).get("name")
    if not name:
        raise CommandError("resource name may not be empty")
    where = (obj.get("metadata") or {}).get("namespace") or namespace
    return ReadRequest(
        served=served,
        namespace=where if served.namespaced else "",
        name=name,
        subresource=read.subresource,
        whole_objects=read.whole_objects,
        source=document.source,
    )


def served_for(types: ResourceTypes, document: Document) -> ServedKind:
    """Return the served kind of a document. Raise CommandError, in kubectl's words, if it is not served."""
    kind = kind_of(document.object)
    served = types.find_kind(kind)
    if served is None:
        name = (document.object.get("metadata") or {}).get("name") or ""
        where = (document.object.get("metadata") or {}).get("namespace") or ""
        raise CommandError(
            f"resource mapping not found for name: {quote(name)} namespace: {quote(where)} from "
            f"{quote(document.source)}: no matches for kind {quote(kind.name)} in version "
            f"{quote(kind.api_version)}\nensure CRDs are installed first"
        )
    return served


async def tables(client: Client, request: ReadRequest) -> AsyncIterator[Object]:
    """Yield the answer to a request as Tables, or as whole objects if the server has no Table."""
    token = ""
    while True:
        with progress(f"waiting for the server to answer with {request.served.plural}"):
            table = await _read(client, request, token, ACCEPT)
        yield table
        token = (table.get("metadata") or {}).get("continue") or ""
        if not token or request.name:
            return


async def pages(client: Client, request: ReadRequest) -> AsyncIterator[list[Object]]:
    """Yield the answer to a request as whole objects."""
    token = ""
    while True:
        with progress(f"waiting for the server to answer with {request.served.plural}"):
            answer = await _read(client, request, token, "application/json")
        if request.name:
            yield [answer]
            return
        kind = request.served.kind
        identity = {"apiVersion": kind.api_version, "kind": kind.name}
        yield [{**identity, **item} for item in answer.get("items") or ()]
        token = (answer.get("metadata") or {}).get("continue") or ""
        if not token:
            return


async def _read(client: Client, request: ReadRequest, token: str, accept: str) -> Object:
    try:
        answer: Object = orjson.loads(await client.read(request.target(token=token), accept=accept))
    except errors.BadRequest as error:
        if not request.labels and not request.fields:
            raise
        kind = request.served.kind
        resource = quote(f"{kind.group}/{kind.version}, Resource={request.served.plural}")
        raise errors.BadRequest(
            f"Unable to find {resource} that match label selector {quote(request.labels)}, "
            f"field selector {quote(request.fields)}: {error.message}"
        ) from None
    return answer
