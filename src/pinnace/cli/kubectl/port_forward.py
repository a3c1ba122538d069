"""`pinnace port-forward`: forward local ports to a pod."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from pinnace.cli.flags.shared import Context, Kubeconfig, Namespace
from pinnace.cli.kubectl.pods import find_object, pods_of
from pinnace.cli.session import CommandError, converse, failing_with
from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote

_HIGHEST = 65535


def port_forward(
    target: Annotated[str, typer.Argument(metavar="POD | TYPE/NAME", show_default=False)] = "",
    ports: Annotated[list[str] | None, typer.Argument(metavar="[LOCAL:]REMOTE...", show_default=False)] = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Forward local ports to a pod, until Ctrl-C. A port may be a number or a name of the pod or the service.

    \b
    Examples:
      pinnace port-forward web 8080             localhost:8080 to the pod's port 8080
      pinnace port-forward web 8080:80          localhost:8080 to its port 80
      pinnace port-forward web :80              a free port of this machine, which is printed
      pinnace port-forward svc/web 8080:http 9000
      pinnace port-forward deploy/web 8080      to one of its pods
    """
    if not target or not ports:
        failing_with(
            1,
            "error: TYPE/NAME and list of ports are required for port-forward\n"
            "See 'pinnace port-forward -h' for help and examples",
        )

    async def talk(client: Client) -> None:
        obj = await find_object(client, target)
        pod = (await pods_of(client, obj))[0]
        name = pod["metadata"]["name"]
        if (pod.get("status") or {}).get("phase") != "Running":
            phase = (pod.get("status") or {}).get("phase", "")
            raise CommandError(f"unable to forward port because pod is not running. Current status={phase}")
        pairs = [_pair(obj, pod, text) for text in ports]
        async with AsyncExitStack() as stack:
            for local, remote in pairs:
                try:
                    forward = await stack.enter_async_context(
                        client.port_forward(name, remote, namespace=pod["metadata"]["namespace"], local_port=local)
                    )
                except OSError as error:
                    raise CommandError(f"unable to listen on port {local}: {error.strerror or error}") from None
                print(f"Forwarding from 127.0.0.1:{forward.port} -> {remote}", flush=True)
            await asyncio.get_running_loop().create_future()

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


def _pair(obj: Object, pod: Object, text: str) -> tuple[int, int]:
    """Return the local port and the pod's port. A service's port is replaced by its target port."""
    local, colon, remote = text.rpartition(":")
    number = _remote(obj, pod, remote)
    if colon and not local:
        return 0, number
    return parse_local_port(local) if colon else parse_local_port(remote) if remote.isdigit() else number, number


def parse_local_port(text: str) -> int:
    """Return the port. Raise CommandError in kubectl's wording."""
    is_number = text.isdigit()
    if is_number and int(text) <= _HIGHEST:
        return int(text)
    why = "value out of range" if is_number else "invalid syntax"
    raise CommandError(f"error parsing local port '{text}': strconv.ParseUint: parsing {quote(text)}: {why}")


def _remote(obj: Object, pod: Object, text: str) -> int:
    if obj["kind"] == "Service":
        for port in obj["spec"].get("ports") or ():
            if text in (str(port["port"]), port.get("name")):
                target = port.get("targetPort") or port["port"]
                if obj["spec"].get("clusterIP") == "None":
                    target = port["port"]
                return _of_pod(pod, str(target))
        name = obj["metadata"]["name"]
        if text.isdigit():
            raise CommandError(f"Service {name} does not have a service port {text}")
        raise CommandError(f"Service '{name}' does not have a named port '{text}'")
    return _of_pod(pod, text)


def _of_pod(pod: Object, text: str) -> int:
    if text.isdigit():
        if not 0 < int(text) <= _HIGHEST:
            raise CommandError("remote port must be > 0" + (f" and at most {_HIGHEST}" if int(text) else ""))
        return int(text)
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == text:
                return int(port["containerPort"])
    raise CommandError(f"Pod '{pod['metadata']['name']}' does not have a named port '{text}'")
