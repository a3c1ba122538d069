"""Keeps services and the objects of their addresses equal, and reports addresses and ports that are in use twice.

Each cluster IP has one IPAddress, which names its service. A server that died between two writes, restored data or an
edit by hand break that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from ipaddress import ip_address, ip_network

from pinnace.client.client import Client
from pinnace.controllers.workloads.pod_control import EventSource
from pinnace.kinds.networking.address_objects import ALLOCATOR, MANAGED_BY, address_object, labels_of
from pinnace.model import errors
from pinnace.model.objects import AnyObject, Key
from pinnace.model.typed_objects import IPAddress, ParentReference, Service, ServiceCIDR
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

NODE_PORTS = range(30000, 32768)
CREATION_SECONDS = 60.0
"""An address is allocated before its service is stored: the server has this long."""
ROLLBACK_SECONDS = 5.0
"""A service that could not be stored gives its address back within this time."""
_BY_PORT = "node port"


class AddressRepair:
    """One loop over the services, one over the addresses."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._services = manager.cache(Service)
        self._services.add_index(_BY_PORT, _port_texts)
        self._addresses = manager.cache(IPAddress)
        self._ranges = manager.cache(ServiceCIDR)
        self._events = EventSource(manager.recorder, "ipallocator-repair-controller")
        self._port_events = EventSource(manager.recorder, "portallocator-repair-controller")
        services = Controller("service-address-repair", self._repair_service)
        services.for_(Service)
        services.watches(IPAddress, self._services_of)
        addresses = Controller("address-repair", self._repair_address)
        addresses.for_(IPAddress)
        addresses.watches(Service, _addresses_of)
        self.controllers = (services, addresses)

    def _services_of(self, address: IPAddress) -> Iterable[Key]:
        parent = address["spec"].get("parentRef") or {}
        return (Key(parent.get("namespace", ""), parent.get("name", "")),) if _refers_to_service(parent) else ()

    # Services

    async def _repair_service(self, key: Key) -> None:
        service = self._services.get(key)
        if service is None:
            return
        self._check_ports(service)
        for text in _cluster_ips(service):
            try:
                address = ip_address(text)
            except ValueError:
                message = f"Cluster IP {text} is not a valid IP; please recreate Service"
                self._events.warning(service, "ClusterIPNotValid", message)
                continue
            family = f"IPv{address.version}"
            if not any(
                address in ip_network(cidr)
                for service_cidr in self._ranges.list()
                for cidr in service_cidr["spec"]["cidrs"]
            ):
                message = "is not within any configured Service CIDR; please recreate service"
                self._events.warning(service, "ClusterIPOutOfRange", f"Cluster IP [{family}]: {address} {message}")
                continue
            await self._repair_cluster_ip(service, str(address), family)

    async def _repair_cluster_ip(self, service: Service, address: str, family: str) -> None:
        # The watches of services and addresses are not in step: the server knows what is there now.
        present = self._addresses.get(Key("", address)) or await self._client.get_or_none(IPAddress, address)
        metadata = service["metadata"]
        if present is None:
            message = f"Cluster IP [{family}]: {address} is not allocated; repairing"
            self._events.warning(service, "ClusterIPNotAllocated", message)
            await self._client.create(address_object(address, service))
            return
        parent = present["spec"].get("parentRef") or {}
        is_own = (parent.get("namespace"), parent.get("name")) == (metadata["namespace"], metadata["name"])
        if not _refers_to_service(parent) or not is_own:
            holder = self._services.get(Key(parent.get("namespace", ""), parent.get("name", "")))
            if _refers_to_service(parent) and holder is not None and address in _cluster_ips(holder):
                message = f"Cluster IP [{family}]:{address} was assigned to multiple services; please recreate service"
                self._events.warning(service, "ClusterIPAlreadyAllocated", message)
                return
            name = f"{metadata['namespace']}/{metadata['name']}"
            message = f"the ClusterIP [{family}]: {address} for Service {name} has a wrong reference; repairing"
            self._events.warning(service, "ClusterIPNotAllocated", message)
            await self._recreate(present, service)
        elif labels_of(address).items() - (present["metadata"].get("labels") or {}).items():
            await self._recreate(present, service)

    async def _recreate(self, present: IPAddress, service: Service) -> None:
        await self._delete(present)
        await self._client.create(address_object(present["metadata"]["name"], service))

    def _check_ports(self, service: Service) -> None:
        key = Key(service["metadata"]["namespace"], service["metadata"]["name"])
        for port in _node_ports(service):
            if port not in NODE_PORTS:
                allowed = f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
                message = f"Port {port} is not within the port range {allowed}; please recreate service"
                self._port_events.warning(service, "PortOutOfRange", message)
                continue
            holders = self._services.by_index(_BY_PORT, str(port))
            # As in Kubernetes' list of all services, the first by name has the port.
            first = min(
                (Key(holder["metadata"]["namespace"], holder["metadata"]["name"]) for holder in holders), default=key
            )
            if first != key:
                message = f"Port {port} was assigned to multiple services; please recreate service"
                self._port_events.warning(service, "PortAlreadyAllocated", message)

    # Addresses

    async def _repair_address(self, key: Key) -> Result | None:
        present = self._addresses.get(key)
        if present is None or (present["metadata"].get("labels") or {}).get(MANAGED_BY) != ALLOCATOR:
            return None
        parent = present["spec"].get("parentRef") or {}
        if not _refers_to_service(parent):
            message = f"IPAddress {key.name} appears to have been modified, not referencing a Service: cleaning up"
            self._events.warning(present, "IPAddressNotAllocated", message)
            await self._delete(present)
            return None
        where = f"{parent.get('namespace', '')}/{parent.get('name', '')}"
        service = self._services.get(Key(parent.get("namespace", ""), parent.get("name", "")))
        if service is not None and key.name in _cluster_ips(service):
            return None
        wait = self._wait(present, service)
        if wait > 0:
            return Result(requeue_after=wait)
        if service is None:
            message = f"IPAddress: {key.name} for Service {where} appears to have leaked: cleaning up"
            self._events.warning(present, "IPAddressNotAllocated", message)
        else:
            message = f"IPAddress: {key.name} for Service {where} has a wrong reference; cleaning up"
            self._events.warning(present, "IPAddressWrongReference", message)
        await self._delete(present)
        return None

    def _wait(self, present: IPAddress, service: Service | None) -> float:
        """The seconds that the write of a service may still take after that of its address."""
        age = (self._clock.now() - _created(present)).total_seconds()
        if service is None or service["spec"].get("type") == "ExternalName":
            return CREATION_SECONDS - age
        return ROLLBACK_SECONDS - age if _created(present) > _created(service) else 0.0

    async def _delete(self, present: IPAddress) -> None:
        try:
            await self._client.delete(IPAddress, present["metadata"]["name"], uid=present["metadata"]["uid"])
        except (errors.NotFound, errors.Conflict):
            return  # Gone, or created again meanwhile: its event follows.


def _refers_to_service(parent: ParentReference) -> bool:
    return not parent.get("group") and parent.get("resource") == "services"


def _cluster_ips(service: Service) -> Sequence[str]:
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return ()
    return [address for address in spec.get("clusterIPs") or (spec.get("clusterIP"),) if address and address != "None"]


def _addresses_of(service: Service) -> Iterable[Key]:
    return [Key("", address) for address in _cluster_ips(service)]


def _node_ports(service: Service) -> Sequence[int]:
    spec = service["spec"]
    ports = [port.get("nodePort") for port in spec.get("ports") or ()]
    return list(dict.fromkeys(port for port in (*ports, spec.get("healthCheckNodePort")) if port))


def _port_texts(service: Service) -> Iterable[str]:
    return map(str, _node_ports(service))


def _created(obj: AnyObject) -> datetime:
    return datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
