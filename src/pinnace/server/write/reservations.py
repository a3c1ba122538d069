"""Allocates the cluster IPs and node ports of services; each exists once."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Protocol, cast

from pinnace.kinds.services.addresses import find_address_errors
from pinnace.kinds.services.types import (
    NONE,
    family_of,
    has_addresses,
    keeps_preferred_families,
    needs_health_check,
    needs_node_ports,
    spec_of,
)
from pinnace.model import errors, field_errors
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.model.typed_objects import Service
from pinnace.serving.write.allocation import Reservation

NODE_PORTS = range(30000, 32768)
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressObjects(Protocol):
    """The ranges of service addresses and the objects of the allocated ones, as other servers see them too."""

    def ranges(self) -> Sequence[Network]:
        """Return the ranges to allocate from besides the server's own."""

    def is_taken(self, address: str) -> bool: ...

    async def create(self, address: str, service: Object) -> bool:
        """Return False if the address has an object already."""

    async def delete(self, address: str) -> None:
        """Delete the object if it exists."""


class NoAddressObjects:
    """For Kubernetes before 1.33, which has neither kind."""

    def ranges(self) -> Sequence[Network]:
        return ()

    def is_taken(self, address: str) -> bool:
        return False

    async def create(self, address: str, service: Object) -> bool:
        return True

    async def delete(self, address: str) -> None:
        return


