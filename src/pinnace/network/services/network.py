"""The Service addresses of one node: follows the API, and keeps rules and listeners equal to the table."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from ipaddress import IPv4Network, ip_address

from pinnace.client.snapshots import Snapshot
from pinnace.network.nftables.transactions import PROTOCOL, Nftables
from pinnace.network.pods.netlink import Netlink
from pinnace.network.services.connections import forget_stale
from pinnace.network.services.health_checks import HealthCheckPorts
from pinnace.network.services.proxy import ServiceProxy
from pinnace.network.services.rules import ServiceRules
from pinnace.network.services.table import ANY_ADDRESS, Frontend, ServiceIndex, TableChange
from pinnace.network.sockets import HostSockets, Sockets
from pinnace.reconcile.manager import Manager

_LOOPBACK = "127.0.0.1"
_log = logging.getLogger(__name__)


class ServiceNetwork:
    """Create it before the manager runs, and run it with the manager."""

    def __init__(
        self,
        manager: Manager,
        sockets: Sockets,
        *,
        node: str,
        service_network: str,
        uses_nftables: bool = True,
    ) -> None:
        """`sockets` are those of the node's network namespace. Without nftables a proxy in this process serves."""
        self._sockets = sockets
        self._service_network = IPv4Network(service_network)
        self._uses_nftables = uses_nftables
        clock = manager.client.clock
        self._index = ServiceIndex(node=node)
        self._changed = asyncio.Event()
        self._rules: ServiceRules | None = None
        self._inside = ServiceProxy(sockets, sockets, clock)
        """Serves in the network of the pods where there is no nftables."""
        self._to_host = ServiceProxy(sockets, HostSockets(), clock)
        """Leads from the pods to endpoints on the machine's loopback: to the API server."""
        self._from_host = ServiceProxy(HostSockets(), sockets, clock)
        """Leads from node ports and load balancers on the machine's loopback to pods."""
        self._health_checks = (HealthCheckPorts(sockets, ANY_ADDRESS), HealthCheckPorts(HostSockets(), _LOOPBACK))
        manager.informer("v1/Service").on_change(self._on_service)
        manager.informer("discovery.k8s.io/v1/EndpointSlice").on_change(self._on_slice)
        manager.add_part("service-network", self.run)

    async def run(self) -> None:
        """Serve until cancelled. The rules stay when the agent ends, since the pods do."""
        netlink = Netlink(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
        try:
            netlink.add_local_network(self._service_network)
        finally:
            netlink.close()
        self._index.take_changes()
        nftables = await self._open_nftables() if self._uses_nftables else None
        try:
            await self._apply(dict(self._index.table))
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._apply(self._index.take_changes())
        finally:
            for proxy in (self._inside, self._to_host, self._from_host, *self._health_checks):
                await proxy.close()
            if nftables is not None:
                nftables.close()

    async def _open_nftables(self) -> Nftables | None:
        """Make the rules. Return None on a machine whose kernel or container refuses them."""
        nftables = None
        try:
            nftables = Nftables(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
            rules = ServiceRules(nftables)
            rules.replace({})
        except OSError as error:
            _log.warning("Services are served by a proxy, since nftables cannot be used: %s", error)
            if nftables is not None:
                nftables.close()
            return None
        self._rules = rules
        return nftables

    async def _apply(self, change: TableChange) -> None:
        kernel, to_host, from_host = _divide(change)
        if self._rules is None:
            await self._inside.apply(kernel)
        elif kernel:
            try:
                self._rules.apply(kernel)
            except OSError:
                _log.exception("the rules of Services are made anew, since a change of them was refused")
                self._rules.replace(_divide(dict(self._index.table))[0])
            await self._forget_stale(kernel)
        await self._to_host.apply(to_host)
        await self._from_host.apply(from_host)
        for one in self._health_checks:
            await one.apply(self._index.health_checks)

    async def _forget_stale(self, change: TableChange) -> None:
        if any(frontend.protocol == "UDP" for frontend in change):
            try:
                with await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL) as tracking:
                    tracking.setblocking(False)
                    forget_stale(tracking, change)
            except OSError as error:
                _log.warning("UDP clients may reach endpoints that are gone, since the kernel says: %s", error)

    def _on_service(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None:
            self._index.set_service(new.object)
        elif old is not None:
            self._index.remove_service(old.key)
        self._changed.set()

    def _on_slice(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if old is not None:
            self._index.remove_slice(old.object)
        if new is not None:
            self._index.set_slice(new.object)
        self._changed.set()


def _divide(change: TableChange) -> tuple[TableChange, TableChange, TableChange]:
    """Divide a change by the way on which packets go: the kernel's, from pods to the machine, and from it to pods."""
    kernel: TableChange = {}
    to_host: TableChange = {}
    from_host: TableChange = {}
    for frontend, backends in change.items():
        is_on_host = backends is not None and any(_is_loopback(one.address) for one in backends.endpoints)
        if frontend.address == ANY_ADDRESS:
            from_host[Frontend(_LOOPBACK, frontend.protocol, frontend.port)] = backends
        elif _is_loopback(frontend.address):
            from_host[frontend] = backends
            continue
        to_host[frontend] = backends if is_on_host else None
        kernel[frontend] = None if is_on_host else backends
    return kernel, to_host, from_host


def _is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(address).is_loopback
    return False
