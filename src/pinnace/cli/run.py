"""`pinnace run`: an operator from a file, at work in the current cluster or in one that is gone afterwards."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from pinnace.cli.operator_files import NoOperator, operator_in
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import KubeconfigError
from pinnace.client.transport import ConnectionLost
from pinnace.cluster import kubeconfig as kubeconfigs
from pinnace.cluster.cluster import Settings, running
from pinnace.model import errors
from pinnace.sdk.installation import NotEstablished
from pinnace.sdk.operator import Operator
from pinnace.sdk.permissions import missing
from pinnace.sdk.schemas import NotStructural
from pinnace.sdk.serving import until_told


def run(
    file: Annotated[str, typer.Argument(help="The operator's file; file.py:name if it has several.")],
    dev: Annotated[
        bool, typer.Option("--dev", help="Start a cluster for it, which is gone when the operator stops.")
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The way to the cluster; with --dev, where to write it.", show_default="kubectl's"),
    ] = None,
    context: Annotated[str, typer.Option(help="The context to use.", show_default="the current one")] = "",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Where its lease is kept.")] = "",
    no_install: Annotated[
        bool, typer.Option("--no-install", help="The CRDs and webhook configurations are there already.")
    ] = False,
    leader_election: Annotated[
        bool, typer.Option("--leader-election", help="Work only while no other replica does.")
    ] = False,
    webhook_host: Annotated[str, typer.Option(help="The address to serve webhooks on.")] = "127.0.0.1",
    webhook_port: Annotated[int, typer.Option(help="The port for webhooks; 0 takes a free one.")] = 0,
    webhook_service: Annotated[
        str, typer.Option(help="The Service, as namespace/name, that leads to the webhooks.", show_default=False)
    ] = "",
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics, /healthz and /readyz on this port.", show_default=False)
    ] = None,
) -> None:
    """Run the operator in a file until Ctrl-C. Its kinds are installed first."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = {
        "install": not no_install,
        "leader_election": leader_election,
        "webhook_host": webhook_host,
        "webhook_port": webhook_port,
        "webhook_service": webhook_service,
        "metrics_port": metrics_port,
    }
    try:
        operator = operator_in(file)
        if dev:
            asyncio.run(_run_in_new_cluster(operator, kubeconfig, options))
        else:
            asyncio.run(_run(operator, kubeconfig, context, namespace, options))
    except errors.Forbidden as refusal:
        _fail(str(missing(refusal) or refusal))
    except (NoOperator, NotStructural, NotEstablished, KubeconfigError, ConnectionLost, errors.ApiError) as problem:
        _fail(str(problem))


async def _run(
    operator: Operator, kubeconfig: Path | None, context: str, namespace: str, options: dict[str, Any]
) -> None:
    connected = connect(kubeconfig=kubeconfig, context=context, namespace=namespace, field_manager=operator.name)
    async with connected as client:
        await until_told(_work(operator, client, options))


async def _run_in_new_cluster(operator: Operator, kubeconfig: Path | None, options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="pinnace-") as scratch:
        path = kubeconfig or Path(scratch) / "kubeconfig"
        async with running(Settings(), before_ready=lambda access: kubeconfigs.write(path, access)) as cluster:
            print(f"a cluster for {operator.name} is ready at {cluster.url}")
            print(f"  export KUBECONFIG={path}", flush=True)
            await _run(operator, path, "", "", options)


async def _work(operator: Operator, client: Any, options: dict[str, Any]) -> None:
    async with operator.running(client, **options):
        print(f"{operator.name} is at work; Ctrl-C stops it.", flush=True)
        await asyncio.get_running_loop().create_future()


def _fail(message: str) -> None:
    print(f"pinnace: {message}", file=sys.stderr)
    raise typer.Exit(1)
