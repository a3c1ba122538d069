"""`pinnace apply`: apply the objects in files."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
import typer

from pinnace.cli.flags.shared import Context, Files, Kubeconfig, Labels, Namespace, Recursive
from pinnace.cli.kubectl.documents import Document, read_documents
from pinnace.cli.kubectl.formats import Printer, name_of
from pinnace.cli.kubectl.read import served_for
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.kubectl.three_way_patch import merge_patch, strategic_patch
from pinnace.cli.session import CommandError, converse, failing_with, raise_all
from pinnace.client.client import Client
from pinnace.client.exchange import target_of
from pinnace.client.mapping import ServedKind
from pinnace.kinds.definitions import Definitions, minors
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.patches.json_and_merge import merge_patch as json_merge_patch
from pinnace.model.patches.last_applied import LAST_APPLIED
from pinnace.model.selectors import label_selector
from pinnace.schema.field_errors import go_json
from pinnace.schema.golang.text import quote
from pinnace.schema.merge.strategic import strategic_merge
from pinnace.schema.shape import Schema

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
        documents = [
            document
            for document in documents
            if chosen.matches((document.object.get("metadata") or {}).get("labels") or {})
        ]
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


_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_ATTEMPTS = 5
"""How often a patch is computed again after a conflict."""


class _Applying:
    def __init__(self, client: Client, *, dry_run: str, validation: str) -> None:
        self._client = client
        self._dry_run = dry_run
        self._validation = validation

    def _target(self, served: ServedKind, namespace: str, name: str = "", **more: str | bool) -> str:
        options = {
            "fieldManager": self._client.field_manager,
            "fieldValidation": self._validation,
            "dryRun": "All" if self._dry_run == "server" else "",
            **more,
        }
        return target_of(served.path(namespace=namespace, name=name), options)

    def _place(self, types: ResourceTypes, document: Document, only_namespace: str) -> tuple[ServedKind, str, Object]:
        """Return the kind and namespace of a document, and the document with its namespace set."""
        served = served_for(types, document)
        obj: Object = copy.deepcopy(document.object)
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("name"):
            generated = metadata.get("generateName")
            if generated:
                raise CommandError(f"from {generated}: cannot use generate name with apply")
            raise CommandError("resource name may not be empty")
        if not served.namespaced:
            return served, "", obj
        given = metadata.get("namespace")
        if given and only_namespace and given != only_namespace:
            raise CommandError(
                f"the namespace from the provided object {quote(given)} does not match the namespace "
                f"{quote(only_namespace)}. You must pass '--namespace={given}' to perform this operation."
            )
        metadata["namespace"] = given or self._client.namespace
        return served, metadata["namespace"], obj


class ServerSide(_Applying):
    """Server-side apply: the server merges, and records the manager of each field."""

    def __init__(self, client: Client, *, dry_run: str, validation: str, force: bool) -> None:
        super().__init__(client, dry_run=dry_run, validation=validation)
        self._force = force

    async def apply(self, types: ResourceTypes, document: Document, *, only_namespace: str) -> tuple[Object, str]:
        served, namespace, obj = self._place(types, document, only_namespace)
        target = self._target(served, namespace, obj["metadata"]["name"], force=self._force)
        try:
            answer = await self._client.send("PATCH", target, obj, content_type="application/apply-patch+yaml")
        except errors.ApplyConflict as conflict:
            raise CommandError(
                f"{conflict.message}\nOthers manage these fields. Leave them out of the file; or write the values that "
                "they have now, to manage them together; or take them over with --force-conflicts."
            ) from None
        return answer, "serverside-applied"


class ClientSide(_Applying):
    """Client-side apply: compares the last applied, the new and the live configuration."""

    async def apply(self, types: ResourceTypes, document: Document, *, only_namespace: str) -> tuple[Object, str]:
        served, namespace, obj = self._place(types, document, only_namespace)
        modified = _with_last_applied(obj)
        name = obj["metadata"]["name"]
        for attempt in range(1, _ATTEMPTS + 1):
            current = await self._current(served, namespace, name)
            if current is None:
                return await self._create(served, namespace, modified, document), "created"
            if LAST_APPLIED not in (current["metadata"].get("annotations") or {}) and attempt == 1:
                _warn_of_strangers(served, name)
            content_type, patch = _patch(served, modified, current)
            if not patch:
                return current, "unchanged"
            if self._dry_run == "client":
                return _apply_locally(served, current, patch), "configured"
            try:
                target = self._target(served, namespace, name)
                return await self._client.send("PATCH", target, patch, content_type=content_type), "configured"
            except errors.Conflict:
                if attempt == _ATTEMPTS:
                    raise
            except errors.ApiError as error:
                raise _about_patch(error, patch, served, namespace, name, document) from None
        raise AssertionError("the last attempt returns or raises")

    async def _current(self, served: ServedKind, namespace: str, name: str) -> Object | None:
        try:
            current: Object = orjson.loads(
                await self._client.read(served.path(namespace=namespace, name=name), accept="application/json")
            )
        except errors.NotFound:
            return None
        return current

    async def _create(self, served: ServedKind, namespace: str, modified: Object, document: Document) -> Object:
        obj: Object = _without_nulls(modified)
        if self._dry_run == "client":
            return obj
        try:
            return await self._client.send("POST", self._target(served, namespace), obj)
        except errors.Invalid:
            raise
        except errors.ApiError as error:
            raise _retold(error, f"error when creating {quote(document.source)}: {error.message}") from None


def _with_last_applied(obj: Object) -> Object:
    """Return the object with its own configuration in the last-applied annotation."""
    metadata = obj["metadata"]
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    plain = {**obj, "metadata": {**metadata, "annotations": annotations}}
    noted = {**annotations, LAST_APPLIED: go_json(plain) + "\n"}
    return {**obj, "metadata": {**metadata, "annotations": noted}}


def _patch(served: ServedKind, modified: Object, current: Object) -> tuple[str, Object]:
    noted = (current["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    original: Object = orjson.loads(noted) if noted else {}
    schema = _schema_of(served)
    if schema is None:
        return _MERGE, merge_patch(original, modified, current)
    return _STRATEGIC, strategic_patch(original, modified, current, schema)


def _apply_locally(served: ServedKind, current: Object, patch: Object) -> Object:
    """Return the object as the server would patch it, as far as the client can compute that."""
    schema = _schema_of(served)
    return json_merge_patch(current, patch) if schema is None else strategic_merge(current, patch, schema)


_definitions: list[Definitions] = []


def _schema_of(served: ServedKind) -> Schema | None:
    """Return the schema that says how to merge the lists of a built-in kind; None for custom kinds."""
    if not _definitions:
        _definitions.append(Definitions.load(minors()[-1]))
    return _definitions[0].of_kind(served.kind)


def _warn_of_strangers(served: ServedKind, name: str) -> None:
    print(
        f"Warning: resource {served.plural}/{name} is missing the {LAST_APPLIED} annotation which is required by "
        "pinnace apply. pinnace apply should only be used on resources created declaratively by either pinnace create "
        "--save-config or pinnace apply. The missing annotation will be patched automatically.",
        file=sys.stderr,
    )


def _about_patch(
    error: errors.ApiError, patch: Object, served: ServedKind, namespace: str, name: str, document: Document
) -> errors.ApiError:
    if isinstance(error, errors.Invalid):
        return error
    kind, source = served.kind, quote(document.source)
    group_version = f"{kind.group}/{kind.version}"
    return _retold(
        error,
        f"error when applying patch:\n{go_json(patch)}\nto:\n"
        f'Resource: "{group_version}, Resource={served.plural}", '
        f'GroupVersionKind: "{group_version}, Kind={kind.name}"\n'
        f"Name: {quote(name)}, Namespace: {quote(namespace)}\n"
        f"for: {source}: error when patching {source}: {error.message}",
    )


def _retold(error: errors.ApiError, message: str) -> errors.ApiError:
    error.message = message
    error.args = (message,)
    return error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
