"""Print existing objects, then each change as it happens, until cancelled."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import Protocol

import orjson

from pinnace.cli.kubectl.formats import Printer
from pinnace.cli.kubectl.read import ReadRequest
from pinnace.cli.kubectl.tables import ACCEPT, TablePrinter
from pinnace.cli.session import CommandError
from pinnace.client.client import Client
from pinnace.client.status_errors import error_of_status
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object

JSON = "application/json"


class _Show(Protocol):
    def __call__(self, obj: Object, event: str) -> None: ...


async def watch_requests(
    client: Client,
    requests: list[ReadRequest],
    printer: Printer | TablePrinter,
    *,
    is_table: bool,
    only_changes: bool = False,
    shows_events: bool = False,
) -> None:
    """Show the objects of one kind, then their changes. Start the watch again when the server ends it."""
    if len({request.served for request in requests}) > 1:
        raise CommandError("you may only specify a single resource type")
    if len(requests) > 1:
        raise CommandError("watch is only supported on individual resources and resource collections")
    request = requests[0]
    accept = ACCEPT if is_table else JSON

    def show(obj: Object, event: str) -> None:
        if isinstance(printer, TablePrinter):
            printer.print(obj, event=event if shows_events else "")
        else:
            obj.get("metadata", {}).pop("managedFields", None)
            printer.print({"type": event, "object": obj} if shows_events else obj)
        sys.stdout.flush()

    version = await _show_existing(client, request, accept, show, silent=only_changes)
    selected = _by_name(request)
    while True:
        target = selected.target(watch=True, allowWatchBookmarks=True, resourceVersion=version)
        try:
            version = await _show_changes(client, target, accept, show, version)
        except (errors.Expired, errors.Gone):
            version = await _show_existing(client, request, accept, show, silent=True)
        except ConnectionLost as loss:
            if not loss.was_sent:
                raise


async def _show_existing(client: Client, request: ReadRequest, accept: str, show: _Show, *, silent: bool) -> str:
    """Show the existing objects; return the resourceVersion to watch from."""
    token = ""
    while True:
        answer: Object = orjson.loads(await client.read(request.target(token=token), accept=accept))
        metadata = answer.get("metadata") or {}
        if not silent:
            for obj in answer.get("items", [answer]):
                show(obj, "ADDED")
        token = metadata.get("continue") or ""
        if not token or request.name:
            return metadata.get("resourceVersion") or _version_of_row(answer)


def _version_of_row(table: Object) -> str:
    rows = table.get("rows") or [{}]
    version: str = ((rows[0].get("object") or {}).get("metadata") or {}).get("resourceVersion") or ""
    return version


async def _show_changes(client: Client, target: str, accept: str, show: _Show, version: str) -> str:
    async with aclosing(client.lines(target, accept=accept)) as lines:
        async for line in lines:
            event = orjson.loads(line)
            obj = event["object"]
            version = _version(obj) or version
            if event["type"] == "ERROR":
                raise error_of_status(obj)
            if event["type"] != "BOOKMARK":
                show(obj, event["type"])
    return version


def _version(obj: Object) -> str:
    if obj.get("kind") == "Table":
        return _version_of_row(obj) or (obj.get("metadata") or {}).get("resourceVersion") or ""
    version: str = (obj.get("metadata") or {}).get("resourceVersion") or ""
    return version


def _by_name(request: ReadRequest) -> ReadRequest:
    """Return the watch of the collection that selects one object by name."""
    if not request.name:
        return request
    return ReadRequest(
        served=request.served,
        namespace=request.namespace,
        fields=f"metadata.name={request.name}",
        whole_objects=request.whole_objects,
    )
