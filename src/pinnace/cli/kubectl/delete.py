"""`pinnace delete`: delete objects, and wait until they are gone."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pinnace.cli.flags.shared import AllNamespaces, Context, Fields, Files, Kubeconfig, Labels, Namespace, Recursive
from pinnace.cli.flags.values import seconds_of
from pinnace.cli.kubectl.apply import MARKS
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.kubectl.read import Read, ReadRequest, pages, requests_for
from pinnace.cli.kubectl.resource_types import ResourceTypes, of_object
from pinnace.cli.progress import progress
from pinnace.cli.session import CommandError, converse, failing_with, raise_all
from pinnace.client.client import Client, Propagation
from pinnace.client.following import Event, Synced
from pinnace.client.mapping import ServedKind
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote

_CASCADES: dict[str, Propagation] = {
    "background": "Background",
    "foreground": "Foreground",
    "orphan": "Orphan",
    "true": "Background",
    "false": "Orphan",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deletion:
    """The options of a deletion."""

    propagation: Propagation
    grace_seconds: int | None
    dry_run: str
    ignores_missing: bool
    waits: bool
    timeout: float
    shows_names: bool


def delete(
    resources: Annotated[list[str] | None, typer.Argument(metavar="TYPE [NAME...] | TYPE/NAME...")] = None,
    filename: Files = None,
    recursive: Recursive = False,
    selector: Labels = "",
    field_selector: Fields = "",
    every: Annotated[bool, typer.Option("--all", help="All objects of the kind.")] = False,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    ignore_not_found: Annotated[bool, typer.Option("--ignore-not-found", help="Missing objects are no error.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are gone.")] = True,
    timeout: Annotated[str, typer.Option(help="The longest wait: 30s, 5m; 0s for ever.")] = "0s",
    grace_period: Annotated[
        int, typer.Option(help="Seconds to stop gracefully; 1 for at once; -1 for the object's own.")
    ] = -1,
    now: Annotated[bool, typer.Option("--now", help="The same as --grace-period=1.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --grace-period=0: do not wait for the node to stop it.")
    ] = False,
    cascade: Annotated[
        str, typer.Option(help="Delete dependents in the background, in the foreground (first), or orphan them.")
    ] = "background",
    dry_run: Annotated[
        str, typer.Option("--dry-run", help="none, client or server: print what would be deleted.")
    ] = "none",
    output: Annotated[str, typer.Option("-o", "--output", help="name: print only names.", show_default=False)] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Delete objects, and wait until they are gone.

    \b
    Examples:
      pinnace delete -f website.yaml                the objects of a file
      pinnace delete pod web                        one object
      pinnace delete pod/web svc/web                two
      pinnace delete pods -l app=web                by label
      pinnace delete cm --all --wait=false          all of the namespace, without waiting
      pinnace delete deploy web --cascade=orphan    its pods keep running
    """
    if cascade not in _CASCADES:
        failing_with(
            1,
            f'error: invalid cascade value ({cascade}). Must be "background", "foreground", or "orphan"',
        )
    if dry_run not in MARKS:
        failing_with(1, f'error: Invalid dry-run value ({dry_run}). Must be "none", "server", or "client".')
    if every and (selector or field_selector):
        failing_with(
            1, f"error: cannot set --all and --{'selector' if selector else 'field-selector'} at the same time"
        )
    if output not in ("", "name"):
        failing_with(1, f"error: unexpected -o output mode: {output}. We only support '-o name'")
    grace = _grace(grace_period, now=now, force=force)
    try:
        timeout_seconds = seconds_of(timeout)
    except ValueError as error:
        failing_with(1, f'error: invalid argument "{timeout}" for "--timeout" flag: {error}')
    how = _Deletion(
        propagation=_CASCADES[cascade],
        grace_seconds=grace,
        dry_run=dry_run,
        ignores_missing=ignore_not_found or every or bool(selector or field_selector),
        waits=wait and dry_run == "none",
        timeout=timeout_seconds,
        shows_names=output == "name",
    )
    read = Read(words=tuple(resources or ()), all_namespaces=all_namespaces, labels=selector, fields=field_selector)

    words = read.words
    if every and not filename and not words:
        failing_with(1, "error: at least one resource must be specified to use a selector")
    if every and any("/" in word for word in words):
        failing_with(1, "error: selectors and the all flag cannot be used when passing resource/name arguments")
    if every and len(words) > 1:
        failing_with(1, "error: name cannot be provided when a selector is specified")

    async def talk(client: Client) -> None:
        requests = await _requests(client, read, filename or [], recursive, every)
        await _delete(client, requests, how)

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


