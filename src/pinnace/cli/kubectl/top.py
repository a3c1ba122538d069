"""`pinnace top`: the CPU and memory in use, of nodes or pods."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import orjson
import typer

from pinnace.cli.flags.shared import AllNamespaces, Context, Kubeconfig, Labels, Namespace
from pinnace.cli.kubectl.alignment import align_columns
from pinnace.cli.session import CommandError, converse
from pinnace.client.client import Client
from pinnace.model import errors, quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import Quantity

_API = "/apis/metrics.k8s.io/v1beta1"
_NODES, _PODS = ("node", "nodes", "no"), ("pod", "pods", "po")


def top(
    what: Annotated[str, typer.Argument(metavar="nodes | pods", help="The objects to show.")],
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only this node or pod.", show_default=False)] = "",
    containers: Annotated[bool, typer.Option("--containers", help="One line for each container of the pods.")] = False,
    selector: Labels = "",
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Show the CPU and memory in use, as the metrics API reports them.

    \b
    Examples:
      pinnace top nodes
      pinnace top pods -A
      pinnace top pods -l app=web --containers
    """

    async def talk(client: Client) -> None:
        if what in _NODES:
            await _print_nodes(client, name, selector)
        elif what in _PODS:
            place = "" if all_namespaces else f"/namespaces/{client.namespace}"
            await _print_pods(client, place, name, selector, each=containers)
        else:
            raise CommandError(f'expected nodes or pods, found "{what}"')

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _print_nodes(client: Client, name: str, selector: str) -> None:
    usages = await _read(client, f"{_API}/nodes", name, selector)
    nodes = {listed["metadata"]["name"]: listed for listed in await client.list("v1/Node", labels=selector)}
    rows = [("NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)")]
    for item in usages:
        node = item["metadata"]["name"]
        room = (nodes.get(node, {}).get("status") or {}).get("allocatable") or {}
        row = [node]
        for resource, text in _texts(item["usage"]).items():
            row += [text, _share(item["usage"][resource], room.get(resource))]
        rows.append((row[0], row[1], row[2], row[3], row[4]))
    if not name:
        known = {item["metadata"]["name"] for item in usages}
        rows += [(node, *["<unknown>"] * 4) for node in sorted(nodes) if node not in known]
    _print(rows)


async def _print_pods(client: Client, place: str, name: str, selector: str, *, each: bool) -> None:
    usages = await _read(client, f"{_API}{place}/pods", name, selector)
    if not usages:
        ending = f" in {client.namespace} namespace." if place else ""
        print(f"No resources found{ending}", file=sys.stderr)
        return
    first = [] if place else ["NAMESPACE"]
    rows: list[Sequence[str]] = [[*first, *(["POD"] if each else []), "NAME", "CPU(cores)", "MEMORY(bytes)"]]
    for item in usages:
        metadata = item["metadata"]
        where = [] if place else [metadata["namespace"]]
        if each:
            for container in item["containers"]:
                rows.append([*where, metadata["name"], container["name"], *_texts(container["usage"]).values()])
        else:
            usage = {resource: _sum(item["containers"], resource) for resource in ("cpu", "memory")}
            rows.append([*where, metadata["name"], *_texts(usage).values()])
    _print(rows)


async def _read(client: Client, path: str, name: str, selector: str) -> list[Object]:
    query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
    target = f"{path}/{quote(name)}" if name else path
    try:
        answer: Any = orjson.loads(await client.read(target + query, accept="application/json"))
    except errors.NoSuchPath:
        raise CommandError("Metrics API not available") from None
    items: list[Object] = [answer] if name else answer["items"]
    return sorted(items, key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))


def _sum(containers: Iterable[Object], resource: str) -> str:
    total = quantity.ZERO
    for container in containers:
        total = total + quantity.parse((container.get("usage") or {}).get(resource, "0"))
    return str(total)


def _texts(usage: Object) -> dict[str, str]:
    cpu, memory = quantity.parse(usage.get("cpu", "0")), quantity.parse(usage.get("memory", "0"))
    return {"cpu": f"{cpu.milli_value}m", "memory": f"{memory.value // (1 << 20)}Mi"}


def _share(used: str, room: str | None) -> str:
    total: Quantity = quantity.parse(room or "0")
    return f"{int(quantity.parse(used).amount * 100 / total.amount)}%" if total else "<unknown>"


def _print(rows: Iterable[Sequence[str]]) -> None:
    text = "".join("".join(f"{cell}\t" for cell in row) + "\n" for row in rows)
    print(align_columns(text, min_width=6, padding=3), end="")
