"""Puts the parts together into one running cluster. The only place that chooses implementations."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from OpenSSL import SSL

from pinnace.auth.certificates.authority import (
    SERVER_NAMES,
    CertificateError,
    CertificateFiles,
    ensure_certificates,
    write_private,
)
from pinnace.auth.users import MASTERS, User
from pinnace.cluster.auditing import open_audit
from pinnace.cluster.background.scheduling import NAME as SCHEDULER
from pinnace.cluster.background.scheduling import run_scheduler
from pinnace.cluster.background.server_config_maps import add_config_maps
from pinnace.cluster.background.server_jobs import add_extension_parts, add_regular_jobs
from pinnace.cluster.bootstrap.creation import bootstrap
from pinnace.cluster.bootstrap.endpoints import is_usable_address
from pinnace.cluster.bootstrap.identity import ALONE, ServerIdentity, identify_server
from pinnace.cluster.bootstrap.objects import identity_lease
from pinnace.cluster.control_plane import ControlPlane, build
from pinnace.cluster.files.key_files import use_key_files
from pinnace.cluster.files.scratch import scratch_directory
from pinnace.cluster.files.storage import open_store, shared_credentials
from pinnace.cluster.health.memory_trim import MemoryTrim
from pinnace.cluster.health.stall_watch import StallWatch
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.kubeconfig import ClusterAccess
from pinnace.cluster.processes.node import add_nodes
from pinnace.cluster.request.admission import needs_service_accounts
from pinnace.cluster.servers.identity_lease import IdentityLease
from pinnace.cluster.servers.master_leases import MasterLeases
from pinnace.cluster.settings import Settings
from pinnace.model.late_imports import import_beside_loop
from pinnace.model.tracing import is_loaded
from pinnace.reconcile.leader import LeaderElection
from pinnace.reconcile.manager import Manager
from pinnace.server.http.server import HttpServer, tls_context
from pinnace.server.long_work import start_threads
from pinnace.store.encryption_keys import read_keys
from pinnace.store.store import Removed, Store, StoreError

if TYPE_CHECKING:
    from pinnace.node.simulated.nodes import SimulatedNodes

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
STOP_POD_SECONDS = 0.5
"""How long the containers of a simulated pod take to stop: clients see the pod with its deletionTimestamp meanwhile."""
REGISTER_SECONDS = 60.0
"""How long a start waits for its simulated nodes."""


class CannotListen(OSError):
    """The address is taken, or is not ours."""

    def __init__(self, host: str, port: int, why: OSError) -> None:
        said = (os.strerror(why.errno) if why.errno else "") or str(why)
        fix = "choose another --port, or --port 0 for a free one"
        if why.errno == errno.EADDRNOTAVAIL:
            fix = "choose an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
        elif why.errno == errno.EACCES:
            fix = "choose a --port from 1024 on, or 0 for a free one"
        super().__init__(f"cannot listen on {host}:{port}: {said}; {fix}")


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A cluster that can be reached."""

    plane: ControlPlane
    access: ClusterAccess
    server: HttpServer

    @property
    def url(self) -> str:
        return self.access.server


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    before_ready: Callable[[ClusterAccess], None] = lambda access: None,
    store: Store | None = None,
) -> AsyncIterator[RunningCluster]:
    """Run a cluster within a block, from its readiness to its clean stop.

    `before_ready` is called with the way to reach the cluster, before /readyz answers ok. A given `store` is used
    instead of the one in the data directory, and stays open: several servers may share it.
    """
    async with AsyncExitStack() as stack:
        directory = _directory(settings, stack)
        files, token = await _credentials(settings, directory)
        audit = open_audit(settings.audit)
        if audit is not None:
            stack.push_async_callback(audit.close)
        if store is None:
            store = await _open_store(settings, directory)
            stack.push_async_callback(_close_store, store)
        tokens = {token: User("admin", (MASTERS,))}
        plane = await build(
            replace(settings, tracing=settings.tracing or is_loaded()),
            store,
            tokens=tokens,
            files=files,
            audit=audit,
            needs_service_accounts=needs_service_accounts(settings),
        )
        stack.push_async_callback(plane.close)
        server = await _listen(settings, files, plane, stack)
        await stack.enter_async_context(plane.supervisor.running())
        withdraw = await _begin(plane, settings, directory, server.port)
        add_extension_parts(plane)
        await add_config_maps(plane, files)
        add_regular_jobs(plane)
        _watch_stalls(plane)
        plane.supervisor.add("memory-trim", MemoryTrim().run)
        access = _access(settings, files, token, server.port)
        if not settings.nodes:  # Then nothing that clients wait for is left to do.
            before_ready(access)
            plane.health.is_ready = True
        start_threads()
        nodes = await _start_manager(plane, files, settings)
        if nodes is not None:
            await _register(nodes, needs_ranges=settings.controllers)
            before_ready(access)
            plane.health.is_ready = True
        _serve_usage(plane)
        if settings.node:
            add_nodes(plane, settings, directory, access, files)
        stack.push_async_callback(_drain, plane, server, settings.shutdown_delay, withdraw)
        yield RunningCluster(plane, access, server)


