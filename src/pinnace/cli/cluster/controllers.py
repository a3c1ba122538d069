"""`pinnace controllers`: the built-in controllers as a process of their own."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import typer

from pinnace.auth.certificates.authority import CertificateError, CertificateFiles, ensure_certificates
from pinnace.cli.failure import fail, fail_unauthorized
from pinnace.cli.flags.shared import ClusterKubeconfig, Context, SecurePort
from pinnace.cli.flags.values import LoadBalancers, find_load_balancers, flag_values
from pinnace.cli.flags.versions import FeatureGatesFlag
from pinnace.client.credentials import NoCredentials
from pinnace.client.kubeconfig import Access, KubeconfigError, find_access
from pinnace.client.transport import ConnectionLost
from pinnace.cluster.component_server import Component, ComponentServer
from pinnace.cluster.controllers import UnknownController, check_names, controllers_at, manager_configuration
from pinnace.controllers.built_in import CONTROLLERS, NAME
from pinnace.kinds.feature_gates.gates import InvalidFeatureGates
from pinnace.model import errors
from pinnace.reconcile.manager import Manager
from pinnace.sdk.operator.process import run_until_signal

_NAMES = ", ".join(row.name for row in CONTROLLERS)


def controllers(
    command: typer.Context,
    kubeconfig: ClusterKubeconfig = None,
    context: Context = "",
    only: Annotated[
        str, typer.Option(metavar="NAME,…", help=f"Run only these controllers: {_NAMES}.", show_default="all")
    ] = "",
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Work only while this process holds the lease kube-system/kube-controller-manager.",
        ),
    ] = True,
    use_service_account_credentials: Annotated[
        bool,
        typer.Option(
            "--use-service-account-credentials",
            help="Let each controller write as its own service account in kube-system.",
        ),
    ] = False,
    certificates: Annotated[
        Path | None,
        typer.Option(
            help="The directory with the cluster's certificates and keys (pki in the data directory of pinnace up), "
            "for the controllers that sign and publish them.",
            show_default=False,
        ),
    ] = None,
    load_balancers: LoadBalancers = "",
    feature_gates: FeatureGatesFlag = "",
    bind_address: Annotated[str, typer.Option(help="The address of the server on --secure-port.")] = "127.0.0.1",
    secure_port: SecurePort = 0,
) -> None:
    """Run the built-in controllers against a cluster until Ctrl-C.

    \b
    Examples:
      pinnace up --no-controllers               a server without controllers
      pinnace controllers                       all of them, against the current context
      pinnace controllers --secure-port 10257   with metrics, health, /configz, /flagz, /statusz, /debug/pprof/
      pinnace controllers --only job-controller,cronjob-controller --no-leader-elect
      pinnace controllers --only service-lb-controller --no-leader-elect --load-balancers cloud.py
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    provider = find_load_balancers(load_balancers)
    names = [name.strip() for name in only.split(",") if name.strip()]
    try:
        check_names(names)
        access = find_access(path=kubeconfig, context=context)
        manager = controllers_at(
            access,
            only=names,
            leads=leader_elect,
            uses_accounts=use_service_account_credentials,
            files=_files(certificates) if certificates is not None else None,
            load_balancers=provider,
            feature_gates=feature_gates,
        )
        configuration = manager_configuration(names, address=bind_address, port=secure_port, leads=leader_elect)
        component = Component(name=NAME, configuration=configuration, flags=flag_values(command))
        server = ComponentServer(component, feature_gates, bind_address, secure_port)
        asyncio.run(_run(access, manager, server))
    except errors.Unauthorized as rejected:
        fail_unauthorized(rejected)
    except (
        UnknownController,
        InvalidFeatureGates,
        CertificateError,
        KubeconfigError,
        NoCredentials,
        ConnectionLost,
        errors.ApiError,
        OSError,
    ) as error:
        fail(error)


async def _run(access: Access, opened: AbstractAsyncContextManager[Manager], server: ComponentServer) -> None:
    async with opened as manager, server.listening(manager):
        print(f"{len(manager.controllers)} controllers run against {access.server}; Ctrl-C stops them", flush=True)
        await run_until_signal(manager.run())


def _files(directory: Path) -> CertificateFiles:
    if not (directory / "ca.key").exists():
        fail(f"{directory} has no ca.key; give the directory pki of the data directory of pinnace up")
    return ensure_certificates(directory)
