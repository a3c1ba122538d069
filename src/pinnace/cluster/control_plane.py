"""Builds the API server without its sockets: everything behind the HTTP layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from ipaddress import ip_network

from pinnace.admission.chain import AdmissionChain
from pinnace.auth.authentication.impersonation import Impersonator
from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.cluster.admission import build_admission
from pinnace.cluster.extensions import Aggregation, CustomResources
from pinnace.cluster.security import Security, build_security
from pinnace.cluster.settings import Settings
from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.kinds.flowcontrol import GROUP as FLOW_CONTROL
from pinnace.kinds.pods.resource_metrics import render_pod_resources
from pinnace.kinds.runtime_config import RuntimeConfig
from pinnace.kinds.services.strategy import service_strategy
from pinnace.kinds.services.types import DEFAULT_FAMILIES
from pinnace.model.objects import Kind
from pinnace.model.resources import Registry, Resource
from pinnace.model.users import MASTERS, User
from pinnace.process.clock import AlarmClock, SystemClock
from pinnace.process.supervisor import Supervisor
from pinnace.process.work_slices import SliceQueue
from pinnace.server.audit.events import Auditor
from pinnace.server.flowcontrol.flow_control import FlowControl
from pinnace.server.flowcontrol.work_estimates import WorkEstimator
from pinnace.server.foundation import Foundation
from pinnace.server.handler import AccessControl, Handler, RequestLimits, RequestVerbs, ServerApi
from pinnace.server.health.checks import Health
from pinnace.server.health.component_statuses import ComponentStatuses
from pinnace.server.health.zpages import ZPages
from pinnace.server.local import LocalApi
from pinnace.server.metrics import RequestMetrics
from pinnace.server.nodes.connections import LateStreams, Nodes, PodForwards, ServedAddresses
from pinnace.server.part_metrics import add_server_metrics
from pinnace.server.request_spans import TracedAdmission, TracedApi, TracedWebhooks, TracedWrites
from pinnace.server.reviews import Reviews, ReviewSecurity
from pinnace.server.targets import Targets
from pinnace.server.verbs import SharedVerbs, Subresources, Verbs
from pinnace.server.webhook_client import HttpsWebhookClient
from pinnace.server.write.address_records import AddressRecords
from pinnace.server.write.binding import PodBinder
from pinnace.server.write.eviction import Evictions
from pinnace.server.write.missing_namespaces import NamespaceProvider
from pinnace.server.write.reservations import ServiceReservations
from pinnace.server.write.scales import Scales
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.representations import Representations
from pinnace.serving.cache.watch_cache import CacheEvent
from pinnace.serving.deadlines import Deadlines
from pinnace.serving.discovery.discovery import DiscoveryPages
from pinnace.serving.discovery.openapi import OpenApi
from pinnace.serving.discovery.pages import Issuer, NonResourcePages
from pinnace.serving.discovery.version import version_of
from pinnace.serving.read.reader import ObjectReader
from pinnace.serving.write.body_decoder import BodyDecoder, Patches
from pinnace.serving.write.edits import Ownerships
from pinnace.serving.write.pipeline import Pipeline
from pinnace.store.store import Store

SYSTEM = User("system:apiserver", (MASTERS,))


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The server without its sockets. Its background parts run while `supervisor.running()` does."""

    foundation: Foundation
    api: ServerApi
    discovery: DiscoveryPages
    metrics: RequestMetrics
    health: Health
    custom_resources: CustomResources
    aggregation: Aggregation
    webhooks: HttpsWebhookClient
    nodes: Nodes
    """Nodes of this process register here for exec, logs and the like."""
    forwards: PodForwards

    @property
    def registry(self) -> Registry:
        return self.foundation.registry

    @property
    def fanout(self) -> Fanout:
        return self.foundation.fanout

    @property
    def store(self) -> Store:
        return self.foundation.store

    @property
    def clock(self) -> AlarmClock:
        return self.foundation.clock

    @property
    def supervisor(self) -> Supervisor:
        return self.foundation.supervisor

    @property
    def minor(self) -> str:
        """The served Kubernetes, such as 1.36."""
        return self.foundation.definitions.minor

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
    webhooks = TracedWebhooks(served) if settings.tracing else HttpsWebhookClient(served)
    custom_resources = CustomResources(foundation, webhooks)
    aggregation = Aggregation(foundation, files.front_proxy_client if files is not None else None, served)
    security = build_security(foundation, settings.auth, tokens=tokens, files=files)
    namespaces = NamespaceProvider(foundation)
    admission = _build_admission(
        foundation, settings, security, webhooks, namespaces, needs_service_accounts=needs_service_accounts
    )
    flows = _build_flow_control(foundation, settings, metrics)
    health = Health(foundation.store, fanout, foundation.supervisor)
    slices, addresses = SliceQueue.of_loop(), AddressRecords(foundation.registry, fanout)
    verbs = _build_verbs(foundation, settings, security, admission, nodes, slices, addresses)
    discovery = DiscoveryPages(foundation.registry, aggregated=aggregation.api_services)
    handler = Handler(
        targets=Targets(
            foundation.registry,
            aggregation.api_services,
            takes_shards=foundation.gates.is_on("ShardedListAndWatch"),
        ),
        verbs=verbs,
        pages=_build_pages(foundation, settings, aggregation, security, discovery, metrics, health),
        access=_build_access(foundation, security),
        limits=RequestLimits(flow_control=flows, deadlines=Deadlines(settings.request_timeout), slices=slices),
        metrics=metrics,
        audit=audit,
    )
    api = TracedApi(handler) if settings.tracing else handler
    addresses.connect(LocalApi(api, SYSTEM))
    namespaces.connect(LocalApi(api, SYSTEM))
    aggregation.measured_by(metrics)
    add_server_metrics(metrics, foundation, flows, audit, admission.metrics, security.configurations)
    return ControlPlane(
        foundation=foundation,
        api=api,
        discovery=discovery,
        metrics=metrics,
        health=health,
        custom_resources=custom_resources,
        aggregation=aggregation,
        webhooks=webhooks,
        nodes=nodes,
        forwards=forwards,
    )


