"""custom.metrics.k8s.io and external.metrics.k8s.io for any number of metrics servers: each request goes to the one
that claims its metric.

Nothing is served until the first MetricsProvider is stored. An APIService with a service takes the place of all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import orjson

from pinnace.client.client import Client
from pinnace.extensions.aggregation.backend_table import ApiServices
from pinnace.extensions.aggregation.backends import CheckFailed, Connections, HttpBackend
from pinnace.metrics.resource_metrics import LocalAnswer
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.byte_streams import Duplex, ProxyResponse
from pinnace.process.clock import AlarmClock
from pinnace.reconcile.events import EventRecorder
from pinnace.sdk.metrics.providers import (
    CHECK_EVERY,
    CONFLICT,
    KIND,
    PROVIDER_SECONDS,
    VERSIONS,
    ProviderCheck,
    ProviderTable,
    checked_groups,
    set_provider_conditions,
)
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.watch_cache import CacheEvent
from pinnace.serving.request.call import action_of_target

_log = logging.getLogger(__name__)


class MetricsMultiplexer:
    """Knows the providers from the start; `run` checks them and writes their status."""

    def __init__(
        self, fanout: Fanout, prefix: str, api_services: ApiServices, connections: Connections, clock: AlarmClock
    ) -> None:
        """`prefix` begins the keys of the MetricsProviders in the store."""
        self._api_services = api_services
        self._connections = connections
        self._clock = clock
        self._table = ProviderTable()
        self._specs: dict[str, Object] = {}
        self._backends: dict[tuple[str, str, str], HttpBackend] = {}
        self._groups = [MultiplexedGroup(self, group, version) for group, version in VERSIONS]
        self._served: list[MultiplexedGroup] = []
        self._woken = asyncio.Event()
        for entry in fanout.cache(prefix).entries.values():
            self._put(entry.decode())
        fanout.on_change(prefix, self._changed)

    # Requests

    def rows(self, group: str) -> list[Object]:
        """Return the rows of a discovery page."""
        return self._table.rows(group)

    async def send(
        self, group: str, version: str, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> ProxyResponse:
        """Forward a request to the provider of its metric. Raise ApiError."""
        provider = self._table.route(action_of_target(method, target))
        try:
            async with asyncio.timeout(PROVIDER_SECONDS):
                backend = self._backend(provider, group, version)
                return await backend.send(method, target, headers, body, is_long=False)
        except TimeoutError:
            self._woken.set()
            message = f"metrics provider {provider} did not answer within {PROVIDER_SECONDS:g} s"
            raise errors.Timeout(message) from None
        except OSError as error:
            self._woken.set()
            raise errors.Unavailable(f"metrics provider {provider} is unavailable: {error}") from None

    def _backend(self, provider: str, group: str, version: str) -> HttpBackend:
        place = provider, group, version
        known = self._backends.get(place)
        if known is None:
            spec = self._specs[provider]
            spec = {"group": group, "version": version, "service": spec["service"], "caBundle": spec.get("caBundle")}
            named = {"metadata": {"name": f"{version}.{group}/{provider}"}, "spec": spec}
            known = self._backends[place] = HttpBackend(named, self._connections)
        return known

    # Providers

    def _changed(self, event: CacheEvent) -> None:
        if event.new is not None:
            provider = event.new.decode()
            if self._specs.get(event.key) == provider["spec"]:
                return  # Only the status changed, mostly by our own write.
            self._put(provider)
        else:
            self._drop(event.key)
        self._woken.set()

    def _put(self, provider: Object) -> None:
        name = provider["metadata"]["name"]
        self._forget_backends(name)
        self._specs[name] = provider["spec"]
        self._table.put(provider)
        self._serve()

    def _drop(self, name: str) -> None:
        self._forget_backends(name)
        self._specs.pop(name, None)
        self._table.drop(name)
        self._serve()

    def _forget_backends(self, name: str) -> None:
        self._backends = {place: backend for place, backend in self._backends.items() if place[0] != name}

    def _serve(self) -> None:
        """Serve the groups that have a metric, and no others: clients ask which metrics APIs there are."""
        groups = self._table.groups()
        wanted = [group for group in self._groups if group.group in groups]
        for gone in [group for group in self._served if group not in wanted]:
            self._api_services.remove_built_in(gone)
        for group in wanted:
            self._api_services.add_built_in(group)  # Again where it is served: its rows may have changed.
        self._served = wanted

    # Status

    async def run(self, client: Client) -> None:
        """Check the providers and write their conditions until cancelled."""
        recorder = EventRecorder(client, "metrics-multiplexer")
        self._woken.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.run())
            while True:
                await self._wait()
                async with asyncio.TaskGroup() as checks:
                    for name in self._table:
                        checks.create_task(self._follow(client, recorder, name))

    async def _wait(self) -> None:
        """Return when something has changed; with providers, after CHECK_EVERY at the latest."""
        alarm = self._clock.call_later(CHECK_EVERY, self._woken.set) if len(self._table) else None
        try:
            await self._woken.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
        self._woken.clear()

    async def _follow(self, client: Client, recorder: EventRecorder, name: str) -> None:
        try:
            await self._tell(client, recorder, name, await self._check(name))
        except (errors.NotFound, errors.NoSuchPath):
            return
        except errors.ApiError as error:
            _log.warning("the status of MetricsProvider %s is not written: %s", name, error.message)
            self._clock.call_later(1.0, self._woken.set)

    async def _check(self, name: str) -> ProviderCheck:
        try:
            for group, version in checked_groups(self._specs.get(name) or {}):
                await self._backend(name, group, version).check()
        except CheckFailed as failed:
            return ProviderCheck(is_available=False, reason="FailedDiscoveryCheck", message=str(failed))
        except LookupError:
            return ProviderCheck(is_available=False, reason="Deleted", message="the provider is deleted")
        return ProviderCheck()

    async def _tell(self, client: Client, recorder: EventRecorder, name: str, check: ProviderCheck) -> None:
        provider = await client.get_or_none(KIND, name)
        if provider is None or provider["spec"] != self._specs.get(name):
            return  # It has changed since, which wakes `run`.
        is_changed, conflict = set_provider_conditions(provider, self._table, check, self._clock)
        if is_changed:
            await client.update_status(provider)
        if conflict:
            recorder.record(provider, "Warning", CONFLICT, conflict)


class MultiplexedGroup:
    """One group version of the multiplexer, in the place of an aggregated server."""

    unavailable_reason = ""
    is_local = False
    openapi_url = ""

    def __init__(self, multiplexer: MetricsMultiplexer, group: str, version: str) -> None:
        self._multiplexer = multiplexer
        self.group = group
        self.version = version
        self.name = f"{version}.{group}"

    @property
    def resources(self) -> Sequence[Object]:
        return self._multiplexer.rows(self.group)

    async def openapi(self) -> tuple[bytes, str]:
        raise OSError(f"{self.group} has no OpenAPI document here")

    async def openapi_v2(self) -> tuple[bytes, str]:
        return b"", ""

    async def connect(self) -> tuple[Duplex, str]:
        raise OSError(f"{self.group} has no protocol to switch to")

    async def send(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, *, is_long: bool
    ) -> ProxyResponse:
        """Answer a request that the server has authorized."""
        page = f"/apis/{self.group}/{self.version}"
        if target.partition("?")[0].rstrip("/") == page:
            listed: Object = {"kind": "APIResourceList", "apiVersion": "v1"}
            listed |= {"groupVersion": f"{self.group}/{self.version}", "resources": self.resources}
            return LocalAnswer(200, orjson.dumps(listed))
        try:
            return await self._multiplexer.send(self.group, self.version, method, target, headers, body)
        except errors.ApiError as error:
            return LocalAnswer(error.code, orjson.dumps(error.status))
