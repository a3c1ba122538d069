"""Custom kinds in a cluster: the registry follows the stored definitions, and a background part writes their status."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.cluster.foundation import Foundation
from pinnace.extensions.custom.conversion import TIMEOUT_SECONDS, converter_of
from pinnace.extensions.custom.definitions import BuiltIn
from pinnace.extensions.custom.kinds import CustomKinds
from pinnace.extensions.custom.lifecycle import DefinitionLifecycle
from pinnace.kinds.golang import empty_fields, field_types
from pinnace.model import quantity
from pinnace.model.webhooks import WebhookClient
from pinnace.schema.golang.decode import Decoders
from pinnace.server.cache.watch_cache import CacheEvent

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
