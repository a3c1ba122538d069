"""Tells a cluster that some groups are answered here: an APIService for each group and version, and the way there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from urllib.parse import urlsplit

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.following import Event
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.version_order import version_rank
from pinnace.reconcile.conditions import condition, is_true
from pinnace.sdk.operator.installation import PATIENCE, NotEstablished
from pinnace.sdk.resources.custom_resource import AnyResource

API_SERVICE = "apiregistration.k8s.io/v1/APIService"
GROUP_PRIORITY = 1000
"""Behind all that is built in, among the custom kinds."""
HIGHEST_VERSION_PRIORITY = 100

_log = logging.getLogger(__name__)
_GONE = (errors.ApiError, ConnectionLost, NoCredentials)


def api_services(kinds: Sequence[type[AnyResource]], service: Object, ca: str = "") -> list[Object]:
    """One for each group and version, with the priorities that clients are used to: v1 comes before v1beta1."""
    found: dict[str, Object] = {}
    for kind in sorted(kinds, key=lambda kind: version_rank(kind.declared.kind.version)):
        group, version = kind.declared.kind.group, kind.declared.kind.version
        name = f"{version}.{group}"
        spec: Object = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": GROUP_PRIORITY,
            "versionPriority": HIGHEST_VERSION_PRIORITY - len(found),
            "service": service,
        }
        if ca:
            spec["caBundle"] = ca
        found.setdefault(
            name,
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name},
                "spec": spec,
            },
        )
    return list(found.values())


class Registration:
    """The APIServices of one run, and what they were before it."""

    def __init__(self, client: Client, kinds: Sequence[type[AnyResource]], name: str) -> None:
        self._client = client
        self._kinds = kinds
        self._name = name
        self._former: dict[str, Object] = {}

    @property
    def service_name(self) -> str:
        """The Service that leads to a process outside of the cluster. Never the one that leads to its deployed twin."""
        return f"{self._name}-dev"

    @property
    def host_name(self) -> str:
        """What the server calls a process outside of the cluster."""
        return f"{self.service_name}.{self._client.namespace}.svc"

    async def remember(self) -> None:
        """Keep what leads elsewhere now, to be given back."""
        for wanted in api_services(self._kinds, self._outside(0)):
            name = wanted["metadata"]["name"]
            present = await self._client.get_or_none(API_SERVICE, name)
            service = ((present or {}).get("spec") or {}).get("service")
            if present is not None and (service is None or service["name"] != self.service_name):
                self._former[name] = {**wanted, "spec": present["spec"]}

    async def announce(self, reached: Object) -> None:
        """Make the server send requests here. `reached` is the clientConfig by which it reaches this process."""
        if not self._kinds:
            return
        if "service" in reached:
            service = {name: reached["service"][name] for name in ("namespace", "name", "port")}
        else:
            at = urlsplit(reached["url"])
            await self._client.apply(self._way_out(str(at.hostname)), field_manager=self._name, force=True)
            service = self._outside(at.port or 443)
        for wanted in api_services(self._kinds, service, reached["caBundle"]):
            await self._put(wanted)

    async def available(self) -> None:
        """Return when the server has got an answer from here. Raises NotEstablished."""
        for wanted in api_services(self._kinds, {}):
            await _available(self._client, wanted["metadata"]["name"])

    async def hand_back(self) -> None:
        """Make the server send requests where it did before. A server that is gone need not be told."""
        for wanted in api_services(self._kinds, {}):
            name = wanted["metadata"]["name"]
            try:
                if name in self._former:
                    await self._put(self._former[name])
                else:
                    await self._client.delete(API_SERVICE, name)
            except errors.NotFound:
                continue
            except _GONE as error:
                _log.warning("APIService %s is still there and leads nowhere: %s", name, error)
        try:
            await self._client.delete("v1/Service", self.service_name, namespace=self._client.namespace)
        except _GONE:
            return  # It leads nowhere, and nobody follows it any more.

    async def _put(self, wanted: Object) -> None:
        """With nothing left of what others said there: a bundle goes along with the service that it is for."""
        name = wanted["metadata"]["name"]
        present = await self._client.get_or_none(API_SERVICE, name)
        if present is None:
            await self._client.create(wanted)
            return
        left = {field: None for field in present["spec"] if field not in wanted["spec"]}
        labels = {"kube-aggregator.kubernetes.io/automanaged": None}  # It is no longer the server's own.
        patch = {"metadata": {"labels": labels}, "spec": {**left, **wanted["spec"]}}
        await self._client.patch(API_SERVICE, name, patch)

    def _outside(self, port: int) -> Object:
        return {"namespace": self._client.namespace, "name": self.service_name, "port": port}

    def _way_out(self, host: str) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.service_name, "namespace": self._client.namespace},
            "spec": {"type": "ExternalName", "externalName": host},
        }


async def _available(client: Client, name: str) -> None:
    last: Object = {}
    try:
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(client.follow(API_SERVICE, fields=f"metadata.name={name}")) as news,
        ):
            async for event in news:
                if isinstance(event, Event) and event.type != "DELETED":
                    last = event.snapshot.object
                    if is_true(last, "Available"):
                        return
    except TimeoutError:
        told = (condition(last, "Available") or {}).get("message") or "the server has not tried"
        raise NotEstablished(f"the server cannot reach the API {name} here: {told}") from None
