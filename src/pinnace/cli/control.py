"""`pinnace up --control`: a cluster with the control endpoint for tests in any language."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import ip_address
from typing import Annotated, Protocol

import typer

from pinnace.cluster.auditing import AuditSettings
from pinnace.cluster.kubeconfig import ClusterAccess
from pinnace.cluster.settings import KeyFiles, Settings

ControlFlag = Annotated[
    bool,
    typer.Option(
        "--control",
        help="With --ephemeral: serve /control, with which tests fork the cluster, inject faults, move its clock and "
        "read its history. No pods run on this machine.",
    ),
]


class StartedCluster(Protocol):
    """A cluster that can be reached."""

    @property
    def url(self) -> str: ...
    @property
    def access(self) -> ClusterAccess: ...


class StartCluster(Protocol):
    """Runs a cluster within a block."""

    def __call__(
        self, settings: Settings, *, before_ready: Callable[[ClusterAccess], None]
    ) -> AbstractAsyncContextManager[StartedCluster]: ...


def control_error(settings: Settings) -> str:
    """Return why a cluster with these settings cannot have a control endpoint; empty if it can."""
    if settings.data_dir is not None or settings.etcd is not None:
        return "--control is for clusters in memory; add --ephemeral, and leave out --store"
    if not _is_loopback(settings.host):
        return f"--control listens on loopback only, not on {settings.host}; leave out --host"
    refused = {
        "--node and --agents": bool(settings.node),
        "--stages": settings.stages is not None,
        "--audit-*": settings.audit != AuditSettings(),
        "--tls-*, --client-ca-file and --service-account-signing-key-file": settings.key_files != KeyFiles(),
        "--encryption-key-file": settings.encryption_key_file is not None,
    }
    found = [flag for flag, is_given in refused.items() if is_given]
    return f"{found[0]} cannot be combined with --control; leave one of them out" if found else ""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@asynccontextmanager
async def controlled_cluster(
    settings: Settings, *, before_ready: Callable[[ClusterAccess], None]
) -> AsyncIterator[StartedCluster]:
    """Run a cluster with a control endpoint within a block, and print its address."""
    # The modules for tests load the SDK, which other clusters do not need.
    from pinnace.testing.control.endpoint import PREFIX, running_with_control  # noqa: PLC0415

    async with running_with_control(settings, before_ready=before_ready) as controlled:
        print(f"control endpoint: {controlled.url}{PREFIX}")
        yield controlled