def _build_admission(
    foundation: Foundation,
    settings: Settings,
    security: Security,
    webhooks: HttpsWebhookClient,
    namespaces: NamespaceProvider,
    *,
    needs_service_accounts: bool,
) -> AdmissionChain:
    return build_admission(
        foundation,
        security,
        webhooks,
        settings.admission,
        needs_service_accounts=needs_service_accounts,
        create_namespace=namespaces.create,
        chain=TracedAdmission if settings.tracing else AdmissionChain,
    )


def _build_pages(
    foundation: Foundation,
    settings: Settings,
    aggregation: Aggregation,
    security: Security,
    discovery: DiscoveryPages,
    metrics: RequestMetrics,
    health: Health,
) -> NonResourcePages:
    pods, version = foundation.objects("", "pods"), version_of(foundation.definitions.minor)
    zpages = ZPages(
        "apiserver",
        version=version,
        flags=settings.flags,
        has_statusz=foundation.gates.is_on("ComponentStatusz"),
        has_flagz=foundation.gates.is_on("ComponentFlagz"),
    )
    pages = NonResourcePages(
        version=version,
        discovery=discovery,
        openapi=OpenApi(foundation.registry, foundation.definitions),
        metrics={
            "/metrics": metrics.text,
            "/metrics/resources": lambda: render_pod_resources(pod for _, pod in pods.items()),
        },
        issuer=Issuer(security.issuer.issuer, lambda: security.issuer.jwks),
        health=health.checks,
        aggregated=aggregation.api_services,
    )
    pages.diagnostics = lambda request, path: zpages.answer(request.head.accept, request.raw_query, path)
    return pages


