"""Register the metrics of an operator: with the multiplexer of the cluster, or as its only metrics server."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import orjson

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.mapping import NoSuchKind
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.reconcile.conditions import is_true
from pinnace.sdk.installation.api_registration import ApiRegistration, GroupVersion, check_free, service_of
from pinnace.sdk.installation.installation import put, wait_until_established
from pinnace.sdk.metrics.api import served_versions
from pinnace.sdk.metrics.functions import CustomMetrics
from pinnace.sdk.metrics.providers import AVAILABLE, KIND, MULTIPLEXER, MetricsProvider, claims_by_functions
from pinnace.sdk.resources.readiness import NotEstablished, NotReadyInTime, wait_until_ready

_OWN_VERSION = "+pinnace"
"""Part of the version of a pinnace, whose server has a multiplexer."""
_log = logging.getLogger(__name__)


class MetricRegistration:
    """The MetricsProvider of one run where the cluster has a multiplexer. Otherwise its APIServices lead here."""

    def __init__(self, client: Client, metrics: CustomMetrics, name: str) -> None:
        self._client = client
        self._metrics = metrics
        self._name = name
        self._joins = False

    async def own_versions(self) -> list[tuple[str, str]]:
        """Return the group versions that need APIServices of this operator: none if there is a multiplexer.

        Raise NotEstablished if another metrics server has them.
        """
        versions = served_versions(self._metrics.functions)
        self._joins = await has_multiplexer(self._client, versions)
        if self._joins:
            return []
        await check_free(self._client, versions, self._name)
        return versions

    async def announce(self, registration: ApiRegistration, client_config: Object) -> None:
        """Tell the multiplexer which metrics are here. `client_config` is how the server reaches this process."""
        if not self._joins:
            return
        definition = MetricsProvider.crd()
        if not await _is_served(self._client):
            await put(self._client, definition, manager=self._name)
            await wait_until_established(self._client, definition["metadata"]["name"])
        custom, external = claims_by_functions(self._metrics.functions)
        service = await registration.service_for(client_config)
        spec = {"service": service, "caBundle": client_config["caBundle"], "custom": custom, "external": external}
        provider = {"apiVersion": KIND.api_version, "kind": KIND.name, "metadata": {"name": self._name}, "spec": spec}
        await self._client.apply(provider, field_manager=self._name, force=True)

    async def wait_until_available(self) -> None:
        """Return when the multiplexer has reached this process. Raise NotEstablished if it does not in time."""
        if not self._joins:
            return

        def is_available(provider: Object) -> bool:
            return is_true(provider, AVAILABLE)

        try:
            await wait_until_ready(self._client, f"{KIND.api_version}/{KIND.name}", self._name, is_available)
        except NotReadyInTime as late:
            status = late.last.get("status")
            raise NotEstablished(f"the multiplexer cannot reach the metrics of {self._name} here: {status}") from None

    async def withdraw(self) -> None:
        """Remove the MetricsProvider at the end of a run outside of the cluster. An unreachable server is logged."""
        if not self._joins:
            return
        try:
            await self._client.delete(KIND, self._name)
        except errors.NotFound:
            return
        except (errors.ApiError, ConnectionLost, NoCredentials) as error:
            _log.warning("MetricsProvider %s was not removed and leads nowhere: %s", self._name, error)


async def has_multiplexer(client: Client, versions: Sequence[GroupVersion]) -> bool:
    """Return whether metrics servers join a multiplexer here: in a pinnace, and where one serves these versions."""
    version = orjson.loads(await client.read("/version"))
    if _OWN_VERSION in version.get("gitVersion", ""):
        return True
    services = [await service_of(client, *place) for place in versions]
    return any(service.get("name") in (MULTIPLEXER, f"{MULTIPLEXER}-dev") for service in services)


async def _is_served(client: Client) -> bool:
    try:
        await client.kinds.find(KIND)
    except NoSuchKind:
        return False
    return True
