"""Puts the parts together into one running cluster. The only place that chooses implementations."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from pinnace import __version__
from pinnace.auth.authentication.impersonation import Impersonator
from pinnace.auth.certificates.authority import SERVER_NAMES, CertificateFiles, ensure_certificates, write_private
from pinnace.auth.settings import AuthSettings
from pinnace.auth.users import MASTERS, User
from pinnace.cluster import kubeconfig
from pinnace.cluster.admission import Admission, build_admission
from pinnace.cluster.aggregation import Aggregation
from pinnace.cluster.auditing import AuditSettings, open_audit
from pinnace.cluster.background_jobs import compact_regularly, expire_events_regularly, renew_lease_regularly
from pinnace.cluster.bootstrap.default_roles import ensure_default_roles
from pinnace.cluster.bootstrap.objects import api_endpoints, bootstrap_objects
from pinnace.cluster.cached_objects import CachedObjects
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.custom_resources import CustomResources
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.kubeconfig import Access
from pinnace.cluster.nodes import LateStreams, Nodes
from pinnace.cluster.security import build_security
from pinnace.cluster.simulation import simulate_nodes
from pinnace.cluster.storage import open_store
from pinnace.cluster.verbs import build_verbs
from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions, minors
from pinnace.model.clock import Clock, SystemClock, to_rfc3339
from pinnace.model.objects import Kind, Object, new_uid
from pinnace.model.resources import Registry
from pinnace.node.simulated.machines import node_names
from pinnace.reconcile.manager import Manager
from pinnace.server.audit.events import Auditor
from pinnace.server.cache.fanout import Fanout
from pinnace.server.discovery.discovery import DiscoveryPages
from pinnace.server.discovery.openapi import OpenApi
from pinnace.server.discovery.pages import NonResourcePages
from pinnace.server.flowcontrol import metrics as flow_metrics
from pinnace.server.flowcontrol.flow_control import FlowControl
from pinnace.server.handler import Handler
from pinnace.server.http.deadlines import LIMIT_SECONDS
from pinnace.server.http.server import HttpServer, tls_context
from pinnace.server.local import LocalApi
from pinnace.server.metrics import RequestMetrics
from pinnace.server.read.reader import WATCH_SECONDS, ObjectReader
from pinnace.server.write.field_ownership import Ownerships
from pinnace.server.write.pipeline import Pipeline
from pinnace.server.write.reservations import ServiceReservations
from pinnace.server.write.versions import encode
from pinnace.store.store import Store

SYSTEM = User("system:apiserver", (MASTERS,))
STOP_SECONDS = 5.0
_BIRTH = "poststarthook/start-cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a cluster is to be. Without a `data_dir` it lives in memory and leaves nothing behind."""

    data_dir: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    kubernetes_version: str = ""
    """A minor such as 1.31; the newest if empty."""
    name: str = kubeconfig.DEFAULT_NAME
    old_versions: bool = True
    controllers: bool = True
    """Whether namespaces are emptied, garbage is collected, and what every namespace has is made."""
    nodes: int = 0
    """The number of simulated nodes."""
    auth: AuthSettings = field(default_factory=AuthSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    request_timeout: float = LIMIT_SECONDS
    """Seconds that a request may take, unless it goes on by its nature."""
    min_request_timeout: float = WATCH_SECONDS
    """Seconds that a watch lasts at least whose client does not say how long."""
    encryption_key_file: Path | None = None
    """Keys to seal secrets with where they are stored, the newest first; without it they are stored as they are."""


class CannotListen(OSError):
    """The address is taken, or is not ours."""

    def __init__(self, host: str, port: int, why: OSError) -> None:
        said = (os.strerror(why.errno) if why.errno else "") or str(why)
        super().__init__(f"cannot listen on {host}:{port}: {said}; choose another port, or 0 for a free one")


class Readiness:
    """Whether clients may be told that the cluster is ready: its first objects are made, its kubeconfigs written."""

    def __init__(self) -> None:
        self.is_reached = False

    def check(self) -> str:
        return "" if self.is_reached else "the cluster is being born"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The server without its sockets: everything behind the HTTP layer."""

    api: Handler
    registry: Registry
    discovery: DiscoveryPages
    fanout: Fanout
    store: Store
    clock: Clock
    metrics: RequestMetrics
    readiness: Readiness
    custom_resources: CustomResources
    aggregation: Aggregation
    admission: Admission
    nodes: Nodes
    """Where nodes of this process are registered, for exec and logs and the like."""
    minor: str
    """Which Kubernetes this is, as 1.36."""

    def local(self, user: User = SYSTEM) -> LocalApi:
        """The API for callers in this process."""
        return LocalApi(self.api, user)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that can be reached."""

    plane: ControlPlane
    access: Access
    server: HttpServer

    @property
    def url(self) -> str:
        return self.access.server


async def build(
    settings: Settings,
    store: Store,
    *,
    clock: Clock | None = None,
    tokens: dict[str, User] | None = None,
    files: CertificateFiles | None = None,
    audit: Auditor | None = None,
    needs_service_accounts: bool = False,
) -> ControlPlane:
    """The control plane over a store, with everything that is stored loaded.

    `needs_service_accounts`: pods run as accounts that exist, which somebody has to make in every namespace.
    """
    clock = clock or SystemClock()
    definitions = Definitions.load(settings.kubernetes_version or minors()[-1])
    registry = Registry(catalog.resources(definitions, old_versions=settings.old_versions))
    fanout = Fanout(store)
    await fanout.load()
    custom_resources = CustomResources(registry, fanout, definitions, clock=clock)
    aggregation = Aggregation(fanout, files.front_proxy_client if files is not None else None)
    security = build_security(
        registry,
        fanout,
        store,
        clock,
        tokens=tokens or {},
        settings=settings.auth,
        minor=definitions.minor,
        files=files,
    )
    ownerships = Ownerships(registry)
    reservations = ServiceReservations()
    for entry in fanout.cache("/registry/core/services/").entries.values():
        reservations.adopt(entry.decode())
    admission = build_admission(
        registry,
        fanout,
        store,
        clock,
        security,
        needs_service_accounts=needs_service_accounts,
        limits_audiences=_minor(definitions.minor) >= (1, 33),
        guards_claims=_minor(definitions.minor) >= (1, 36),
    )
    pipeline = Pipeline(
        fanout=fanout,
        store=store,
        clock=clock,
        admission=admission.chain,
        reservations=reservations,
        ownerships=ownerships,
    )
    metrics = RequestMetrics()
    flows = FlowControl(
        CachedObjects(fanout, "/registry/flowcontrol.apiserver.k8s.io/flowschemas/"),
        CachedObjects(fanout, "/registry/flowcontrol.apiserver.k8s.io/prioritylevelconfigurations/"),
        patience=settings.request_timeout / 4,
        on_refusal=metrics.drop,
    )
    readiness = Readiness()
    nodes = Nodes(fanout, files)
    discovery = DiscoveryPages(registry, aggregated=aggregation.api_services)
    api = Handler(
        registry=registry,
        verbs=build_verbs(
            registry,
            fanout,
            definitions,
            clock,
            reader=ObjectReader(fanout, store, watch_seconds=settings.min_request_timeout),
            pipeline=pipeline,
            security=security,
            streams=LateStreams(fanout, nodes, admission.chain, security.authorizer, minor=definitions.minor),
        ),
        pages=NonResourcePages(
            version=version_of(definitions.minor),
            discovery=discovery,
            openapi=OpenApi(registry, definitions),
            metrics=metrics.text,
            issuer=security.issuer,
            checks={
                "ping": _is_well,
                "log": _is_well,
                "etcd": _is_well,
                "informer-sync": _is_well,
                _BIRTH: readiness.check,
            },
            only_ready=frozenset(("informer-sync", _BIRTH)),
            aggregated=aggregation.api_services,
        ),
        identify=security.identify,
        authorizer=security.authorizer,
        impersonator=Impersonator(security.authorizer, constrained=_minor(definitions.minor) >= (1, 36)),
        metrics=metrics,
        aggregated=aggregation.api_services,
        audit=audit,
        flow_control=flows,
        request_timeout=settings.request_timeout,
    )
    for name, about, read in flow_metrics.gauges(flows):
        metrics.gauge(name, about, read)
    metrics.histogram(
        flow_metrics.WAIT_SECONDS,
        "How long requests waited for their turn.",
        lambda: flow_metrics.wait_durations(flows),
    )
    if audit is not None:
        metrics.gauge("apiserver_audit_event_total", "Audit events.", lambda: [((), float(audit.written))])
    metrics.gauge(
        "apiserver_storage_objects",
        "Stored objects by resource.",
        lambda: [((("resource", prefix.split("/")[3]),), float(count)) for prefix, count in fanout.counts().items()],
    )
    metrics.gauge(
        "apiserver_registered_watchers",
        "Open watches.",
        lambda: [((), float(len(fanout.watchers())))],
    )
    aggregation.measured_by(metrics)
    return ControlPlane(
        api,
        registry,
        discovery,
        fanout,
        store,
        clock,
        metrics,
        readiness,
        custom_resources,
        aggregation,
        admission,
        nodes,
        definitions.minor,
    )


@asynccontextmanager
async def running(
    settings: Settings, *, before_ready: Callable[[Access], None] = lambda access: None
) -> AsyncIterator[Cluster]:
    """A cluster from its start, ready, to its clean stop.

    `before_ready` is told how to reach it: what that does is done when /readyz says ok.
    """
    scratch = Path(tempfile.mkdtemp(prefix="pinnace-")) if settings.data_dir is None else None
    directory = settings.data_dir or scratch
    assert directory is not None
    store: Store | None = None
    audit: Auditor | None = None
    plane: ControlPlane | None = None
    upkeep: list[asyncio.Task[None]] = []
    server = HttpServer()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = ensure_certificates(directory / "pki", server_names=_names(settings.host))
        token = _token(directory)
        audit = open_audit(settings.audit)
        state = directory / "state.db" if scratch is None else None
        store = await open_store(state, key_file=settings.encryption_key_file)
        tokens = {token: User("admin", (MASTERS,))}
        plane = await build(
            settings, store, tokens=tokens, files=files, audit=audit, needs_service_accounts=settings.controllers
        )
        context = tls_context(
            certificate=files.server.certificate,
            key=files.server.key,
            client_ca=files.ca.certificate,
            proxy_ca=files.front_proxy_ca.certificate,
        )
        try:
            await server.start(settings.host, settings.port, context, plane.api)
        except OSError as error:
            raise CannotListen(settings.host, settings.port, error) from error
        await bootstrap(plane, address=settings.host, port=server.port)
        definer = in_process_client(plane.local(), field_manager="kube-apiserver")
        upkeep.append(asyncio.create_task(plane.custom_resources.run(definer)))
        upkeep.append(asyncio.create_task(plane.aggregation.run(definer)))
        upkeep.append(asyncio.create_task(compact_regularly(store)))
        upkeep.append(asyncio.create_task(renew_lease_regularly(plane.local(), plane.clock)))
        upkeep.append(asyncio.create_task(expire_events_regularly(plane.fanout, store, plane.clock)))
        access = _access(settings, files, token, server.port)
        before_ready(access)
        plane.readiness.is_reached = True
        manager = manager_of(plane, files, settings)
        if manager is not None:
            upkeep.append(asyncio.create_task(manager.run()))
        yield Cluster(plane, access, server)
    finally:
        for task in upkeep:
            task.cancel()
        await asyncio.gather(*upkeep, return_exceptions=True)
        await server.stop(STOP_SECONDS)
        if plane is not None:
            await plane.admission.webhooks.close()
        if store is not None:
            await store.close()
        if audit is not None:
            await audit.close()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def manager_of(plane: ControlPlane, files: CertificateFiles, settings: Settings) -> Manager | None:
    """The loops that the settings ask for: controllers, simulated nodes, both or none."""
    if not settings.controllers and not settings.nodes:
        return None
    manager = (
        controllers_of(plane, files)
        if settings.controllers
        else Manager(in_process_client(plane.local(), field_manager="kubelet"), name="kubelet")
    )
    if settings.nodes:
        simulate_nodes(plane, manager, list(node_names(settings.nodes)))
    return manager


async def bootstrap(plane: ControlPlane, *, address: str, port: int) -> None:
    """Make what every cluster has from the start and this one lacks."""
    plane.discovery.tell_address(f"{address}:{port}")
    local = plane.local()
    for obj in bootstrap_objects(plane.registry, address=address, port=port, now=plane.clock.now()):
        await _ensure(plane, local, obj)
    await ensure_default_roles(plane.registry, plane.fanout, plane.store, plane.clock.now(), minor=plane.minor)
    for obj in api_endpoints(address, port):
        await _point(plane, obj)


async def _point(plane: ControlPlane, obj: Object) -> None:
    """Store the API's own endpoints, past validation: that refuses loopback, and here the API is on loopback."""
    resource = plane.registry.of_kind(Kind.parse(obj["apiVersion"], obj["kind"]))
    if resource is None:
        return
    key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
    present = plane.fanout.cache(resource.prefix).entries.get(key)
    known = present.decode()["metadata"] if present is not None else {}
    born = {"uid": new_uid(), "creationTimestamp": to_rfc3339(plane.clock.now())}
    obj["metadata"] = {**obj["metadata"], **born, **{name: known[name] for name in born if name in known}}
    await plane.store.put(resource.prefix + key, encode(obj, resource), expected=None)


async def _ensure(plane: ControlPlane, local: LocalApi, obj: Object) -> None:
    resource = plane.registry.of_kind(Kind.parse(obj["apiVersion"], obj["kind"]))
    if resource is None:
        return  # This minor does not have the kind.
    name = obj["metadata"]["name"]
    key = f"{obj['metadata']['namespace']}/{name}" if resource.namespaced else name
    if key in plane.fanout.cache(resource.prefix).entries:
        return  # Made at an earlier start. Whoever has changed it since had a reason.
    group = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    where = f"/namespaces/{obj['metadata']['namespace']}" if resource.namespaced else ""
    target = f"{group}{where}/{resource.plural}"
    headers = {"content-type": "application/json", "user-agent": "kube-apiserver"}
    answer = await local.request("POST", target, orjson.dumps(obj), headers)
    if answer.status not in (201, 409):
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        raise RuntimeError(f"{resource.plural} {obj['metadata']['name']} could not be made: {body.decode()}")
    if answer.status == 201 and "status" in obj and resource.has_status:
        status_target = f"{target}/{obj['metadata']['name']}/status"
        patch = orjson.dumps({"status": obj["status"]})
        headers = {"content-type": "application/merge-patch+json", "user-agent": "kube-apiserver"}
        await local.request("PATCH", status_target, patch, headers)


def version_of(minor: str) -> dict[str, str]:
    """What /version says: the Kubernetes that is served, and by whom."""
    major, _, number = minor.partition(".")
    return {
        "major": major,
        "minor": number,
        "emulationMajor": major,
        "emulationMinor": number,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(number) - 1),
        "gitVersion": f"v{minor}.0+pinnace.{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": f"python{sys.version_info.major}.{sys.version_info.minor}",
        "platform": f"{sys.platform}/{_architecture()}",
    }


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine or "unknown")


def _access(settings: Settings, files: CertificateFiles, token: str, port: int) -> Access:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return Access(
        server=f"https://{host}:{port}",
        ca=files.ca.certificate.read_bytes(),
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


def _names(host: str) -> tuple[str, ...]:
    return (*SERVER_NAMES, host) if host not in SERVER_NAMES else tuple(SERVER_NAMES)


def _is_well() -> str:
    return ""