def _build_access(foundation: Foundation, security: Security) -> AccessControl:
    return AccessControl(
        identify=security.identify,
        impersonator=Impersonator(security.authorizer, constrained=foundation.gates.is_on("ConstrainedImpersonation")),
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
        store=TracedWrites(foundation.store) if settings.tracing else foundation.store,
        clock=foundation.clock,
        admission=admission,
        authorizer=security.authorizer,
        reservations=reservations,
        ownerships=ownerships,
    )


def _follow_service(reservations: ServiceReservations, event: CacheEvent) -> None:
    old, new = event.old, event.new
    reservations.follow(old.decode() if old is not None else None, new.decode() if new is not None else None)


async def lay_foundation(settings: Settings, store: Store, clock: AlarmClock) -> Foundation:
    """Load the definitions of the kinds, and all stored objects into the watch caches."""
    definitions, registry = _kinds(settings)
    fanout = Fanout(store)
    await fanout.load()
    gates = FeatureGates.parse(definitions.minor, settings.feature_gates)
    return Foundation(definitions, registry, store, fanout, clock, Supervisor(clock), gates)


def fork_foundation(settings: Settings, store: Store, fanout: Fanout, clock: AlarmClock) -> Foundation:
    """Return the foundation over a fork of a store and of its caches."""
    definitions, registry = _kinds(settings)
    gates = FeatureGates.parse(definitions.minor, settings.feature_gates)
    return Foundation(definitions, registry, store, fanout, clock, Supervisor(clock), gates)


def _kinds(settings: Settings) -> tuple[Definitions, Registry]:
    definitions, resources = _built_in(
        settings.kubernetes_version or minors()[-1],
        old_versions=settings.old_versions,
        gates=settings.feature_gates,
        config=settings.runtime_config,
    )
    registry = Registry(resources)
    families = tuple(f"IPv{ip_network(text).version}" for text in settings.service_ranges)
    services = registry.find("", "v1", "services")
    if services is not None and families != DEFAULT_FAMILIES:
        registry.add(replace(services, strategy=service_strategy(families)))
    return definitions, registry


@lru_cache(maxsize=4)
def _built_in(minor: str, *, old_versions: bool, gates: str, config: str) -> tuple[Definitions, tuple[Resource, ...]]:
    """Return the built-in kinds, which all clusters of a process share: to read them takes longer than all else."""
    definitions = Definitions.load(minor)
    resources = catalog.resources(
        definitions,
        old_versions=old_versions,
        runtime_config=RuntimeConfig.parse(config),
        gates=FeatureGates.parse(minor, gates),
    )
    return definitions, tuple(resources)


def build_verbs(
    foundation: Foundation,
    *,
    reader: ObjectReader,
    pipeline: Pipeline,
    ownerships: Ownerships,
    security: Security,
    streams: LateStreams,
) -> Verbs:
    """Build the verbs that every request of an object ends in."""
    registry, clock, schema_of = foundation.registry, foundation.clock, foundation.definitions.of_kind
    decoder = BodyDecoder(registry, schema_of)
    representations = Representations(registry, clock)
    return Verbs(
        reader=reader,
        pipeline=pipeline,
        decoder=decoder,
        patches=Patches(decoder, ownerships, clock),
        representations=representations,
        reviews=Reviews(
            security=ReviewSecurity(security.authorizer, security.rules, security.tokens, security.issuer),
            pipeline=pipeline,
            decoder=decoder,
            representations=representations,
            schema_of=schema_of,
            clock=clock,
        ),
        subresources=Subresources(
            scales=Scales(
                registry=registry,
                pipeline=pipeline,
                decoder=decoder,
                representations=representations,
                schema_of=schema_of,
                clock=clock,
            ),
            binder=PodBinder(registry, pipeline, clock),
            evictions=Evictions(registry, foundation.fanout, pipeline, clock),
            streams=streams,
        ),
    )
