"""`pinnace describe`: objects in words, with what has happened to them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from pinnace.cli import described_cluster, described_workloads
from pinnace.cli.conversation import Unsuitable, converse, raise_all
from pinnace.cli.described import generic
from pinnace.cli.described_pods import pod
from pinnace.cli.documents import read_documents
from pinnace.cli.flags import AllNamespaces, Context, Files, Kubeconfig, Labels, Namespace, Recursive
from pinnace.cli.reading import Read, Request, pages, requests_for
from pinnace.cli.resource_types import ResourceTypes
from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of

Describe = Callable[[Client, Object, list[Object] | None], Awaitable[str]]


async def _pod(client: Client, obj: Object, events: list[Object] | None) -> str:
    return pod(obj, events)


_SPECIAL: dict[tuple[str, str], Describe] = {
    ("", "Pod"): _pod,
    ("", "ConfigMap"): described_cluster.config_map,
    ("", "Secret"): described_cluster.secret,
    ("", "Service"): described_cluster.service,
    ("", "ServiceAccount"): described_cluster.service_account,
    ("", "Namespace"): described_cluster.namespace,
    ("", "Node"): described_cluster.node,
    ("apps", "Deployment"): described_workloads.deployment,
    ("apps", "ReplicaSet"): described_workloads.replica_set,
    ("apps", "StatefulSet"): described_workloads.stateful_set,
    ("apps", "DaemonSet"): described_workloads.daemon_set,
}


def describe(
    resources: Annotated[
        list[str] | None, typer.Argument(metavar="TYPE [NAME or its beginning] | TYPE/NAME...")
    ] = None,
    filename: Files = None,
    recursive: Recursive = False,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Labels = "",
    show_events: Annotated[
        bool, typer.Option("--show-events/--no-show-events", help="Show what has happened to it.")
    ] = True,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Show objects in words, with their events. The values of secrets are not shown.

    \b
    Examples:
      pinnace describe pod web              one pod
      pinnace describe pods -l app=web      those with a label
      pinnace describe deploy/web svc/web
      pinnace describe website blog         custom kinds, field by field
      pinnace describe pod we               all pods whose name begins so
      pinnace describe -f website.yaml
    """

    async def talk(client: Client) -> None:
        documents = tuple(read_documents(filename, recursive=recursive)) if filename else ()
        words = tuple(resources or ())
        if not words and not documents:
            raise Unsuitable(
                "error: You must specify the type of resource to describe. pinnace describe --help shows how."
            )
        read = Read(words=words, documents=documents, all_namespaces=all_namespaces, labels=selector)
        await _describe(client, read, show_events=show_events)

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _describe(client: Client, read: Read, *, show_events: bool) -> None:
    types = await ResourceTypes.learn(client)
    requests = requests_for(types, read, client.namespace)
    problems: list[Exception] = []
    found: list[Object] = []
    begun: list[Object] = []
    for request in requests:
        try:
            found += [obj async for page in pages(client, request) for obj in page]
        except errors.NotFound as problem:
            begun = await _with_prefix(client, request) if len(requests) == 1 and len(read.words) == 2 else []
            problems += [] if begun else [problem]
        except errors.ApiError as problem:
            problems.append(problem)
    with_events = show_events and len(found) <= 1 and not problems
    for place, obj in enumerate(found):
        sys.stdout.write(("\n\n" if place else "") + await _described(client, obj, with_events=with_events))
    for obj in begun:
        print(await _described(client, obj, with_events=False))
    raise_all(problems)
    if not found and not begun:
        where = f" in {client.namespace} namespace." if requests[0].namespace else ""
        print(f"No resources found{where}", file=sys.stderr)


async def _with_prefix(client: Client, request: Request) -> list[Object]:
    every = Request(served=request.served, namespace=request.namespace)
    return [
        obj async for page in pages(client, every) for obj in page if obj["metadata"]["name"].startswith(request.name)
    ]


async def _described(client: Client, obj: Object, *, with_events: bool) -> str:
    events = await _events(client, obj) if with_events else None
    kind = kind_of(obj)
    special = _SPECIAL.get((kind.group, kind.name))
    return generic(obj, events) if special is None else await special(client, obj, events)


async def _events(client: Client, obj: Object) -> list[Object]:
    metadata = obj["metadata"]
    chosen = {"name": metadata["name"], "namespace": metadata.get("namespace", ""), "kind": obj["kind"]}
    about = ",".join(f"involvedObject.{key}={value}" for key, value in chosen.items())
    uids = [metadata.get("uid", "")]
    if obj["kind"] == "Node":
        uids.append(metadata["name"])  # Kubelets have always said so, whatever the node's uid is.
    found: list[Object] = []
    for uid in uids:
        try:
            fields = f"{about},involvedObject.uid={uid}"
            found += await client.list("v1/Event", namespace=chosen["namespace"], fields=fields)
        except errors.ApiError:
            continue  # Who may not see events still sees the object.
    return found
