"""Builds the API server without its sockets: everything behind the HTTP layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pinnace.admission.chain import AdmissionChain
from pinnace.auth.authentication.impersonation import Impersonator
from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.auth.users import MASTERS, User
from pinnace.cluster.extensions.aggregation import Aggregation
from pinnace.cluster.extensions.custom_resources import CustomResources
from pinnace.cluster.extensions.webhook_client import HttpsWebhookClient
from pinnace.cluster.foundation import Foundation, lay_foundation
from pinnace.cluster.health.checks import Health
from pinnace.cluster.health.component_statuses import ComponentStatuses
from pinnace.cluster.health.supervisor import Supervisor
from pinnace.cluster.metrics.server_metrics import add_server_metrics
from pinnace.cluster.nodes.connections import LateStreams, Nodes
from pinnace.cluster.nodes.pod_forwards import PodForwards
from pinnace.cluster.nodes.service_addresses import ServedAddresses
from pinnace.cluster.request.admission import build_admission
from pinnace.cluster.request.request_spans import trace_server
from pinnace.cluster.request.security import Security, build_security
from pinnace.cluster.request.verbs import build_verbs
from pinnace.cluster.servers.address_records import AddressRecords
from pinnace.cluster.settings import Settings
from pinnace.cluster.version import version_of
from pinnace.kinds.flowcontrol.resources import GROUP as FLOW_CONTROL
from pinnace.kinds.pods.resource_metrics import render_pod_resources
from pinnace.model.clock import AlarmClock, SystemClock
from pinnace.model.objects import Kind
from pinnace.model.resources import Registry
from pinnace.model.work_slices import SliceQueue
from pinnace.server.access import AccessControl
from pinnace.server.audit.events import Auditor
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.watch_cache import CacheEvent
from pinnace.server.discovery.discovery import DiscoveryPages
from pinnace.server.discovery.openapi import OpenApi
from pinnace.server.discovery.pages import NonResourcePages
from pinnace.server.flowcontrol.flow_control import FlowControl
from pinnace.server.flowcontrol.work_estimates import WorkEstimator
from pinnace.server.handler import Handler, RequestLimits, RequestVerbs, ServerApi
from pinnace.server.http.deadlines import Deadlines
from pinnace.server.local import LocalApi
from pinnace.server.metrics import RequestMetrics
from pinnace.server.read.reader import ObjectReader
from pinnace.server.shared_verbs import SharedVerbs
from pinnace.server.targets import Targets
from pinnace.server.write.field_ownership import Ownerships
from pinnace.server.write.pipeline import Pipeline
from pinnace.server.write.reservations import ServiceReservations
from pinnace.store.store import Store

SYSTEM = User("system:apiserver", (MASTERS,))


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The server without its sockets. Its background parts run while `supervisor.running()` does."""

    api: ServerApi
    registry: Registry
    discovery: DiscoveryPages
    fanout: Fanout
    store: Store
    clock: AlarmClock
    metrics: RequestMetrics
    health: Health
    supervisor: Supervisor
    custom_resources: CustomResources
    aggregation: Aggregation
    webhooks: HttpsWebhookClient
    nodes: Nodes
    """Nodes of this process register here for exec, logs and the like."""
    forwards: PodForwards
    minor: str
    """The served Kubernetes, such as 1.36."""

    def local(self, user: User = SYSTEM) -> LocalApi:
        """Return the API for callers in this process."""
        return LocalApi(self.api, user)

    def last_change(self, kind: Kind) -> int | None:
        """Return the revision of the last change of a kind; None if it is not stored here."""
        resource = self.registry.of_kind(kind)
        if resource is None or self.aggregation.api_services.find(kind.group, kind.version) is not None:
            return None
        return self.fanout.cache(resource.prefix).changed

    async def close(self) -> None:
        """Close the connections to webhooks and aggregated servers. The store stays open."""
        await self.webhooks.close()
        await self.aggregation.close()
        await self.forwards.close()


async def build(
    settings: Settings,
    store: Store,
    *,
    clock: AlarmClock | None = None,
    tokens: dict[str, User] | None = None,
    files: CertificateFiles | None = None,
    audit: Auditor | None = None,
    needs_service_accounts: bool = False,
) -> ControlPlane:
    """Build the control plane over a store and load all stored objects.

    `needs_service_accounts`: refuse pods whose service account does not exist.
    """
    foundation = await lay_foundation(settings, store, clock or SystemClock())
    return build_on(
        foundation,
        settings,
        tokens=tokens or {},
        files=files,
        audit=audit,
        needs_service_accounts=needs_service_accounts,
    )


