"""`pinnace scheduler`: the scheduler as a process of its own."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.explain.scheduler_profiles import read_configuration
from pinnace.cli.failure import fail
from pinnace.cli.flags.shared import ClusterKubeconfig, Context, SecurePort
from pinnace.cli.flags.values import flag_values
from pinnace.cli.flags.versions import FeatureGatesFlag
from pinnace.cli.session import CommandError
from pinnace.client.credentials import NoCredentials
from pinnace.client.kubeconfig import Access, KubeconfigError, find_access
from pinnace.client.transport import ConnectionLost
from pinnace.cluster.component_server import Component, ComponentServer
from pinnace.cluster.scheduler import NAME, pod_resources_of, scheduler_at
from pinnace.kinds.feature_gates.gates import InvalidFeatureGates
from pinnace.model import errors
from pinnace.scheduler.configuration import InvalidConfiguration, SchedulerConfiguration, configuration_document
from pinnace.sdk.operator.metrics_server import metrics_listening
from pinnace.sdk.operator.process import run_until_signal


def scheduler(
    command: typer.Context,
    kubeconfig: ClusterKubeconfig = None,
    context: Context = "",
    config: Annotated[
        Path | None,
        typer.Option(
            help="A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): profiles, plug-ins, extenders.",
            show_default="kube-scheduler's defaults",
        ),
    ] = None,
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Work only while this process holds the lease kube-system/kube-scheduler.",
        ),
    ] = True,
    bind_address: Annotated[str, typer.Option(help="The address for metrics and health.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            help="The port for metrics (/metrics, /metrics/resources) and health; -1 for none.",
            min=-1,
            max=65535,
        ),
    ] = 10259,
    secure_port: SecurePort = 0,
    feature_gates: FeatureGatesFlag = "",
) -> None:
    """Schedule the pods of a cluster until Ctrl-C.

    \b
    Examples:
      pinnace scheduler                                   against the current context
      pinnace scheduler --config scheduler.yaml           with your own profiles, weights and extenders
      pinnace scheduler --port -1 --secure-port 10259     with /configz, /flagz, /statusz and /debug/pprof/, too
      pinnace scheduler --kubeconfig prod.yaml --no-leader-elect --port -1
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        configuration = read_configuration(config)
        access = find_access(path=kubeconfig, context=context)
        component = Component(
            name=NAME,
            configuration={"componentconfig": configuration_document(configuration)},
            flags=flag_values(command),
        )
        server = ComponentServer(component, feature_gates, bind_address, secure_port)
        asyncio.run(_run(access, configuration, server, port, leads=leader_elect))
    except (
        CommandError,
        InvalidConfiguration,
        KubeconfigError,
        NoCredentials,
        ConnectionLost,
        errors.ApiError,
        InvalidFeatureGates,
        OSError,
    ) as error:
        fail(error)


async def _run(
    access: Access, configuration: SchedulerConfiguration, server: ComponentServer, port: int, *, leads: bool
) -> None:
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(scheduler_at(access, configuration, leads=leads))
        pages = {"/metrics/resources": pod_resources_of(manager)}
        if port >= 0:
            served = await stack.enter_async_context(metrics_listening(manager, port, host=server.address, pages=pages))
            print(f"metrics and health: http://{server.address}:{served}", flush=True)
        await stack.enter_async_context(server.listening(manager, pages))
        names = ", ".join(profile.name for profile in configuration.profiles)
        print(f"{names} schedules the pods of {access.server}; Ctrl-C stops it", flush=True)
        await run_until_signal(manager.run())
