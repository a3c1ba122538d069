"""The multiplexer of metrics servers for clusters that have none, such as any Kubernetes: itself an operator.

    pinnace run -m pinnace.sdk.multiplexer
    pinnace manifests -m pinnace.sdk.multiplexer --image registry.example.com/pinnace

It serves custom.metrics.k8s.io and external.metrics.k8s.io, and forwards each request to the MetricsProvider that
claims the metric. The API server of a pinnace has this built in.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote, urlencode

import orjson

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.snapshots import Snapshot
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.deadlines import deadline
from pinnace.reconcile.manager import Manager
from pinnace.sdk.api.computed import ComputedApiDeclaration
from pinnace.sdk.handlers.permissions import Permission
from pinnace.sdk.metrics.provider_clients import ProviderClients, ReaderToken
from pinnace.sdk.metrics.providers import (
    CHECK_EVERY,
    CONFLICT,
    KIND,
    MULTIPLEXER,
    PROVIDER_SECONDS,
    VERSIONS,
    MetricsProvider,
    ProviderCheck,
    ProviderTable,
    checked_groups,
    set_provider_conditions,
)
from pinnace.sdk.metrics.wire import CUSTOM, EXTERNAL
from pinnace.sdk.operator.operator import Operator

READER = f"{MULTIPLEXER}-reader"
"""The service account whose tokens providers receive."""
_CHECK_SECONDS = 5.0
_RBAC = "rbac.authorization.k8s.io"
_log = logging.getLogger(__name__)


class MultiplexedMetrics:
    """The metrics APIs of all providers. Requests are answered by every replica; the leader checks the providers."""

    versions = VERSIONS

    def __init__(self, client: Client, manager: Manager) -> None:
        self._manager = manager
        self._clock = client.clock
        self._table = ProviderTable()
        self._specs: dict[str, Object] = {}
        self._clients = ProviderClients(client, ReaderToken(client, READER))
        self._cache = manager.cache(KIND)
        manager.informer(KIND).on_change(self._changed)
        self._controller = manager.add(Controller("metricsprovider", self.reconcile))

    # Requests

    def rows(self, group: str, version: str) -> list[Object]:
        """Return a row for each metric that is claimed by its name."""
        return self._table.rows(group)

    async def answer(self, action: Action, query: Mapping[str, str]) -> Object:
        """Forward an authorized request to the provider of its metric. Raise ApiError."""
        if action.verb not in ("get", "list"):
            raise errors.MethodNotAllowed(action.verb, group=action.group, plural=action.resource)
        name = self._table.route(action)
        target = f"{_path_of(action)}?{urlencode(query)}" if query else _path_of(action)
        try:
            return await self._read(name, target, PROVIDER_SECONDS)
        except TimeoutError:
            message = f"metrics provider {name} did not answer within {PROVIDER_SECONDS:g} s"
            raise errors.Timeout(message) from None
        except ConnectionLost as lost:
            await self._clients.forget(name)
            self._controller.queue.add(Key("", name))
            raise errors.Unavailable(f"metrics provider {name} is unavailable: {lost}") from None
        except NoCredentials as error:
            raise errors.InternalError(str(error)) from None

    async def close(self) -> None:
        """Close the connections to the providers."""
        await self._clients.close()

    async def _read(self, name: str, target: str, seconds: float) -> Object:
        """Return a page of a provider. Raise ApiError, ConnectionLost, NoCredentials, or TimeoutError."""
        async with deadline(self._clock, seconds):
            client = await self._clients.client_of(name, self._specs[name])
            body = await client.read(target, accept="application/json")
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise errors.Unavailable(f"metrics provider {name} answered {target} with something other than an object")
        return answer

    # Providers

    def _changed(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None:
            provider = new.object
            if self._specs.get(new.key.name) == provider["spec"]:
                return  # Only the status changed, mostly by our own write.
            self._specs[new.key.name] = provider["spec"]
            self._table.put(provider)
        elif old is not None:
            self._specs.pop(old.key.name, None)
            self._table.drop(old.key.name)
            self._controller.queue.add(old.key)
        for name in self._table:  # A claim of another provider may have become free, or a conflict.
            self._controller.queue.add(Key("", name))

    async def reconcile(self, key: Key) -> Result | None:
        """Check one provider, and write its conditions."""
        if self._cache.get(key) is None:
            await self._clients.forget(key.name)
            return None
        check = await self._check(key.name)
        provider = self._cache.get(key)
        if provider is None or key.name not in self._specs:
            return None
        is_changed, conflict = set_provider_conditions(provider, self._table, check, self._clock)
        if is_changed:
            await self._manager.client.update_status(provider)
        if conflict:
            self._manager.recorder.record(provider, "Warning", CONFLICT, conflict)
        return Result(requeue_after=CHECK_EVERY)

    async def _check(self, name: str) -> ProviderCheck:
        try:
            for group, version in checked_groups(self._specs.get(name) or {}):
                await self._read(name, f"/apis/{group}/{version}", _CHECK_SECONDS)
        except (errors.ApiError, ConnectionLost, NoCredentials, TimeoutError) as error:
            await self._clients.forget(name)
            return ProviderCheck(is_available=False, reason="FailedDiscoveryCheck", message=str(error))
        return ProviderCheck()


def reader_objects(namespace: str) -> list[Object]:
    """Return the service account that reads the metrics of providers, with its role."""
    metadata = {"name": READER, "labels": {"app.kubernetes.io/name": MULTIPLEXER}}
    rules = [
        {"apiGroups": [CUSTOM, EXTERNAL], "resources": ["*"], "verbs": ["get", "list"]},
        # Providers are checked by their discovery pages.
        {"nonResourceURLs": [f"/apis/{group}/*" for group in (CUSTOM, EXTERNAL)], "verbs": ["get"]},
    ]
    account = {"kind": "ServiceAccount", "name": READER, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "namespace": namespace}},
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": READER},
            "subjects": [account],
        },
    ]


def multiplexer() -> Operator:
    """Return the operator."""
    made = Operator(MULTIPLEXER, kinds=[MetricsProvider])
    made.needs(MetricsProvider)
    made.needs(MetricsProvider, "get", "update", subresource="status")
    made.needs("v1/Service", "get")
    declared = ComputedApiDeclaration(
        versions=VERSIONS,
        build=MultiplexedMetrics,
        objects=reader_objects,
        own_permissions=(Permission("", "serviceaccounts/token", ("create",), (READER,)),),
    )
    made.declarations = replace(made.declarations, computed=declared)
    return made


def _path_of(action: Action) -> str:
    within = ("namespaces", action.namespace) if action.namespace else ()
    parts = (*within, action.resource, action.name, action.subresource)
    return f"/apis/{action.group}/{action.version}/" + "/".join(quote(part, safe="*") for part in parts if part)


operator = multiplexer()

if __name__ == "__main__":
    operator.serve()