def _grace(seconds: int, *, now: bool, force: bool) -> int | None:
    if now and seconds != -1:
        failing_with(1, "error: --now and --grace-period cannot be specified together")
    if force and seconds > 0:
        failing_with(1, "error: --force and --grace-period greater than 0 cannot be specified together")
    if force:
        print(
            "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. "
            "The resource may continue to run on the cluster indefinitely.",
            file=sys.stderr,
        )
        return 0
    if now or seconds == 0:
        return 1  # A deletion without confirmation by the node is dangerous: it needs --force.
    return seconds if seconds > 0 else None


async def _requests(client: Client, read: Read, files: list[str], recursive: bool, every: bool) -> list[ReadRequest]:
    if files and read.words:
        raise CommandError(
            "when paths, URLs, or stdin is provided as input, you may not specify a resource by arguments as well"
        )
    if files:
        read = Read(documents=tuple(read_documents(files, recursive=recursive)))
    if not files and not read.words:
        raise CommandError(
            "You must provide one or more resources by argument or filename.\n"
            "Example resource specifications include:\n"
            "   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'"
        )
    types = await ResourceTypes.load(client)
    requests = requests_for(types, read, client.namespace)
    if not every and not read.labels and not read.fields and any(not request.name for request in requests):
        raise CommandError("resource(s) were provided, but no name was specified")
    return requests


async def _delete(client: Client, requests: list[ReadRequest], how: _Deletion) -> None:
    failures: list[Exception] = []
    gone: list[tuple[ServedKind, str, str, str]] = []
    count = 0
    for request in requests:
        try:
            names = [(request.namespace, request.name)] if request.name else await _names(client, request)
        except errors.ApiError as error:
            failures.append(error)
            continue
        for namespace, name in names:
            count += 1
            try:
                uid = await _delete_one(client, request.served, namespace, name, how)
            except errors.ApiError as error:
                if not (how.ignores_missing and isinstance(error, errors.NotFound)):
                    failures.append(_from_file(error, request))
                continue
            gone.append((request.served, namespace, name, uid))
    raise_all(failures)
    if not count:
        print("No resources found")
    elif how.waits:
        await _wait(client, gone, how.timeout)


def _from_file(error: errors.ApiError, request: ReadRequest) -> errors.ApiError:
    if request.source:
        error.message = f"error when deleting {quote(request.source)}: {error.message}"
    return error


async def _names(client: Client, request: ReadRequest) -> list[tuple[str, str]]:
    names = []
    async for page in pages(client, request):
        names += [(item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in page]
    return names


async def _delete_one(client: Client, served: ServedKind, namespace: str, name: str, how: _Deletion) -> str:
    """Delete one object and print that; return its uid, to recognize another object that takes its name."""
    answer: Object = {}
    if how.dry_run == "client":
        await client.get(served.kind, name, namespace=namespace)
    else:
        answer = await client.delete(
            served.kind,
            name,
            namespace=namespace,
            propagation=how.propagation,
            grace_seconds=how.grace_seconds,
            dry_run=how.dry_run == "server",
        )
    kind = of_object(served.kind)
    if how.shows_names:
        print(f"{kind}/{name}")
    else:
        verb = "force deleted" if how.grace_seconds == 0 else "deleted"
        where = f" from {namespace} namespace" if served.namespaced else ""
        print(f"{kind} {quote(name)} {verb}{where}{MARKS[how.dry_run]}", flush=True)
    details: Any = answer.get("details") or answer.get("metadata") or {}
    return str(details.get("uid") or "")


async def _wait(client: Client, gone: list[tuple[ServedKind, str, str, str]], timeout: float) -> None:
    for served, namespace, name, uid in gone:
        try:
            async with asyncio.timeout(timeout or None):
                with progress(
                    f"waiting until {of_object(served.kind)}/{name} is gone: its finalizers are not done yet"
                ):
                    await _until_gone(client, served, namespace, name, uid)
        except TimeoutError:
            raise CommandError(f"timed out waiting for the condition on {served.plural}/{name}") from None
        except (errors.Forbidden, errors.MethodNotAllowed):
            continue  # A user who may delete but not read cannot wait.


async def _until_gone(client: Client, served: ServedKind, namespace: str, name: str, uid: str) -> None:
    try:
        stored = await client.get(served.kind, name, namespace=namespace)
    except (errors.NotFound, errors.NoSuchPath):
        return
    if uid and stored["metadata"].get("uid") != uid:
        return
    watched = client.follow(served.kind, namespace=namespace, fields=f"metadata.name={name}")
    async with aclosing(watched) as events:
        there = False
        async for event in events:
            if isinstance(event, Event):
                there = event.type != "DELETED" and (not uid or event.snapshot.metadata.get("uid") == uid)
                if event.type == "DELETED":
                    return
            elif isinstance(event, Synced) and not there:
                return
