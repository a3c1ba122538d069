"""`pinnace proxy`: local ports that lead to the ready pods of a Service."""

from __future__ import annotations

import asyncio
import errno
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from pinnace.cli.flags.shared import Context, Kubeconfig, Namespace
from pinnace.cli.kubectl.pods import find_object
from pinnace.cli.kubectl.port_forward import parse_local_port
from pinnace.cli.session import CommandError, converse, failing_with
from pinnace.client.client import Client
from pinnace.client.ports import PortForward
from pinnace.model.objects import Object

_SYSTEM_PORTS = 1024


def proxy(
    target: Annotated[str, typer.Argument(metavar="svc/NAME", show_default=False)] = "",
    ports: Annotated[list[str] | None, typer.Argument(metavar="[LOCAL:]PORT...", show_default=False)] = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Open local ports that lead to a Service, until Ctrl-C. Each connection goes to one of its ready pods.

    Connections pass through the API server: no address of the cluster needs to be reachable from this machine. Unlike
    port-forward, which stays with one pod, it follows the Service: pods may be replaced meanwhile. A PORT is a number
    or a name of the Service; without any, each TCP port of the Service gets a local one.

    \b
    Examples:
      pinnace proxy svc/web                     every port; a free local port where its own is below 1024 or taken
      pinnace proxy svc/web 8080:80             localhost:8080 to port 80 of the Service
      pinnace proxy svc/web 8080:http :metrics  by name; a free local port for the second
    """
    kind, slash, name = target.partition("/")
    if not slash or kind not in ("svc", "service", "services") or not name:
        failing_with(1, f"error: expected svc/NAME, found '{target}'\nSee 'pinnace proxy -h' for help and examples")

    async def talk(client: Client) -> None:
        service = await find_object(client, f"services/{name}")
        pairs = [_parse(service, text) for text in ports] if ports else _own_ports(service)
        async with AsyncExitStack() as stack:
            for local, port, is_fixed in pairs:
                forward = await _listen(stack, client, service, local, port, is_fixed=is_fixed)
                print(f"Forwarding from 127.0.0.1:{forward.port} -> service {name} port {port}", flush=True)
            await asyncio.get_running_loop().create_future()

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _listen(
    stack: AsyncExitStack, client: Client, service: Object, local: int, port: int, *, is_fixed: bool
) -> PortForward:
    metadata = service["metadata"]

    def forward(local_port: int) -> PortForward:
        return client.service_forward(metadata["name"], port, namespace=metadata["namespace"], local_port=local_port)

    try:
        return await stack.enter_async_context(forward(local))
    except OSError as error:
        if error.errno == errno.EADDRINUSE and not is_fixed:
            return await stack.enter_async_context(forward(0))
        raise CommandError(f"unable to listen on port {local}: {error.strerror or error}") from None


def _own_ports(service: Object) -> list[tuple[int, int, bool]]:
    """Return a local port for each TCP port of a Service."""
    choices = []
    for port in service["spec"].get("ports") or ():
        if port.get("protocol", "TCP") == "TCP":
            choices.append((port["port"] if port["port"] >= _SYSTEM_PORTS else 0, port["port"], False))
    if not choices:
        raise CommandError(f"service {service['metadata']['name']} has no TCP port that could be forwarded")
    return choices


def _parse(service: Object, text: str) -> tuple[int, int, bool]:
    """Return the local port, 0 for a free one, the port of the Service, and whether the local port is fixed."""
    local, colon, remote = text.rpartition(":")
    for port in service["spec"].get("ports") or ():
        if remote in (str(port["port"]), port.get("name")):
            if port.get("protocol", "TCP") != "TCP":
                raise CommandError(f"port {remote} is {port['protocol']}; only TCP can be forwarded")
            if colon:
                return (parse_local_port(local) if local else 0), port["port"], bool(local)
            return port["port"], port["port"], True
    known = ", ".join(str(port["port"]) for port in service["spec"].get("ports") or ())
    raise CommandError(f"service {service['metadata']['name']} has no port {remote}; it has {known or 'none'}")
