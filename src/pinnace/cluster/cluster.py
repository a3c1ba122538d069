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

from pinnace.auth.authentication.authenticators import TokenFileError
from pinnace.auth.certificates.authority import (
    SERVER_NAMES,
    CertificateError,
    CertificateFiles,
    ensure_certificates,
    use_key_files,
)
from pinnace.auth.remote import RemoteConfigError
from pinnace.client.kubeconfig_files import ClusterAccess
from pinnace.cluster.admission import needs_service_accounts
from pinnace.cluster.control_plane import ControlPlane, build
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.node import add_nodes
from pinnace.cluster.security import AuthorizationModeError
from pinnace.cluster.server_jobs import NAME as SCHEDULER
from pinnace.cluster.server_jobs import add_config_maps, add_extension_parts, add_regular_jobs, run_scheduler
from pinnace.cluster.settings import Settings
from pinnace.controllers.storage.local_path import default_storage_class
from pinnace.model.users import MASTERS, User
from pinnace.node.scratch import scratch_directory
from pinnace.process.event_loop import import_beside_loop
from pinnace.process.memory_trim import MemoryTrim
from pinnace.process.private_files import check_data_directory, write_private
from pinnace.process.stall_watch import StallWatch
from pinnace.process.tracing import is_loaded
from pinnace.reconcile.leader import LeaderElection
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.set_aside import AsideFile, judge_long_turn
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.server.audit.policy import AuditPolicyError
from pinnace.server.audit.settings import open_audit
from pinnace.server.bootstrap.creation import BootstrapError, bootstrap
from pinnace.server.bootstrap.endpoints import MasterLeases, is_usable_address
from pinnace.server.bootstrap.identity import ALONE, IdentityLease, ServerIdentity, hash_name, identify_server
from pinnace.server.bootstrap.objects import identity_lease
from pinnace.server.http.server import HttpServer, tls_context
from pinnace.server.part_metrics import add_encryption
from pinnace.serving.long_work import start_threads
from pinnace.store.encrypted import EncryptedStore
from pinnace.store.encryption.files import StoreEncryption, read_encryption
from pinnace.store.opening import STORE_MEMORY, check_etcd, etcd_extra, open_store
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
        reason = (os.strerror(why.errno) if why.errno else "") or str(why)
        fix = "choose another --port, or --port 0 for a free one"
        if why.errno == errno.EADDRNOTAVAIL:
            fix = "choose an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
        elif why.errno == errno.EACCES:
            fix = "choose a --port from 1024 on, or 0 for a free one"
        super().__init__(f"cannot listen on {host}:{port}: {reason}; {fix}")


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
        encryption = await read_encryption(
            settings.encryption_key_file, settings.encryption_configuration, reloads=settings.reloads_encryption
        )
        files, token = await _credentials(settings, directory, encryption)
        audit = open_audit(settings.audit)
        if audit is not None:
            stack.push_async_callback(audit.close)
        if store is None:
            store = await _open_store(settings, directory, encryption)
            stack.push_async_callback(_close_store, store)
        identity = identify_server(directory) if store.is_shared else ALONE
        tokens = {token: User("admin", (MASTERS,))}
        plane = await build(
            replace(settings, tracing=settings.tracing or is_loaded()),
            store,
            tokens=tokens,
            files=files,
            audit=audit,
            needs_service_accounts=needs_service_accounts(settings),
        )
        plane.metrics.of_server = ("apiserver_id_hash", hash_name(identity.name))
        if encryption is not None:
            _add_encryption(plane, encryption, reloads=settings.reloads_encryption)
        stack.push_async_callback(plane.close)
        server = await _listen(settings, files, plane, stack)
        await stack.enter_async_context(plane.supervisor.running())
        withdraw = await _begin(plane, settings, directory, server.port, identity)
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


