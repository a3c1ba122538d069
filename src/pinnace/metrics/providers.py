"""Starts the multiplexer of metrics servers with the first MetricsProvider: it needs a large part of the SDK."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pinnace.client.client import Client
from pinnace.extensions.aggregation.backend_table import ApiServices
from pinnace.extensions.aggregation.backends import Connections
from pinnace.process.clock import AlarmClock
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.watch_cache import CacheEvent

if TYPE_CHECKING:
    from pinnace.metrics.multiplexer import MetricsMultiplexer

_PROVIDERS = "/registry/metrics.pinnace.dev/metricsproviders/"


class MetricsProviders:
    """Knows whether there is a provider; most clusters have none."""

    def __init__(self, fanout: Fanout, api_services: ApiServices, connections: Connections, clock: AlarmClock) -> None:
        self._fanout = fanout
        self._api_services = api_services
        self._connections = connections
        self._clock = clock
        self._multiplexer: MetricsMultiplexer | None = None
        self._is_loaded = asyncio.Event()
        if fanout.cache(_PROVIDERS).entries:
            self._load()
        else:
            fanout.on_change(_PROVIDERS, self._changed)

    async def run(self, client: Client) -> None:
        """Check the providers and write their conditions until cancelled."""
        await self._is_loaded.wait()
        assert self._multiplexer is not None
        await self._multiplexer.run(client)

    def _changed(self, event: CacheEvent) -> None:
        if self._multiplexer is None and event.new is not None:
            self._load()

    def _load(self) -> None:
        # See docs/decisions/0022-modules-loaded-late.md.
        from pinnace.metrics.multiplexer import MetricsMultiplexer  # noqa: PLC0415

        self._multiplexer = MetricsMultiplexer(
            self._fanout, _PROVIDERS, self._api_services, self._connections, self._clock
        )
        self._is_loaded.set()
