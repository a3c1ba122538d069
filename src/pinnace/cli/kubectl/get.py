"""`pinnace get` and `pinnace watch`: show objects as a table or in full, and each change."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from itertools import groupby
from typing import Annotated, Any, Protocol, TypeVar

import orjson
import typer

from pinnace.cli.flags.shared import AllNamespaces, Context, Fields, Files, Kubeconfig, Labels, Namespace, Recursive
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.kubectl.formats import Printer, parse_relaxed_path
from pinnace.cli.kubectl.read import Read, ReadRequest, pages, requests_for, tables
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.kubectl.tables import ACCEPT, TableOptions, TablePrinter
from pinnace.cli.session import CommandError, converse, raise_all
from pinnace.client.client import Client
from pinnace.client.mapping import ServedKind
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors, quantity
from pinnace.model.errors import error_of_status
from pinnace.model.jsonpath import JsonPathError
from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote, type_name

Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        help="wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=TITLE:PATH,...",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The objects to show, and their format."""

    read: Read
    output: str = ""
    table: TableOptions = field(default_factory=TableOptions)
    sort_by: str = ""
    ignore_not_found: bool = False
    show_managed_fields: bool = False
    follows: bool = False
    only_changes: bool = False
    shows_events: bool = False


def get(
    resources: Annotated[list[str] | None, typer.Argument(metavar="TYPE[,TYPE] [NAME...] | TYPE/NAME...")] = None,
    output: Output = "",
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Labels = "",
    field_selector: Fields = "",
    filename: Files = None,
    recursive: Recursive = False,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Then show each change.")] = False,
    watch_only: Annotated[bool, typer.Option("--watch-only", help="Show only the changes.")] = False,
    output_watch_events: Annotated[
        bool, typer.Option("--output-watch-events", help="With -w, show the type of each change.")
    ] = False,
    sort_by: Annotated[
        str, typer.Option("--sort-by", help="Sort by this path: .metadata.creationTimestamp.", show_default=False)
    ] = "",
    show_labels: Annotated[bool, typer.Option("--show-labels", help="Show all labels in a last column.")] = False,
    label_columns: Annotated[
        list[str] | None,
        typer.Option("-L", "--label-columns", metavar="<label>", help="Show this label in a column of its own."),
    ] = None,
    show_kind: Annotated[bool, typer.Option("--show-kind", help="Show the kind with each name.")] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Leave out the column titles.")] = False,
    ignore_not_found: Annotated[bool, typer.Option("--ignore-not-found", help="Missing objects are no error.")] = False,
    show_managed_fields: Annotated[
        bool, typer.Option("--show-managed-fields", help="With json and yaml, show managedFields.")
    ] = False,
    subresource: Annotated[str, typer.Option(help="Show this subresource: status or scale.", show_default=False)] = "",
    chunk_size: Annotated[int, typer.Option(help="The number of objects in each request; 0 for all.", min=0)] = 500,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Show objects, as a table or in full.

    TYPE is a plural, a singular, a short name or a kind, in any case; if two groups have it, add the group:
    deployments.apps. `all` stands for pods, services and workloads.

    \b
    Examples:
      pinnace get pods                              those of the current namespace
      pinnace get pods -A -o wide                   of all namespaces, with more columns
      pinnace get deploy,svc -l app=web             two kinds, by label
      pinnace get pod/web svc/web -o yaml           two objects in full
      pinnace get pods --field-selector status.phase=Running --sort-by .metadata.creationTimestamp
      pinnace get nodes -o jsonpath='{.items[*].metadata.name}'
      pinnace get pods -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image
      pinnace get pods -w                           and then each change
      pinnace get -f website.yaml                   the objects of a file, as they are in the cluster
    """
    wanted = Wanted(
        read=Read(
            words=tuple(resources or ()),
            all_namespaces=all_namespaces,
            labels=selector,
            fields=field_selector,
            subresource=subresource,
            chunk=0 if sort_by else chunk_size,
            whole_objects=bool(sort_by),
        ),
        output=output,
        table=TableOptions(
            wide=output == "wide",
            headers=not no_headers,
            kinds=show_kind,
            labels=show_labels,
            label_columns=tuple(label for given in label_columns or () for label in given.split(",")),
        ),
        sort_by=sort_by,
        ignore_not_found=ignore_not_found,
        show_managed_fields=show_managed_fields,
        follows=watch or watch_only,
        only_changes=watch_only,
        shows_events=output_watch_events,
    )

    async def talk(client: Client) -> int | None:
        return await show(client, replace(wanted, read=await _with_files(wanted.read, filename, recursive)))

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _with_files(read: Read, files: list[str] | None, recursive: bool) -> Read:
    if not files:
        return read
    if read.words:
        raise CommandError(
            "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well"
        )
    return replace(read, documents=tuple(read_documents(files, recursive=recursive)))


async def show(client: Client, wanted: Wanted) -> int | None:
    """Print the objects; then raise the errors."""
    types = await ResourceTypes.load(client)
    requests = requests_for(types, wanted.read, client.namespace)
    if wanted.follows:
        if wanted.sort_by:
            flag = "--watch-only requested, --sort-by will be ignored"
            also = "--watch requested, --sort-by will be ignored for watch events received"
            print(f"warning: {flag if wanted.only_changes else also}", file=sys.stderr)
        printing = _in_full(wanted) if _is_full(wanted) else _in_rows(wanted, requests[0].served)
        await watch_requests(
            client,
            requests,
            printing,
            is_table=not _is_full(wanted),
            only_changes=wanted.only_changes,
            shows_events=wanted.shows_events,
        )
        return None
    if _is_full(wanted):
        await _show_in_full(client, requests, wanted)
    else:
        await _show_tables(client, requests, wanted)
    return None


def _is_full(wanted: Wanted) -> bool:
    return wanted.output not in ("", "wide")


def _in_full(wanted: Wanted) -> Printer:
    return Printer(wanted.output, sys.stdout.write, headers=wanted.table.headers)


def _in_rows(wanted: Wanted, served: ServedKind, *, with_kinds: bool = False) -> TablePrinter:
    options = replace(
        wanted.table,
        namespaces=wanted.read.all_namespaces and served.namespaced,
        kinds=wanted.table.kinds or with_kinds,
    )
    return TablePrinter(served, options, sys.stdout.write)


# Tables


async def _show_tables(client: Client, requests: list[ReadRequest], wanted: Wanted) -> None:
    kinds = [(served, list(several)) for served, several in groupby(requests, key=lambda request: request.served)]
    failures: list[Exception] = []
    answered: list[tuple[ServedKind, list[Object]]] = []
    for served, several in kinds:
        received: list[Object] = []
        for request in several:
            with _collecting(failures, wanted):
                received += [table async for table in tables(client, request)]
        answered.append((served, _by_order(received, wanted.sort_by, is_all=len(requests) == 1)))
    has_printed = False
    for served, received in answered:
        if not any(table.get("rows") or table.get("kind") != "Table" for table in received):
            continue
        if has_printed and wanted.table.headers:
            sys.stdout.write("\n")
        _in_rows(wanted, served, with_kinds=len(kinds) > 1).print(*received)
        has_printed = True
    raise_all(failures)
    if not has_printed and not wanted.ignore_not_found:
        in_one = not wanted.read.all_namespaces and all(request.served.namespaced for request in requests)
        where = f" in {client.namespace} namespace." if in_one else ""
        print(f"No resources found{where}", file=sys.stderr)


@contextmanager
def _collecting(failures: list[Exception], wanted: Wanted) -> Iterator[None]:
    """Collect the error of a request, to be raised after the others have been answered."""
    try:
        yield
    except errors.ApiError as error:
        if not (wanted.ignore_not_found and isinstance(error, errors.NotFound)):
            failures.append(error)


def _by_order(listed: list[Object], path: str, *, is_all: bool) -> list[Object]:
    """Return the tables of one kind as one, sorted."""
    rows = [row for table in listed for row in table.get("rows") or ()]
    if not path or (is_all and len(rows) < 2) or any(table.get("kind") != "Table" for table in listed):
        return listed
    try:
        return [{**table, "rows": sort_items(rows, path, lambda row: row["object"])} for table in listed[:1]]
    except NoSuchField:
        if is_all:
            return []  # For one list without the field kubectl prints that it is empty; else it prints the error.
        raise


# In full


async def _show_in_full(client: Client, requests: list[ReadRequest], wanted: Wanted) -> None:
    printer = _in_full(wanted)
    failures: list[Exception] = []
    items: list[Object] = []
    is_single = len(requests) == 1 and bool(requests[0].name)
    for request in requests:
        with _collecting(failures, wanted):
            items += [item async for page in pages(client, request) for item in page]
    if is_single and failures:
        raise failures[0]
    if wanted.sort_by and not is_single:
        items = sort_items(items, wanted.sort_by, lambda obj: obj)
    if not wanted.show_managed_fields:
        for item in items:
            item.get("metadata", {}).pop("managedFields", None)
    if not (wanted.ignore_not_found and not items):
        printer.print(
            items[0]
            if is_single
            else {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}
        )
    raise_all(failures)


Item = TypeVar("Item")


class NoSuchField(CommandError):
    """None of the objects has the field to sort by."""


def sort_items(items: list[Item], path: str, object_of: Callable[[Item], Object]) -> list[Item]:
    """Return the items sorted by the value at the path. Raise NoSuchField, or CommandError for values without an order.

    Items without a value come first, the last of them at the top, as in kubectl's output.
    """
    find = parse_relaxed_path(path)
    try:
        values = [(find(object_of(item)) or [None])[0] for item in items]
    except JsonPathError as error:
        raise CommandError(str(error)) from None
    with_it = [(value, item) for value, item in zip(values, items, strict=True) if value is not None]
    if items and not with_it:
        name = path.strip("{}").removeprefix(".")
        raise NoSuchField(f"couldn't find any field with path {quote('{.' + name + '}')} in the list of objects")
    with_it.sort(key=lambda pair: cmp_to_key(_compare)(pair[0]))
    without = [item for value, item in zip(values, items, strict=True) if value is None]
    return [*reversed(without), *(item for _, item in with_it)]


def _compare(value: Any, other: Any) -> int:
    if isinstance(value, str) and isinstance(other, str):
        with contextlib.suppress(quantity.InvalidQuantity):
            value, other = quantity.parse(value), quantity.parse(other)
    try:
        return int(value > other) - int(value < other)
    except TypeError:
        raise CommandError(f"unsortable type: {type_name(value)}") from None


def watch(
    resources: Annotated[list[str], typer.Argument(metavar="TYPE [NAME] | TYPE/NAME")],
    output: Output = "",
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Labels = "",
    field_selector: Fields = "",
    only_changes: Annotated[bool, typer.Option("--only-changes", help="Leave out existing objects.")] = False,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="Show all labels in a last column.")] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Leave out the column titles.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Show objects, then each change as it happens, until Ctrl-C. The first column is the type of the change.

    It is `kubectl get --watch --output-watch-events`, but continues after the server ends the connection.

    \b
    Examples:
      pinnace watch pods
      pinnace watch websites -A -o wide
      pinnace watch deploy/web -o yaml              the whole object at each change
      pinnace watch events --only-changes
    """
    wanted = Wanted(
        read=Read(words=tuple(resources), all_namespaces=all_namespaces, labels=selector, fields=field_selector),
        output=output,
        table=TableOptions(wide=output == "wide", headers=not no_headers, labels=show_labels),
        follows=True,
        only_changes=only_changes,
        shows_events=True,
    )

    async def talk(client: Client) -> None:
        await show(client, wanted)

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


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
