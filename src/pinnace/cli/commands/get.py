"""`pinnace get`: show objects as a table, or in full."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated

import typer

from pinnace.cli.flags import AllNamespaces, Context, Fields, Files, Kubeconfig, Labels, Namespace, Recursive
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.kubectl.formats import Printer
from pinnace.cli.kubectl.read import Read, ReadRequest, pages, requests_for, tables
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.kubectl.sort import NoSuchField, sort_items
from pinnace.cli.kubectl.tables import TableOptions, TablePrinter
from pinnace.cli.kubectl.watch import watch_requests
from pinnace.cli.session import CommandError, converse, raise_all
from pinnace.client.client import Client
from pinnace.client.mapping import ServedKind
from pinnace.model import errors
from pinnace.model.objects import Object

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
        found: list[Object] = []
        for request in several:
            with _collecting(failures, wanted):
                found += [table async for table in tables(client, request)]
        answered.append((served, _by_order(found, wanted.sort_by, is_all=len(requests) == 1)))
    has_printed = False
    for served, found in answered:
        if not any(table.get("rows") or table.get("kind") != "Table" for table in found):
            continue
        if has_printed and wanted.table.headers:
            sys.stdout.write("\n")
        _in_rows(wanted, served, with_kinds=len(kinds) > 1).print(*found)
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


def _by_order(found: list[Object], path: str, *, is_all: bool) -> list[Object]:
    """Return the tables of one kind as one, sorted."""
    rows = [row for table in found for row in table.get("rows") or ()]
    if not path or (is_all and len(rows) < 2) or any(table.get("kind") != "Table" for table in found):
        return found
    try:
        return [{**table, "rows": sort_items(rows, path, lambda row: row["object"])} for table in found[:1]]
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
