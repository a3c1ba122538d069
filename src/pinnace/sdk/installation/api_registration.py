"""Register the APIs that this process serves: an APIService for each group and version, and the Service behind it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.resources import version_rank
from pinnace.reconcile.conditions import condition, is_true
from pinnace.sdk.resources.custom_resource import AnyResource
from pinnace.sdk.resources.readiness import NotEstablished, NotReadyInTime, wait_until_ready

API_SERVICE = "apiregistration.k8s.io/v1/APIService"
GROUP_PRIORITY = 1000
"""Below the priority of all built-in groups, as for custom resources."""
HIGHEST_VERSION_PRIORITY = 100

_log = logging.getLogger(__name__)
_SLICE = "discovery.k8s.io/v1/EndpointSlice"
_NO_EXTERNAL_NAME = 'unsupported service type "ExternalName"'
_ADVICE = (
    "the server routes to endpoints (--enable-aggregator-routing) and takes no host names: name an address of this "
    "machine that the server reaches with --webhook-host"
)
_GONE = (errors.ApiError, ConnectionLost, NoCredentials)


GroupVersion = tuple[str, str]


def versions_of(kinds: Sequence[type[AnyResource]]) -> list[GroupVersion]:
    """Return the group versions of some kinds."""
    return list(dict.fromkeys((kind.declared.kind.group, kind.declared.kind.version) for kind in kinds))


def api_services(versions: Sequence[GroupVersion], service: Object, ca: str = "") -> list[Object]:
    """Return an APIService for each group and version, with priorities that put v1 before v1beta1."""
    services: dict[str, Object] = {}
    for group, version in sorted(versions, key=lambda place: version_rank(place[1])):
        name = f"{version}.{group}"
        spec: Object = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": GROUP_PRIORITY,
            "versionPriority": HIGHEST_VERSION_PRIORITY - len(services),
            "service": service,
        }
        if ca:
            spec["caBundle"] = ca
        services.setdefault(
            name,
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name},
                "spec": spec,
            },
        )
    return list(services.values())


class ApiRegistration:
    """The APIServices of one run, and the former ones that it replaces."""

    def __init__(self, client: Client, versions: Sequence[GroupVersion], name: str) -> None:
        self._client = client
        self._versions = versions
        self._name = name
        self._former: dict[str, Object] = {}
        self._host = ""
        self._port = 0
        """The address of this process, if it is outside the cluster."""
        self._needs_endpoints = False
        """Whether the server routes to endpoints (--enable-aggregator-routing), so that it takes no ExternalName."""

    @property
    def service_name(self) -> str:
        """The Service of a process outside the cluster. It differs from the Service of the deployed operator."""
        return f"{self._name}-dev"

    @property
    def host_name(self) -> str:
        """The host name by which the API server calls a process outside the cluster."""
        return f"{self.service_name}.{self._client.namespace}.svc"

    async def remember(self) -> None:
        """Keep the APIServices that lead elsewhere now, also to another run, for `restore`."""
        for wanted in api_services(self._versions, self._reference(0)):
            name = wanted["metadata"]["name"]
            present = await self._client.get_or_none(API_SERVICE, name)
            service = ((present or {}).get("spec") or {}).get("service")
            if present is not None and (service is None or await self._is_served(service)):
                self._former[name] = {**wanted, "spec": present["spec"]}

    async def announce(self, client_config: Object) -> None:
        """Make the server send requests here. `client_config` is the clientConfig by which it reaches this process."""
        if not self._versions:
            return
        service = await self.service_for(client_config)
        for wanted in api_services(self._versions, service, client_config["caBundle"]):
            await self._put(wanted)

    async def service_for(self, client_config: Object) -> Object:
        """Return the reference of the Service by which the server reaches this process, which is created if needed."""
        if "service" in client_config:
            return {name: client_config["service"][name] for name in ("namespace", "name", "port")}
        at = urlsplit(client_config["url"])
        self._host, self._port = str(at.hostname), at.port or 443
        if self._needs_endpoints:
            await self._put_endpoints()
        else:
            await self._client.apply(self._external_service(self._host), field_manager=self._name, force=True)
        return self._reference(self._port)

    async def wait_until_available(self) -> None:
        """Return when the server has reached this process. Raise NotEstablished if it does not in time.

        If the server takes no ExternalName, the Service gets endpoints instead: the address of this process.
        """
        for wanted in api_services(self._versions, {}):
            name = wanted["metadata"]["name"]
            try:
                await _wait_until_available(self._client, name, with_endpoints=self._needs_endpoints)
            except RoutesToEndpoints:
                self._needs_endpoints = True
                await self._put_endpoints()
                await _wait_until_available(self._client, name, with_endpoints=True)

    async def restore(self) -> None:
        """Make the server send requests to the former address, unless another run has replaced this one's since.

        An unreachable server is only logged.
        """
        other_run = False
        for wanted in api_services(self._versions, {}):
            name = wanted["metadata"]["name"]
            try:
                service = await self._restore(name)
                other_run = other_run or (service or {}).get("name") == self.service_name
            except errors.NotFound:
                continue
            except _GONE as error:
                _log.warning("APIService %s was not restored and leads nowhere: %s", name, error)
        if other_run:
            return
        try:
            await self._client.delete("v1/Service", self.service_name, namespace=self._client.namespace)
        except _GONE:
            return  # No APIService refers to it any more: it does no harm.

    async def _restore(self, name: str) -> Object | None:
        """Restore one APIService; return the Service that it leads to now. Raise NotFound if it is deleted."""
        present = await self._client.get(API_SERVICE, name)
        service: Object | None = present["spec"].get("service")
        if service != self._reference(self._port):
            return service
        former = self._former.get(name)
        service = former["spec"].get("service") if former is not None else None
        if former is None or (service is not None and not await self._is_served(service)):
            await self._client.delete(API_SERVICE, name)
            return None
        await self._put(former)
        return service

    async def _is_served(self, service: Object) -> bool:
        """Return whether requests to a Service are answered; always for one that no run outside the cluster made."""
        if service["name"] != self.service_name:
            return True
        made = await self._client.get_or_none("v1/Service", self.service_name, namespace=service["namespace"])
        host: str = ((made or {}).get("spec") or {}).get("externalName") or ""
        if made is not None and not host:
            routed = await self._client.get_or_none(_SLICE, self.service_name, namespace=service["namespace"])
            host = routed["endpoints"][0]["addresses"][0] if routed is not None else ""
        return bool(host) and await is_served(host, service.get("port") or 443)

    async def _put(self, wanted: Object) -> None:
        """Replace the whole spec: a caBundle of another manager must not stay with this service."""
        name = wanted["metadata"]["name"]
        present = await self._client.get_or_none(API_SERVICE, name)
        if present is None:
            await self._client.create(wanted)
            return
        left = {field: None for field in present["spec"] if field not in wanted["spec"]}
        labels = {"kube-aggregator.kubernetes.io/automanaged": None}  # The server no longer manages it.
        patch = {"metadata": {"labels": labels}, "spec": {**left, **wanted["spec"]}}
        await self._client.patch(API_SERVICE, name, patch)

    def _reference(self, port: int) -> Object:
        return {"namespace": self._client.namespace, "name": self.service_name, "port": port}

    def _external_service(self, host: str) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.service_name, "namespace": self._client.namespace},
            "spec": {"type": "ExternalName", "externalName": host},
        }

    async def _put_endpoints(self) -> None:
        """Make the Service one without a selector, whose only endpoint is the address of this process.

        Raise NotEstablished if that address cannot be an endpoint.
        """
        address = await _endpoint_address(self._host)
        metadata: Object = {"name": self.service_name, "namespace": self._client.namespace}
        port = {"name": "https", "port": self._port, "protocol": "TCP"}
        spec = {"type": "ClusterIP", "ports": [{**port, "targetPort": self._port}]}
        # The manager of the field externalName applies the object without it, which removes it.
        service = await self._client.apply(
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},
            field_manager=self._name,
            force=True,
        )
        owner = {"apiVersion": "v1", "kind": "Service", "name": self.service_name, "uid": service["metadata"]["uid"]}
        metadata["ownerReferences"] = [owner]
        routed = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": self.service_name}},
            "addressType": f"IPv{address.version}",
            "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
            "ports": [port],
        }
        await self._client.apply(routed, field_manager=self._name, force=True)
        # Servers before 1.33 read Endpoints; without the label a controller would copy them into another slice.
        mirrored = {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {**metadata, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": str(address)}], "ports": [port]}],
        }
        await self._client.apply(mirrored, field_manager=self._name, force=True)
        _log.info("the server routes to endpoints: Service %s leads to %s", self.service_name, address)


async def check_free(client: Client, versions: Sequence[GroupVersion], name: str) -> None:
    """Raise NotEstablished if another server than that of the operator `name` has one of these group versions."""
    for group, version in versions:
        service = await service_of(client, group, version)
        if service and service.get("name") not in (name, f"{name}-dev"):
            raise NotEstablished(
                f"APIService {version}.{group} leads to {service.get('namespace')}/{service.get('name')}, and a "
                "cluster has one server for it: delete that APIService; metrics servers can run "
                "beside each other behind the multiplexer (pinnace run -m pinnace.sdk.multiplexer)"
            )


async def service_of(client: Client, group: str, version: str) -> Object:
    """Return the Service that an APIService leads to; empty if there is none."""
    present = await client.get_or_none(API_SERVICE, f"{version}.{group}")
    return ((present or {}).get("spec") or {}).get("service") or {}


class RoutesToEndpoints(Exception):
    """The server dials endpoints itself, so that an ExternalName leads nowhere."""


async def _endpoint_address(host: str) -> IPv4Address | IPv6Address:
    """Return the address of a host for an EndpointSlice, which takes no loopback address. Raise NotEstablished."""
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotEstablished(f"{host} cannot be resolved: {error}; {_ADVICE}") from None
    addresses = [ip_address(place[0]) for *_, place in resolved]
    for address in addresses:
        if not (address.is_loopback or address.is_unspecified or address.is_link_local):
            return address
    raise NotEstablished(f"{host} is no address that the server could dial; {_ADVICE}")


async def _wait_until_available(client: Client, name: str, *, with_endpoints: bool) -> None:
    def is_available(service: Object) -> bool:
        state = condition(service, "Available") or {}
        if not with_endpoints and _NO_EXTERNAL_NAME in (state.get("message") or ""):
            raise RoutesToEndpoints
        return is_true(service, "Available")

    try:
        await wait_until_ready(client, API_SERVICE, name, is_available)
    except NotReadyInTime as late:
        message = (condition(late.last, "Available") or {}).get("message") or "the server has not tried"
        raise NotEstablished(f"the server cannot reach the API {name} here: {message}") from None


_SECONDS = 1.0


async def is_served(host: str, port: int) -> bool:
    """Return whether a process accepts connections at an address."""
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # TimeoutError is one of them.
        return False
    writer.close()
    return True