def build_on(
    foundation: Foundation,
    settings: Settings,
    *,
    tokens: dict[str, User],
    files: CertificateFiles | None = None,
    audit: Auditor | None = None,
    needs_service_accounts: bool = False,
) -> ControlPlane:
    """Build the control plane on loaded objects: see `build`."""
    fanout = foundation.fanout
    nodes, metrics = Nodes(fanout, files), RequestMetrics()
    forwards = PodForwards(nodes)
    served = ServedAddresses(fanout, forwards)
    webhooks = HttpsWebhookClient(served)
    custom_resources = CustomResources(foundation, webhooks)
    aggregation = Aggregation(foundation, files.front_proxy_client if files is not None else None, served)
    security = build_security(foundation, settings.auth, tokens=tokens, files=files)
    admission = build_admission(
        foundation, security, webhooks, settings.admission, needs_service_accounts=needs_service_accounts
    )
    flows, health = (
        _build_flow_control(foundation, settings, metrics),
        Health(foundation.store, fanout, foundation.supervisor),
    )
    slices, addresses = SliceQueue.of_loop(), AddressRecords(foundation.registry, fanout)
    verbs = _build_verbs(foundation, settings, security, admission, nodes, slices, addresses)
    discovery = DiscoveryPages(foundation.registry, aggregated=aggregation.api_services)
    api = Handler(
        targets=Targets(foundation.registry, aggregation.api_services),
        verbs=verbs,
        pages=_build_pages(foundation, aggregation, security, discovery, metrics, health),
        access=_build_access(foundation, security),
        limits=RequestLimits(flow_control=flows, deadlines=Deadlines(settings.request_timeout), slices=slices),
        metrics=metrics,
        audit=audit,
    )
    if settings.tracing:
        trace_server(api, api.fast_reads, admission, webhooks, foundation.store)
    addresses.connect(LocalApi(api, SYSTEM))
    add_server_metrics(metrics, foundation, aggregation, flows, audit, admission.metrics)
    return ControlPlane(
        api=api,
        registry=foundation.registry,
        discovery=discovery,
        fanout=fanout,
        store=foundation.store,
        clock=foundation.clock,
        metrics=metrics,
        health=health,
        supervisor=foundation.supervisor,
        custom_resources=custom_resources,
        aggregation=aggregation,
        webhooks=webhooks,
        nodes=nodes,
        forwards=forwards,
        minor=foundation.definitions.minor,
    )


def _build_pages(
    foundation: Foundation,
    aggregation: Aggregation,
    security: Security,
    discovery: DiscoveryPages,
    metrics: RequestMetrics,
    health: Health,
) -> NonResourcePages:
    pods = foundation.objects("", "pods")
    return NonResourcePages(
        version=version_of(foundation.definitions.minor),
        discovery=discovery,
        openapi=OpenApi(foundation.registry, foundation.definitions),
        metrics={
            "/metrics": metrics.text,
            "/metrics/resources": lambda: render_pod_resources(pod for _, pod in pods.items()),
        },
        issuer=security.issuer,
        health=health,
        aggregated=aggregation.api_services,
    )


def _build_access(foundation: Foundation, security: Security) -> AccessControl:
    return AccessControl(
        identify=security.identify,
        impersonator=Impersonator(security.authorizer, constrained=foundation.is_since(36)),
        authorizer=security.authorizer,
    )


def _build_flow_control(foundation: Foundation, settings: Settings, metrics: RequestMetrics) -> FlowControl:
    return FlowControl(
        foundation.objects(FLOW_CONTROL, "flowschemas"),
        foundation.objects(FLOW_CONTROL, "prioritylevelconfigurations"),
        queue_seconds=settings.request_timeout / 4,
        estimator=WorkEstimator(foundation.fanout),
        on_reject=metrics.drop,
    )


def _build_verbs(
    foundation: Foundation,
    settings: Settings,
    security: Security,
    admission: AdmissionChain,
    nodes: Nodes,
    slices: SliceQueue,
    addresses: AddressRecords,
) -> RequestVerbs:
    fanout, store = foundation.fanout, foundation.store
    components = ComponentStatuses(store, foundation.supervisor, has_scheduler=settings.scheduler)
    ownerships = Ownerships(foundation.registry)
    verbs = build_verbs(
        foundation,
        reader=ObjectReader(
            fanout,
            store,
            slices=slices,
            computed={"componentstatuses": components.compute},
            watch_seconds=settings.min_request_timeout,
        ),
        pipeline=_build_pipeline(foundation, settings, admission, security, ownerships, addresses),
        ownerships=ownerships,
        security=security,
        streams=LateStreams(fanout, nodes, admission, security.authorizer, minor=foundation.definitions.minor),
    )
    return SharedVerbs(verbs, store, fanout) if store.is_shared else verbs


def _build_pipeline(
    foundation: Foundation,
    settings: Settings,
    admission: AdmissionChain,
    security: Security,
    ownerships: Ownerships,
    addresses: AddressRecords,
) -> Pipeline:
    reservations = ServiceReservations(*settings.service_ranges, objects=addresses)
    for _, service in foundation.objects("", "services").items():
        reservations.adopt(service)
    if foundation.store.is_shared:
        services = foundation.stored_resource("", "services")
        reservations.follow(None, None)
        foundation.fanout.on_change(services.prefix, partial(_follow_service, reservations))
    return Pipeline(
        fanout=foundation.fanout,
        store=foundation.store,
        clock=foundation.clock,
        admission=admission,
        authorizer=security.authorizer,
        reservations=reservations,
        ownerships=ownerships,
    )


def _follow_service(reservations: ServiceReservations, event: CacheEvent) -> None:
    old, new = event.old, event.new
    reservations.follow(old.decode() if old is not None else None, new.decode() if new is not None else None)