async def _begin(
    plane: ControlPlane, settings: Settings, directory: Path, port: int, identity: ServerIdentity
) -> Callable[[], Awaitable[None]]:
    """Create the objects that every cluster has, and announce this server. Return how to withdraw it."""
    address = settings.advertise_address or settings.host
    plane.discovery.set_address(f"{address}:{port}")
    await bootstrap(
        plane.foundation,
        plane.local(),
        (address, port),
        storage_class=default_storage_class(str(directory / "volumes")),
        service_ranges=settings.service_ranges,
        has_controllers=settings.controllers,
        identity=identity,
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
    masters = MasterLeases(plane.foundation, identity.name, (address, port))
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
    from pinnace.metrics.kubelet_usage import serve_usage_of_nodes  # noqa: PLC0415 - not before the server is ready.

    serve_usage_of_nodes(plane.aggregation.api_services, plane.fanout, plane.nodes, plane.clock)


def _watch_stalls(plane: ControlPlane) -> None:
    stall_watch = StallWatch(judge=judge_long_turn)
    for name, about, read in stall_watch.gauges():
        plane.metrics.gauge(name, about, read)
    plane.supervisor.add("stall-watch", stall_watch.run)


async def _credentials(
    settings: Settings, directory: Path, encryption: StoreEncryption | None
) -> tuple[CertificateFiles, str]:
    """Return the certificates and the administrator's token; with etcd those that all its servers have in common."""
    shared = None
    if settings.etcd is not None:
        # Before anything is written to it: an empty etcd in its place would get new credentials.
        await check_etcd(settings.etcd, directory / STORE_MEMORY, accept_data_loss=settings.accept_data_loss)
        with etcd_extra():
            from pinnace.auth.certificates.shared_credentials import SharedCredentials  # noqa: PLC0415 - needs the extra

        shared = SharedCredentials(settings.etcd, directory, encryption.encryption if encryption is not None else None)
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
    check_data_directory(settings.data_dir)
    return settings.data_dir


def _add_encryption(plane: ControlPlane, parts: StoreEncryption, *, reloads: bool) -> None:
    """Run the parts of the encryption, and add its metrics and its health check."""
    if isinstance(plane.store, EncryptedStore):
        parts.store = plane.store
        plane.supervisor.add("store-decryption", plane.store.run)
    providers, file = parts.providers, parts.file
    if providers is None or file is None:
        return
    plane.supervisor.add("kms-status", providers.run)
    if reloads:
        plane.supervisor.add("poststarthook/start-encryption-provider-config-automatic-reload", file.run)
    if reloads or providers.plugins:
        plane.health.kms_providers = providers.check
    add_encryption(plane.metrics, providers, file)


async def _open_store(settings: Settings, directory: Path, encryption: StoreEncryption | None) -> Store:
    state = directory / "state.db" if settings.data_dir is not None else None
    return await open_store(
        state,
        encryption=encryption.encryption if encryption is not None else None,
        etcd=settings.etcd,
        memory=directory / STORE_MEMORY,
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
    _keep_aside(plane, manager, settings)
    nodes = _simulate(plane, manager, settings) if settings.nodes else None
    plane.supervisor.add(manager.name, manager.run)
    if settings.scheduler:
        plane.supervisor.add(SCHEDULER, partial(run_scheduler, plane, manager, settings.scheduler_configuration))
    return nodes


def _keep_aside(plane: ControlPlane, manager: Manager, settings: Settings) -> None:
    """Keep the records of what is set aside in the data directory, and report them."""
    aside = manager.aside
    if settings.data_dir is not None:
        aside.keep(AsideFile(settings.data_dir / "set-aside.json"))
    plane.health.set_aside = lambda: [str(record) for record in aside.present()]
    plane.metrics.gauge("pinnace_set_aside", "The objects and controllers that are set aside.", aside.samples)


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
        await import_beside_loop("pinnace.cluster.controllers")
        from pinnace.cluster.controllers import controllers_of  # noqa: PLC0415 - as above.
        from pinnace.controllers.built_in import ServiceOptions  # noqa: PLC0415 - as above.

        services = ServiceOptions(settings.service_ranges, settings.load_balancers)
        manager = controllers_of(plane, files, leads=plane.store.is_shared, services=services)
    else:
        client = in_process_client(plane.local(), field_manager="kubelet")
        leader = LeaderElection(client, SCHEDULER, namespace="kube-system") if plane.store.is_shared else None
        manager = Manager(client, name="kubelet", leader=leader, supervise=plane.supervisor.keep)
    return manager


def _simulate(plane: ControlPlane, manager: Manager, settings: Settings) -> SimulatedNodes:
    # Most clusters simulate no nodes, and few have a file of stages.
    from pinnace.cluster.simulated_nodes import simulate_nodes  # noqa: PLC0415
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


STARTUP_ERRORS = (
    CertificateError,
    TokenFileError,
    RemoteConfigError,
    ConfigurationError,
    AuditPolicyError,
    BootstrapError,
    AuthorizationModeError,
    StoreError,
    OSError,
)
