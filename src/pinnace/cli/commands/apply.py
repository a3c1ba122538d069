"""`pinnace apply`: apply the objects in files."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from pinnace.cli.flags import Context, Files, Kubeconfig, Labels, Namespace, Recursive
from pinnace.cli.kubectl.apply import ClientSide, ServerSide
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.kubectl.formats import Printer, name_of
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.session import CommandError, converse, failing_with, raise_all
from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.selectors import label_selector

MARKS = {"none": "", "client": " (dry run)", "server": " (server dry run)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    files: tuple[str, ...]
    recursive: bool
    dry_run: str
    output: str
    labels: str
    only_namespace: str


def apply(
    filename: Files = None,
    recursive: Recursive = False,
    server_side: Annotated[bool, typer.Option("--server-side", help="Let the server merge, field by field.")] = False,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="With --server-side, take over fields that others manage.")
    ] = False,
    field_manager: Annotated[str, typer.Option(help="The name of the field manager.", show_default="as kubectl")] = "",
    dry_run: Annotated[
        str, typer.Option("--dry-run", help="none, client (send no write to the server) or server.")
    ] = "none",
    validate: Annotated[
        str, typer.Option(help="strict: reject unknown fields; warn; ignore.", show_default="strict")
    ] = "strict",
    output: Annotated[str, typer.Option("-o", "--output", help="name, json, yaml, ...", show_default=False)] = "",
    selector: Labels = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Apply the objects in files. Missing objects are created.

    An annotation keeps the last applied configuration: fields that are no longer in the file are removed, and fields
    that others have set stay, exactly as with kubectl. Both commands can be used in turn.

    \b
    Examples:
      pinnace apply -f website.yaml
      pinnace apply -f deploy/ -R                   all .yaml, .yml and .json files, at any depth
      cat website.yaml | pinnace apply -f -
      pinnace apply -f website.yaml --dry-run=server    validate it without storing it
      pinnace apply -f website.yaml --server-side       the server merges and reports conflicts
    """
    if not filename:
        failing_with(1, "error: must specify one of -f and -k")
    if dry_run not in MARKS:
        failing_with(1, f'error: Invalid dry-run value ({dry_run}). Must be "none", "server", or "client".')
    if server_side and dry_run == "client":
        failing_with(
            1, "error: --dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)"
        )
    if force_conflicts and not server_side:
        failing_with(1, "error: --force-conflicts only works with --server-side")
    validation = {"strict": "Strict", "true": "Strict", "warn": "Warn", "ignore": "Ignore", "false": "Ignore"}
    if validate not in validation:
        failing_with(1, f'error: invalid - validate option "{validate}"')
    wanted = _Wanted(
        files=tuple(filename),
        recursive=recursive,
        dry_run=dry_run,
        output=output,
        labels=selector,
        only_namespace=namespace,
    )

    async def talk(client: Client) -> None:
        how: ClientSide | ServerSide
        if server_side:
            how = ServerSide(client, dry_run=dry_run, validation=validation[validate], force=force_conflicts)
        else:
            how = ClientSide(client, dry_run=dry_run, validation=validation[validate])
        await _apply(client, how, wanted)

    manager = field_manager or ("kubectl" if server_side else "kubectl-client-side-apply")
    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace, field_manager=manager)


async def _apply(client: Client, how: ClientSide | ServerSide, wanted: _Wanted) -> None:
    printer = Printer(wanted.output, sys.stdout.write) if wanted.output else None
    documents = read_documents(wanted.files, recursive=wanted.recursive)
    if wanted.labels:
        chosen = label_selector(wanted.labels)
        documents = [one for one in documents if chosen.matches((one.object.get("metadata") or {}).get("labels") or {})]
    if not documents:
        raise CommandError("no objects passed to apply")
    types = await ResourceTypes.load(client)
    failures: list[Exception] = []
    applied: list[Object] = []
    for document in documents:
        try:
            types = await _with_kind(client, types, document.object)
            obj, verb = await how.apply(types, document, only_namespace=wanted.only_namespace)
        except (CommandError, errors.ApiError) as error:
            failures.append(error)
            continue
        applied.append(obj)
        if printer is None:
            print(f"{name_of(obj)} {verb}{MARKS[wanted.dry_run]}")
    if printer is not None and applied:
        for obj in applied:
            obj.get("metadata", {}).pop("managedFields", None)
        printer.print(applied[0] if len(applied) == 1 else {"apiVersion": "v1", "kind": "List", "items": applied})
    raise_all(failures)


async def _with_kind(client: Client, types: ResourceTypes, obj: Object) -> ResourceTypes:
    """Return the served types, loaded again for an unknown kind: its definition may just have been applied."""
    return types if types.knows(obj) else await ResourceTypes.load(client)