class ServiceReservations:
    """Gives services their cluster IPs and node ports. `adopt` registers the stored services at start-up."""

    def __init__(self, *networks: str, objects: AddressObjects | None = None) -> None:
        """`networks` are the ranges of the cluster's services, one for each IP family that it has."""
        given = [ipaddress.ip_network(text) for text in networks or ("10.96.0.0/16",)]
        self._networks: dict[str, Network] = {f"IPv{network.version}": network for network in given}
        self._objects = objects or NoAddressObjects()
        self._addresses: set[str] = set()
        self._ports: set[int] = set()
        self._is_following = False
        self._stored_addresses: set[str] = set()  # Of stored services, while following. The sets above are of writes.
        self._stored_ports: set[int] = set()

    def adopt(self, service: Object) -> None:
        """Register a service that was stored before this process started."""
        self._addresses.update(_addresses_of(service))
        self._ports.update(_ports_of(service))

    def follow(self, old: Object | None, new: Object | None) -> None:
        """Register a change of a service by any server. From the first call on, only changes show what is stored."""
        if not self._is_following:
            self._is_following = True
            self._stored_addresses, self._stored_ports = set(self._addresses), set(self._ports)
            self._addresses.clear()
            self._ports.clear()
        if old is not None:
            self._stored_addresses.difference_update(_addresses_of(old))
            self._stored_ports.difference_update(_ports_of(old))
        if new is not None:
            self._stored_addresses.update(_addresses_of(new))
            self._stored_ports.update(_ports_of(new))

    def reserve(self, resource: Resource, new: Object, old: Object | None) -> Reservation | None:
        if resource.plural != "services" or resource.group:
            return None
        return self._allocate(new, old)

    def _allocate(self, new: Object, old: Object | None) -> Reservation:
        reservation = Reservation(self._addresses, self._ports)
        new.setdefault("spec", {})
        held_addresses = set(_addresses_of(old)) if old else set()
        held_ports = set(_ports_of(old)) if old else set()
        try:
            if self._needs_addresses(new, old):
                self._take_addresses(new, held_addresses, reservation.taken_addresses)
            self._take_ports(new, old, reservation.taken_ports)
            self._take_health_check_port(new, old, reservation.taken_ports)
        except errors.ApiError:
            reservation.give_back()
            raise
        reservation.unused_addresses = held_addresses - set(_addresses_of(new))
        reservation.unused_ports = held_ports - set(_ports_of(new))
        reservation.is_followed = self._is_following
        return reservation

    def release(self, resource: Resource, old: Object) -> Sequence[str]:
        if resource.plural != "services" or resource.group:
            return ()
        addresses = _addresses_of(old)
        if not self._is_following:
            self._addresses.difference_update(addresses)
            self._ports.difference_update(_ports_of(old))
        return addresses

    async def record(self, reservation: Reservation, service: Object) -> bool:
        """Create the objects of the addresses that a write has taken. Return False if another server was faster."""
        for at, address in enumerate(reservation.taken_addresses):
            if not await self._objects.create(address, service):
                await self.forget(reservation.taken_addresses[:at])
                return False
        return True

    async def forget(self, addresses: Collection[str]) -> None:
        """Delete the objects of addresses that no service has any more."""
        for address in addresses:
            await self._objects.delete(address)

    def _take_addresses(self, service: Object, held: set[str], taken: list[str]) -> None:
        """Take one address for each IP family of a service."""
        spec = service["spec"]
        addresses: list[str] = list(spec.get("clusterIPs") or ())
        for index, family in enumerate(spec.get("ipFamilies") or [family_of(address) for address in addresses]):
            if index == len(addresses):
                addresses.append(self._free_address(service, family))
            wanted = _canonical(addresses[index])
            if wanted in held:
                continue
            self._refuse_unusable(service, family, addresses, index)
            self._addresses.add(wanted)
            taken.append(wanted)
        if addresses:
            spec["clusterIP"], spec["clusterIPs"] = addresses[0], addresses

    def _needs_addresses(self, service: Object, old: Object | None) -> bool:
        """Whether a service has addresses. Nothing is allocated for one that validation refuses for its addresses."""
        spec = service["spec"]
        if not has_addresses(spec) or spec.get("clusterIP") == NONE or keeps_preferred_families(spec, spec_of(old)):
            return False
        return not _changes_address(spec, old) and not find_address_errors(
            cast("Service", service), cast("Service | None", old), tuple(self._networks)
        )

    def _ranges(self, family: str) -> list[Network]:
        own = self._networks[family]
        return [own, *(range_ for range_ in self._objects.ranges() if range_ != own and range_.version == own.version)]

    def _is_taken(self, address: str) -> bool:
        return address in self._addresses or address in self._stored_addresses or self._objects.is_taken(address)

    def _is_port_taken(self, port: int) -> bool:
        return port in self._ports or port in self._stored_ports

    def _free_address(self, service: Object, family: str) -> str:
        for network in self._ranges(family):
            size = network.num_addresses
            for _ in range(200 if size > 2 else 0):
                candidate = str(network[random.randrange(max(1, min(256, size // 16)), size - 1)])
                if not self._is_taken(candidate):
                    return candidate
            for candidate in map(str, network.hosts() if size > 2 else ()):
                if not self._is_taken(candidate):
                    return candidate
        name = service["metadata"].get("name", "")
        raise errors.InternalError(f'failed to allocate a serviceIP for Service "{name}": range is full')

    def _refuse_unusable(self, service: Object, family: str, addresses: Sequence[str], index: int) -> None:
        wanted, why = addresses[index], ""
        try:
            address = ipaddress.ip_address(wanted)
        except ValueError:  # With leading zeros, as in stored services of old clusters.
            return
        if not any(_is_usable(address, network) for network in self._ranges(family)):
            why = f"failed to allocate IP {wanted}: the provided network does not match the current range"
        elif self._is_taken(str(address)):
            why = f"failed to allocate IP {wanted}: provided IP is already allocated"
        if why:
            err = field_errors.invalid("spec.clusterIPs", list(addresses), why)
            raise errors.Invalid([err], group="", kind="Service", name=service["metadata"].get("name", ""))

    def _take_ports(self, service: Object, old: Object | None, taken: list[int]) -> None:
        if not needs_node_ports(service["spec"]):
            return
        if old is None:
            self._take_ports_of_new(service, taken)
        else:
            self._take_ports_of_changed(service, set(_node_ports_of(old)), taken)

    def _take_ports_of_new(self, service: Object, taken: list[int]) -> None:
        """Take the node ports of a new service. Ports with one number, such as TCP and UDP 53, share a node port."""
        allocates, by_number = _allocates_node_ports(service["spec"]), dict[int, int]()
        ports = service["spec"].get("ports") or []
        requested = {port.get("port", 0): port["nodePort"] for port in reversed(ports) if port.get("nodePort")}
        for index, port in enumerate(ports):
            number, wanted = port.get("port", 0), port.get("nodePort", 0)
            if not wanted and not allocates:
                continue
            shared = by_number.get(number, 0)
            if not shared:
                wanted = requested.get(number) or self._free_port()
                by_number[number] = wanted
            elif wanted in (0, shared):
                port["nodePort"] = shared
                continue
            self._require_port(service, index, wanted, taken)
            port["nodePort"] = wanted

    def _take_ports_of_changed(self, service: Object, held: set[int], taken: list[int]) -> None:
        allocates = _allocates_node_ports(service["spec"])
        for index, port in enumerate(service["spec"].get("ports") or []):
            wanted = port.get("nodePort", 0)
            if wanted in held or not (wanted or allocates):
                continue
            port["nodePort"] = wanted or self._free_port()
            self._require_port(service, index, port["nodePort"], taken)
            held.add(port["nodePort"])

    def _take_health_check_port(self, service: Object, old: Object | None, taken: list[int]) -> None:
        """Take the port at which a load balancer asks nodes for local endpoints. It never changes once taken."""
        spec = service["spec"]
        if not needs_health_check(spec) or needs_health_check(spec_of(old)):
            return
        wanted = spec.get("healthCheckNodePort") or self._free_port()
        if why := self._take_port(wanted, taken):
            raise errors.InternalError(f"failed to allocate requested HealthCheck NodePort {wanted}: {why}")
        spec["healthCheckNodePort"] = wanted

    def _free_port(self) -> int:
        if len(self._ports) + len(self._stored_ports) >= len(NODE_PORTS):
            raise errors.InternalError("failed to allocate a nodePort: range is full")
        while self._is_port_taken(candidate := random.choice(NODE_PORTS)):
            pass
        return candidate

    def _take_port(self, wanted: int, taken: list[int]) -> str:
        """Take a port. Return the reason if it cannot be had."""
        if wanted not in NODE_PORTS:
            return "provided port is not in the valid range. The range of valid ports is 30000-32767"
        if self._is_port_taken(wanted):
            return "provided port is already allocated"
        self._ports.add(wanted)
        taken.append(wanted)
        return ""

    def _require_port(self, service: Object, index: int, wanted: int, taken: list[int]) -> None:
        if why := self._take_port(wanted, taken):
            err = field_errors.invalid(f"spec.ports[{index}].nodePort", wanted, why)
            raise errors.Invalid([err], group="", kind="Service", name=service["metadata"].get("name", ""))


def _allocates_node_ports(spec: Object) -> bool:
    return spec["type"] == "NodePort" or spec.get("allocateLoadBalancerNodePorts") is not False


def _is_usable(address: Address, network: Network) -> bool:
    """Whether services may have an address: neither that of the network nor the IPv4 broadcast address."""
    if address not in network or address == network.network_address:
        return False
    return network.version == 6 or address != network.broadcast_address


def _changes_address(spec: Object, old: Object | None) -> bool:
    """Whether a service that has an address, or has explicitly none, asks for another one. Validation refuses that."""
    before = (old or {}).get("spec") or {}
    if before.get("clusterIP") and spec.get("clusterIP", "") not in ("", before["clusterIP"]):
        return True
    given = zip(spec.get("clusterIPs") or (), before.get("clusterIPs") or (), strict=False)
    return any(now != was for now, was in given)


def _addresses_of(service: Object) -> list[str]:
    spec: dict[str, Any] = service.get("spec") or {}
    return [_canonical(ip) for ip in (spec.get("clusterIPs") or [spec.get("clusterIP")]) if ip and ip != "None"]


def _canonical(address: str) -> str:
    """Return the usual text of an address: it has many in IPv6."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address  # Validation reports it.


def _ports_of(service: Object) -> list[int]:
    spec: dict[str, Any] = service.get("spec") or {}
    return [port for port in (*_node_ports_of(service), spec.get("healthCheckNodePort")) if port]


def _node_ports_of(service: Object) -> list[int]:
    return [port["nodePort"] for port in spec_of(service).get("ports") or [] if port.get("nodePort")]
