"""Other API servers in a cluster: the APIServices that are stored are followed, and their availability written."""

from __future__ import annotations

from pinnace.auth.certificates.authority import PairFiles
from pinnace.client.client import Client
from pinnace.extensions.aggregation.availability import AutoRegistration, Availability
from pinnace.extensions.aggregation.backend_table import ApiServices
from pinnace.extensions.aggregation.backends import Connections, ProxyIdentity
from pinnace.extensions.custom.conversion import TIMEOUT_SECONDS, converter_of
from pinnace.extensions.custom.kinds import CustomKinds
from pinnace.extensions.custom.lifecycle import DefinitionLifecycle
from pinnace.kinds.golang import empty_fields, field_types
from pinnace.metrics.providers import MetricsProviders
from pinnace.model import quantity
from pinnace.model.webhooks import ServiceAddresses, WebhookClient
from pinnace.process.exposition import Labels
from pinnace.schema.golang.decode import Decoders
from pinnace.server.foundation import Foundation
from pinnace.server.metrics import RequestMetrics
from pinnace.server.nodes.service_addresses import (
    ENDPOINTS,
    SERVICE_OF_SLICE,
    SERVICES,
    SLICES,
    ReachableAddresses,
    StoredServices,
)
from pinnace.serving.cache.watch_cache import CacheEvent
from pinnace.serving.custom.definitions import BuiltIn

API_SERVICES = "/registry/apiregistration.k8s.io/apiservices/"


class Aggregation:
    """Knows the backends from the start; `run` keeps the conditions of their APIServices, and those of custom kinds."""

    def __init__(self, foundation: Foundation, proxy: PairFiles | None, served: ServiceAddresses) -> None:
        fanout, registry = foundation.fanout, foundation.registry
        identity = ProxyIdentity(proxy.certificate, proxy.key) if proxy is not None else None
        self._connections = Connections(ReachableAddresses(fanout, served), identity)
        self.api_services = ApiServices(self._connections)
        self.metrics = MetricsProviders(fanout, self.api_services, self._connections, foundation.clock)
        self._services = StoredServices(fanout)
        self._clock = foundation.clock
        self._availability: Availability | None = None
        for entry in fanout.cache(API_SERVICES).entries.values():
            self.api_services.put(entry.decode())
        self._registration = AutoRegistration(lambda place: registry.has_built_in_group(place[0]))
        for entry in fanout.cache(DEFINITIONS).entries.values():
            self._registration.put(entry.decode())
        fanout.on_change(DEFINITIONS, self._definition_changed)
        fanout.on_change(API_SERVICES, self._changed)
        for prefix in (SERVICES, ENDPOINTS):
            fanout.on_change(prefix, lambda event: self._service_changed(event.key))
        fanout.on_change(SLICES, self._slice_changed)

    def show(self, proxy: PairFiles) -> None:
        """Be known to aggregated servers by this certificate from now on."""
        self._connections.identity = ProxyIdentity(proxy.certificate, proxy.key)

    async def run_availability(self, client: Client) -> None:
        """Write into each APIService whether its server is available, until cancelled."""
        self._availability = Availability(client, self.api_services, self._services, clock=self._clock)
        self._connections.on_lost = self._availability.wake
        await self._availability.run()

    async def run_registration(self, client: Client) -> None:
        """Create and delete the APIServices of custom kinds until cancelled."""
        await self._registration.run(client)

    async def close(self) -> None:
        """Close the connections to aggregated servers."""
        await self._connections.close()

    def measured_by(self, metrics: RequestMetrics) -> None:
        """Tell which APIServices are unavailable, under the names that dashboards and alerts of Kubernetes know."""

        def unavailable() -> list[tuple[Labels, float]]:
            backends = self.api_services.backends()
            return [((("name", backend.name),), float(bool(backend.unavailable_reason))) for backend in backends]

        def failures() -> list[tuple[Labels, float]]:
            counted = self._availability.failures if self._availability is not None else {}
            return [((("name", name), ("reason", why)), float(count)) for (name, why), count in counted.items()]

        metrics.gauge("aggregator_unavailable_apiservice", "APIServices that are unavailable, by name.", unavailable)
        metrics.gauge(
            "aggregator_unavailable_apiservice_total",
            "How often APIServices became unavailable, by name and reason.",
            failures,
        )

    def _changed(self, event: CacheEvent) -> None:
        if event.new is None:
            self.api_services.drop(event.key)
            version, _, group = event.key.partition(".")
            self._registration.wake((group, version))
        else:
            api_service = event.new.decode()
            self.api_services.put(api_service)
            self._registration.check(api_service)
            if event.old is not None and event.old.decode()["spec"] == api_service["spec"]:
                return  # Only the status changed, mostly by our own write.
        if self._availability is not None:
            self._availability.wake(event.key)

    def _definition_changed(self, event: CacheEvent) -> None:
        if event.new is not None:
            self._registration.put(event.new.decode())
        else:
            self._registration.drop(event.key)

    def _service_changed(self, key: str) -> None:
        if self._availability is not None and self.api_services.revision:
            namespace, _, name = key.partition("/")
            for api_service in self.api_services.served_by(namespace, name):
                self._availability.wake(api_service)

    def _slice_changed(self, event: CacheEvent) -> None:
        entry = event.new or event.old
        if entry is not None and self.api_services.revision:
            metadata = entry.decode()["metadata"]
            owner = (metadata.get("labels") or {}).get(SERVICE_OF_SLICE) or ""
            self._service_changed(f"{metadata['namespace']}/{owner}")


DEFINITIONS = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class CustomResources:
    """Makes the registry follow the definitions from the start; `run` writes their status."""

    def __init__(self, foundation: Foundation, webhooks: WebhookClient) -> None:
        definitions, fanout = foundation.definitions, foundation.fanout
        decoders = Decoders(
            quantity=quantity.canonical, empty_fields=empty_fields.of_type, go_fields=field_types.of_type
        )
        built_in = BuiltIn(definitions.schema, decoders.of(definitions.schema(_METADATA)))
        self.webhook_seconds = TIMEOUT_SECONDS
        """The longest time that a conversion webhook may take."""
        self.kinds = CustomKinds(
            foundation.registry,
            built_in,
            make_converter=lambda definition: converter_of(definition, webhooks, seconds=self.webhook_seconds),
            on_replaced=lambda resource: fanout.end_watches(resource.prefix),
        )
        self._clock = foundation.clock
        self._entries = fanout.cache(DEFINITIONS).entries
        self._lifecycle: DefinitionLifecycle | None = None
        self.kinds.load(entry.body for entry in self._entries.values())
        fanout.on_change(DEFINITIONS, self._changed)

    async def run(self, client: Client) -> None:
        """Write the status of the definitions, and finish those that are deleted, until cancelled."""
        self._lifecycle = DefinitionLifecycle(client, self.kinds, clock=self._clock)
        for name in self._entries:
            self._lifecycle.wake(name)
        try:
            await self._lifecycle.run()
        finally:
            self._lifecycle = None

    def _changed(self, event: CacheEvent) -> None:
        if event.new is not None:
            self.kinds.put(event.new.body)
        else:
            self.kinds.drop(event.key)
        if self._lifecycle is None:
            return  # The next run begins with all definitions.
        self._lifecycle.wake(event.key)
        if event.new is None and event.old is not None:
            self._lifecycle.names_freed(event.key.partition(".")[2])
