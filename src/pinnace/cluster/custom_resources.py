"""Custom kinds in a cluster: the definitions that are stored are followed, and their statuses written."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.cluster.service_addresses import ServedAddresses
from pinnace.extensions.custom.conversion import WebhookCalls, converter_of
from pinnace.extensions.custom.definitions import BuiltIn
from pinnace.extensions.custom.kinds import CustomKinds
from pinnace.extensions.custom.lifecycle import DefinitionLifecycle
from pinnace.kinds.definitions import Definitions
from pinnace.kinds.golang import empty_fields, field_types
from pinnace.model import quantity
from pinnace.model.clock import Clock
from pinnace.model.resources import Registry
from pinnace.schema.golang.decode import Decoders
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.watch_cache import CacheEvent

DEFINITIONS = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class CustomResources:
    """Makes the registry follow the definitions from the start; `run` keeps their statuses."""

    def __init__(self, registry: Registry, fanout: Fanout, definitions: Definitions, *, clock: Clock) -> None:
        decoders = Decoders(
            quantity=quantity.canonical, empty_fields=empty_fields.of_type, go_fields=field_types.of_type
        )
        built_in = BuiltIn(definitions.schema, decoders.of(definitions.schema(_METADATA)))
        self._calls = WebhookCalls(ServedAddresses(fanout))
        self.kinds = CustomKinds(
            registry,
            built_in,
            make_converter=lambda definition: converter_of(definition, self._calls),
            on_replaced=lambda resource: fanout.end_watches(resource.prefix),
        )
        self._clock = clock
        self._names: dict[str, None] = {}
        self._lifecycle: DefinitionLifecycle | None = None
        cache = fanout.cache(DEFINITIONS)
        self.kinds.load(entry.body for entry in cache.entries.values())
        self._names.update(dict.fromkeys(cache.entries))
        fanout.on_change(DEFINITIONS, self._changed)

    def give_up_after(self, seconds: float) -> None:
        """How long a conversion webhook may take."""
        self._calls.seconds = seconds

    async def run(self, client: Client) -> None:
        """Write what becomes of definitions into their statuses, until cancelled."""
        self._lifecycle = DefinitionLifecycle(client, self.kinds, clock=self._clock)
        for name in self._names:
            self._lifecycle.wake(name)
        self._names.clear()
        try:
            await self._lifecycle.run()
        finally:
            await self._calls.close()

    def _changed(self, event: CacheEvent) -> None:
        if event.new is not None:
            self.kinds.put(event.new.body)
        else:
            self.kinds.drop(event.key)
        if self._lifecycle is None:
            self._names[event.key] = None
            return
        self._lifecycle.wake(event.key)
        if event.new is None and event.old is not None:
            self._lifecycle.names_freed(event.key.partition(".")[2])