async def _begin(plane: ControlPlane, settings: Settings, directory: Path, port: int) -> Callable[[], Awaitable[None]]:
    """Create the objects that every cluster has, and announce this server. Return how to withdraw it."""
    identity = identify_server(directory) if plane.store.is_shared else ALONE
    address = settings.advertise_address or settings.host
    await bootstrap(
        plane,
        address=address,
        port=port,
        volumes=str(directory / "volumes"),
        service_ranges=settings.service_ranges,
        has_controllers=settings.controllers,
        server=identity,
    )
    return await _announce(plane, identity, address, port)


async def _announce(
    plane: ControlPlane, identity: ServerIdentity, address: str, port: int
) -> Callable[[], Awaitable[None]]:
    """Keep the Lease of this server and, beside other servers, its place in the endpoints. Return how to give up both.

    The endpoints of the only server of a cluster stay as they are.
    """
    lease = IdentityLease(plane.local(), plane.clock, identity_lease(identity, f"{address}:{port}", plane.clock.now()))
    plane.supervisor.add("poststarthook/start-kube-apiserver-identity-lease-controller", lease.run)
    if not plane.store.is_shared or not is_usable_address(address):
        return lease.release
    masters = MasterLeases(plane, identity.name, (address, port))
    await masters.publish()
    plane.supervisor.add("poststarthook/bootstrap-controller", masters.run_endpoints)
    plane.supervisor.add("master-lease-renewal", masters.run_renewal)

    async def withdraw() -> None:
        await masters.withdraw()
        await lease.release()

    return withdraw


async def _drain(
    plane: ControlPlane, server: HttpServer, seconds: float, withdraw: Callable[[], Awaitable[None]]
) -> None:
    plane.health.is_stopping = True
    await withdraw()
    await server.drain(seconds)


def _serve_usage(plane: ControlPlane) -> None:
    from pinnace.cluster.metrics.kubelet_usage import serve_usage_of_nodes  # noqa: PLC0415 - not before the server is ready.

    serve_usage_of_nodes(plane)


def _watch_stalls(plane: ControlPlane) -> None:
    stall_watch = StallWatch()
    stall_watch.measured_by(plane.metrics)
    plane.supervisor.add("stall-watch", stall_watch.run)


async def _credentials(settings: Settings, directory: Path) -> tuple[CertificateFiles, str]:
    """Return the certificates and the administrator's token; with etcd those that all its servers have in common."""
    shared = None
    if settings.etcd is not None:
        keys = read_keys(settings.encryption_key_file) if settings.encryption_key_file is not None else None
        shared = shared_credentials(settings.etcd, directory, keys)
    while True:
        if shared is not None:
            await shared.adopt()
        files = ensure_certificates(directory / "pki", server_names=_names(settings))
        token = _token(directory)
        if shared is None or await shared.publish():
            return use_key_files(files, settings.key_files, directory / "pki"), token


def _directory(settings: Settings, stack: AsyncExitStack) -> Path:
    """Return the data directory; for a cluster in memory a temporary one, removed at the end."""
    if settings.data_dir is None:
        return stack.enter_context(scratch_directory())
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return settings.data_dir


async def _open_store(settings: Settings, directory: Path) -> Store:
    state = directory / "state.db" if settings.data_dir is not None else None
    return await open_store(
        state,
        key_file=settings.encryption_key_file,
        etcd=settings.etcd,
        accept_data_loss=settings.accept_data_loss,
    )


async def _close_store(store: Store) -> None:
    """Close the store. Raise Removed if its files were removed meanwhile: other errors would hide that cause."""
    removed: Removed | None = None
    if not store.is_shared:  # A shared store has no files, and its answer may take long.
        try:
            await store.check_read()
        except Removed as error:
            removed = error
        except StoreError as error:
            log.warning("the store cannot be read at the end: %s", error)
    await store.close()
    if removed is not None:
        raise removed


