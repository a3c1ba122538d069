"""The Service addresses of one node: follows the API, and keeps rules and listeners equal to the table."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Protocol

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key
from pinnace.model.typed_objects import EndpointSlice, Service
from pinnace.network.families import IPV4, IpFamily, family_of
from pinnace.network.netlink import Netlink
from pinnace.network.nftables.transactions import PROTOCOL, Nftables
from pinnace.network.services.connections import forget_stale
from pinnace.network.services.proxy import ServiceProxy
from pinnace.network.services.rules import ServiceRules
from pinnace.network.services.table import ANY_ADDRESSES, Backends, Frontend, HealthCheck, ServiceIndex, TableChange
from pinnace.network.sockets import HostSockets, Sockets, open_listener
from pinnace.reconcile.manager import Manager

_RETRY_SECONDS = 1.0
MOST_LED = 1000
"""To how many external addresses of Services pods without egress have routes."""
_log = logging.getLogger(__name__)


class PodRoutes(Protocol):
    """The pods of a node, as far as external addresses of Services are concerned."""

    async def lead_to(self, addresses: Sequence[str]) -> None:
        """Let pods send packets for these addresses to the node, and for no others that they had by this method."""


class ServiceNetwork:
    """Create it before the manager runs, and run it with the manager."""

    def __init__(
        self,
        manager: Manager,
        sockets: Sockets,
        *,
        node: str,
        service_networks: Sequence[str],
        pod_networks: Sequence[str] = (),
        cluster_networks: Sequence[str] = (),
        uses_nftables: bool = True,
    ) -> None:
        """`sockets` are those of the node's network namespace. Without nftables a proxy in this process serves.

        `service_networks` and `pod_networks` have one range of each IP family that the node serves; `cluster_networks`
        those of all pods.
        """
        self.pods: PodRoutes | None = None
        """The pods of the node, if they have no route to the networks outside. The owner sets it."""
        self._led: list[str] | None = None
        """The external addresses to which the pods have routes; None before the first time."""
        self._sockets = sockets
        self._networks = {family_of(network): ip_network(network) for network in service_networks}
        self._pod_networks = {family_of(network): network for network in pod_networks}
        self._uses_nftables = uses_nftables
        clock = manager.client.clock
        self._node_addresses = [str(ip_network(network)[1]) for network in pod_networks]
        self._index = ServiceIndex(
            node=node, networks=[*service_networks, *cluster_networks], node_addresses=self._node_addresses
        )
        self._changed = asyncio.Event()
        self._rules: dict[IpFamily, ServiceRules] = {}
        self._inside = ServiceProxy(sockets, sockets, clock)
        """Serves in the network of the pods where there is no nftables."""
        self._to_host = ServiceProxy(sockets, HostSockets(), clock)
        """Leads from the pods to endpoints on the machine's loopback: to the API server."""
        self._from_host = ServiceProxy(HostSockets(), sockets, clock)
        """Leads from node ports and load balancers on the machine's loopback to pods."""
        places = ((sockets, IPV4.any_address), (HostSockets(), IPV4.loopback))
        self._health_checks = [HealthCheckPorts(*place) for place in places]
        manager.informer(Service).on_change(self._on_service)
        manager.informer(EndpointSlice).on_change(self._on_slice)
        manager.add_part("service-network", self.run)

    async def run(self) -> None:
        """Serve until cancelled. The rules stay when the agent ends, since the pods do."""
        netlink = Netlink(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
        try:
            for network in self._networks.values():
                netlink.add_local_network(network)
        finally:
            netlink.close()
        self._index.take_changes()
        nftables = await self._open_nftables() if self._uses_nftables else None
        try:
            await self._apply(dict(self._index.table))
            while True:
                try:
                    async with asyncio.timeout(_RETRY_SECONDS if self._from_host.is_waiting else None):
                        await self._changed.wait()
                except TimeoutError:
                    await self._from_host.retry()
                    continue
                self._changed.clear()
                await self._apply(self._index.take_changes())
        finally:
            for proxy in (self._inside, self._to_host, self._from_host):
                await proxy.close()
            for ports in self._health_checks:
                await ports.close()
            if nftables is not None:
                nftables.close()

    async def _open_nftables(self) -> Nftables | None:
        """Make the rules. Return None on a machine whose kernel or container refuses them."""
        nftables = None
        try:
            nftables = Nftables(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
            own = self._pod_networks
            rules = {
                network: ServiceRules(nftables, network, pod_network=own.get(network, "")) for network in self._networks
            }
            for service_rules in rules.values():
                service_rules.replace({})
        except OSError as error:
            _log.warning("Services are served by a proxy, since nftables cannot be used: %s", error)
            if nftables is not None:
                nftables.close()
            return None
        self._rules = rules
        return nftables

    async def _lead(self, change: TableChange) -> None:
        """Give the pods routes to the external addresses of Services, which are addresses of the node for them."""
        is_first = self._led is None
        if self.pods is None or not (is_first or any(self._is_external(frontend.address) for frontend in change)):
            return
        addresses = sorted({to.address for to in self._index.table if self._is_external(to.address)})
        if len(addresses) > MOST_LED:
            _log.warning("pods reach %d of the %d external addresses of Services", MOST_LED, len(addresses))
            del addresses[MOST_LED:]
        if addresses == self._led:
            return
        before = set(self._led or ())
        netlink = Netlink(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
        try:
            for address in before.difference(addresses):
                with contextlib.suppress(OSError):
                    netlink.remove_local_network(ip_network(address))
            for address in set(addresses) - before:
                netlink.add_local_network(ip_network(address))
        finally:
            netlink.close()
        self._led = addresses
        await self.pods.lead_to(addresses)

    def _is_external(self, text: str) -> bool:
        """Whether an address is neither that of a Service nor of the node."""
        network = self._networks.get(family_of(text))
        is_own = text in ANY_ADDRESSES or text in self._node_addresses or _is_loopback(text)
        return network is not None and not is_own and ip_address(text) not in network

    async def _apply(self, change: TableChange) -> None:
        await self._lead(change)
        kernel, to_host, from_host = self._divide(change)
        if not self._rules:
            await self._inside.apply({frontend: self._without_services(to) for frontend, to in kernel.items()})
        for family, rules in self._rules.items():
            if own := _of_family(kernel, family):
                try:
                    rules.apply(own)
                except OSError:
                    _log.exception("the rules of Services are made anew, since a change of them was refused")
                    rules.replace(_of_family(self._divide(dict(self._index.table))[0], family))
                await self._forget_stale(own, family)
        await self._to_host.apply(to_host)
        await self._from_host.apply(from_host)
        for ports in self._health_checks:
            await ports.apply(self._index.health_checks)

    async def _forget_stale(self, change: TableChange, family: IpFamily) -> None:
        if any(frontend.protocol == "UDP" for frontend in change):
            try:
                with await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL) as tracking:
                    tracking.setblocking(False)
                    forget_stale(tracking, change, family)
            except OSError as error:
                _log.warning("UDP clients may reach endpoints that are gone, since the kernel says: %s", error)

    def _divide(self, change: TableChange) -> tuple[TableChange, TableChange, TableChange]:
        """Divide a change by the way on which packets go: the kernel's, from pods to the machine, and from it to pods.

        Frontends of a family that this node does not serve are left out.
        """
        kernel: TableChange = {}
        to_host: TableChange = {}
        from_host: TableChange = {}
        for frontend, backends in change.items():
            family = family_of(frontend.address)
            if family not in self._networks:
                continue
            is_on_host = backends is not None and any(_is_loopback(endpoint.address) for endpoint in backends.endpoints)
            if frontend.address in ANY_ADDRESSES:
                from_host[Frontend(family.loopback, frontend.protocol, frontend.port)] = backends
            elif _is_loopback(frontend.address):
                from_host[frontend] = backends
                continue
            to_host[frontend] = backends if is_on_host else None
            kernel[frontend] = None if is_on_host else backends
        return kernel, to_host, from_host

    def _without_services(self, backends: Backends | None) -> Backends | None:
        """Leave out endpoints that are Service addresses: the proxy would connect to itself, again and again.

        The kernel translates a destination once, so they lead nowhere with rules too.
        """
        networks = self._networks.values()
        if backends is None:
            return None
        own = [
            endpoint
            for endpoint in backends.endpoints
            if not any(ip_address(endpoint.address) in net for net in networks)
        ]
        return backends._replace(endpoints=tuple(own)) if own else None

    def _on_service(self, old: Snapshot[Service] | None, new: Snapshot[Service] | None) -> None:
        if new is not None:
            self._index.set_service(new.object)
        elif old is not None:
            self._index.remove_service(old.key)
        self._changed.set()

    def _on_slice(self, old: Snapshot[EndpointSlice] | None, new: Snapshot[EndpointSlice] | None) -> None:
        if old is not None:
            self._index.remove_slice(old.object)
        if new is not None:
            self._index.set_slice(new.object)
        self._changed.set()


def _of_family(change: TableChange, family: IpFamily) -> TableChange:
    return {frontend: backends for frontend, backends in change.items() if family_of(frontend.address) is family}


def _is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(address).is_loopback
    return False


_MOST_BYTES = 16 * 1024
_READ_SECONDS = 10.0


class HealthCheckPorts:
    """The health-check node ports of Services at one address: a load balancer learns whether the node has endpoints.

    Services of type LoadBalancer with externalTrafficPolicy: Local have them, since their traffic stays on the node
    that receives it. The status code is 200 with ready endpoints and 503 without, whatever the path of the request.
    `apply` the wanted state; `close` it.
    """

    def __init__(self, sockets: Sockets, address: str) -> None:
        self._sockets = sockets
        self._address = address
        self._wanted: Mapping[Key, HealthCheck] = {}
        self._servers: dict[Key, tuple[int, asyncio.Server]] = {}
        self._refused: dict[Key, int] = {}
        """The ports that cannot be opened, which the log has: another node of this machine may have them."""

    async def apply(self, wanted: Mapping[Key, HealthCheck]) -> None:
        """Open and close ports. A port that cannot be opened is logged once, and tried again with the next change."""
        self._wanted = dict(wanted)
        self._refused = {key: port for key, port in self._refused.items() if key in wanted}
        for key, (port, server) in list(self._servers.items()):
            if key not in wanted or wanted[key].port != port:
                del self._servers[key]
                server.close()
        for key, check in wanted.items():
            if key not in self._servers:
                await self._open(key, check.port)

    async def close(self) -> None:
        await self.apply({})

    async def _open(self, key: Key, port: int) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._answer(key, reader, writer)

        try:
            listener = await open_listener(self._sockets, socket.SOCK_STREAM, self._address, port)
        except OSError as error:
            if self._refused.get(key) != port:
                self._refused[key] = port
                is_taken = error.errno == errno.EADDRINUSE
                level, place = logging.INFO if is_taken else logging.WARNING, f"{self._address}:{port}"
                _log.log(level, "cannot listen on %s for health checks: %s", place, error.strerror or error)
            return
        self._refused.pop(key, None)
        self._servers[key] = port, await asyncio.start_server(answer, sock=listener, limit=_MOST_BYTES)

    async def _answer(self, key: Key, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):  # TimeoutError is an OSError.
            writer.close()
            return
        check = self._wanted.get(key)
        writer.write(_response(key, check.endpoints if check is not None else 0))
        writer.close()


def _response(key: Key, endpoints: int) -> bytes:
    service = {"namespace": key.namespace, "name": key.name}
    content = {"service": service, "localEndpoints": endpoints, "serviceProxyHealthy": True}
    body = json.dumps(content, indent="\t").encode()
    status = "200 OK" if endpoints else "503 Service Unavailable"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"
        f"X-Load-Balancing-Endpoint-Weight: {endpoints}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
