"""`pinnace node`: runs pods on this machine."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pinnace.cli.data_directory import default_data_dir
from pinnace.client.connect import connect
from pinnace.client.credentials import NoCredentials
from pinnace.client.kubeconfig import KubeconfigError, find_access
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.node.agent.agent import AgentSettings
from pinnace.node.agent.process import NodeSettings, die_with_parent, run_node
from pinnace.node.runtime.errors import RuntimeFailure


def node(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The kubeconfig of the cluster.", show_default="kubectl's")
    ] = None,
    context: Annotated[str, typer.Option(help="The context to use.", show_default="the current one")] = "",
    name: Annotated[str, typer.Option(help="The name of the node.", show_default="the host name")] = "",
    directory: Annotated[
        Path | None,
        typer.Option(help="The state directory of the node.", show_default="node in the data directory"),
    ] = None,
    pod_network: Annotated[str, typer.Option(help="The network of this node's pods.")] = "10.244.0.0/24",
    offline: Annotated[
        bool, typer.Option("--offline", help="Pull from registries on this machine alone, as PINNACE_OFFLINE=1 does.")
    ] = False,
    stop_pods: Annotated[
        bool,
        typer.Option(
            "--stop-pods", help="Stop the pods at the end. Otherwise they go on, and the next start finds them."
        ),
    ] = False,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", help="End when the process that started it ends.", hidden=True)
    ] = False,
) -> None:
    """Run the pods that are bound to this node, until Ctrl-C. Needs neither root nor a container engine.

    \b
    Examples:
      pinnace up --node                         a cluster with this machine as its node
      pinnace node --kubeconfig admin.conf      a node of another cluster
    """
    if with_parent:
        die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    place = directory or default_data_dir() / "node"
    agent = AgentSettings(name=name or socket.gethostname().lower(), directory=place)
    settings = NodeSettings(agent=agent, pod_network=pod_network, is_offline=offline, stops_pods=stop_pods)
    try:
        asyncio.run(_run(kubeconfig, context, settings))
    except (KubeconfigError, NoCredentials, ConnectionLost, errors.ApiError, RuntimeFailure, OSError) as error:
        _fail(str(error))


async def _run(kubeconfig: Path | None, context: str, settings: NodeSettings) -> None:
    access = find_access(path=kubeconfig, context=context)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(access, field_manager="kubelet"))
        runtime = await stack.enter_async_context(run_node(client, settings))
        print(f"node {settings.agent.name} runs pods of {access.server}; Ctrl-C stops it", flush=True)
        for sentence in (await runtime.status()).missing:
            print(f"note: {sentence}", flush=True)
        await stop.wait()


def _fail(message: str) -> NoReturn:
    print(f"pinnace: {message}", file=sys.stderr)
    raise typer.Exit(1)