async def _listen(
    settings: Settings, files: CertificateFiles, plane: ControlPlane, stack: AsyncExitStack
) -> HttpServer:
    try:
        context = tls_context(
            certificate=files.server.certificate,
            key=files.server.key,
            client_ca=files.client_ca,
            proxy_ca=files.front_proxy_ca.certificate,
        )
    except SSL.Error as error:
        pair = f"{files.server.certificate} and {files.server.key}"
        raise CertificateError(f"{pair} are not a certificate and its private key ({error}); expected PEM") from None
    server = HttpServer()
    stack.push_async_callback(server.stop, STOP_SECONDS)
    try:
        await server.start(settings.host, settings.port, context, plane.api, shares_port=settings.shares_port)
    except OSError as error:
        raise CannotListen(settings.host, settings.port, error) from error
    plane.metrics.gauge(
        "pinnace_slow_clients_closed_total",
        "Connections that were closed because the client read nothing for 30 s.",
        lambda: [((), float(server.cut_off))],
    )
    return server


async def _start_manager(plane: ControlPlane, files: CertificateFiles, settings: Settings) -> SimulatedNodes | None:
    """Start the controllers, the scheduler and the simulated nodes, as configured; return the nodes."""
    if not settings.controllers and not settings.nodes and not settings.scheduler:
        return None
    manager = await _manager_of(plane, files, settings)
    nodes = _simulate(plane, manager, settings) if settings.nodes else None
    plane.supervisor.add(manager.name, manager.run)
    if settings.scheduler:
        plane.supervisor.add(SCHEDULER, partial(run_scheduler, plane, manager))
    return nodes


async def _register(nodes: SimulatedNodes, *, needs_ranges: bool) -> None:
    """Wait for the nodes to be registered. Another server, or a policy that refuses nodes, must not hold up the API."""
    registration = nodes.registration
    try:
        async with asyncio.timeout(REGISTER_SECONDS):
            await registration.complete(needs_ranges=needs_ranges)
    except TimeoutError:
        missing = registration.missing(needs_ranges=needs_ranges)
        log.warning("%d simulated nodes are not registered after %.0f s", missing, REGISTER_SECONDS)


async def _manager_of(plane: ControlPlane, files: CertificateFiles, settings: Settings) -> Manager:
    if settings.controllers:
        # The server is ready, and eighty modules take a while to load.
        await import_beside_loop("pinnace.cluster.background.controllers")
        from pinnace.cluster.background.controllers import ServiceOptions, controllers_of  # noqa: PLC0415

        services = ServiceOptions(settings.service_ranges, settings.load_balancers)
        manager = controllers_of(plane, files, leads=plane.store.is_shared, services=services)
    else:
        client = in_process_client(plane.local(), field_manager="kubelet")
        leader = LeaderElection(client, SCHEDULER, namespace="kube-system") if plane.store.is_shared else None
        manager = Manager(client, name="kubelet", leader=leader, supervise=plane.supervisor.keep)
    return manager


def _simulate(plane: ControlPlane, manager: Manager, settings: Settings) -> SimulatedNodes:
    # Most clusters simulate no nodes, and few have a file of stages.
    from pinnace.cluster.nodes.simulation import simulate_nodes  # noqa: PLC0415
    from pinnace.node.simulated.fast import FastLife, Pace  # noqa: PLC0415
    from pinnace.node.simulated.machines import node_names  # noqa: PLC0415

    names = list(node_names(settings.nodes))
    if settings.stages is None:
        life = FastLife(Pace(delete=STOP_POD_SECONDS))
        return simulate_nodes(plane, manager, names, life=life, usage=settings.usage)
    from pinnace.node.simulated.kwok.files import load_stages  # noqa: PLC0415

    lives = load_stages(settings.stages)
    return simulate_nodes(plane, manager, names, life=lives.pods, node_life=lives.nodes, usage=settings.usage)


def url_of(host: str, port: int) -> str:
    """Return the URL of a server at an address or name."""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _access(settings: Settings, files: CertificateFiles, token: str, port: int) -> ClusterAccess:
    return ClusterAccess(
        server=url_of(settings.host, port),
        ca=files.root_ca.read_bytes(),
        client_certificate=files.admin.certificate.read_bytes(),
        client_key=files.admin.key.read_bytes(),
        token=token,
        name=settings.name,
    )


def _token(directory: Path) -> str:
    path = directory / "token"
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode())
    return path.read_text().strip()


def _names(settings: Settings) -> tuple[str, ...]:
    first = str(next(iter(ip_network(settings.service_range).hosts())))
    advertised = (settings.advertise_address,) if settings.advertise_address else ()
    return tuple(dict.fromkeys((*SERVER_NAMES, settings.host, first, *advertised)))
