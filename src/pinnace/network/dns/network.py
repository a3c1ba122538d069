"""The DNS server of one node, at the cluster's DNS address in the network of its pods."""

from __future__ import annotations

import asyncio
import logging
import socket
from ipaddress import IPv4Network

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key, Object
from pinnace.network.dns.flood import enlarge_buffer, limit_queries
from pinnace.network.dns.records import records_of
from pinnace.network.dns.server import DnsServer
from pinnace.network.dns.upstream import DnsUpstream
from pinnace.network.dns.zone import DnsRecord, Zone
from pinnace.network.pods.netlink import Netlink
from pinnace.network.services.table import service_of
from pinnace.network.sockets import Sockets
from pinnace.reconcile.manager import Manager

PORT = 53
_log = logging.getLogger(__name__)


class DnsNetwork:
    """Follows Services and EndpointSlices, and answers. Create it before the manager runs.

    The address is local to each node, so that each has a server there.
    """

    def __init__(
        self,
        manager: Manager,
        sockets: Sockets,
        *,
        address: str,
        upstream: DnsUpstream | None = None,
        uses_nftables: bool = True,
    ) -> None:
        """`upstream` answers for names outside of the cluster; without it they are refused.

        Without nftables the queries of a client are not limited.
        """
        self._uses_nftables = uses_nftables
        self._sockets = sockets
        self._upstream = upstream
        self._address = address
        self._zone = Zone()
        self._services: dict[Key, Object] = {}
        self._slices: dict[Key, dict[str, Object]] = {}
        manager.informer("v1/Service").on_change(self._on_service)
        manager.informer("discovery.k8s.io/v1/EndpointSlice").on_change(self._on_slice)
        manager.add_part("dns", self.run)

    async def run(self) -> None:
        """Serve until cancelled."""
        netlink = Netlink(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
        try:
            netlink.add_local_network(IPv4Network(self._address))
        finally:
            netlink.close()
        if self._uses_nftables:
            await limit_queries(self._sockets, self._address, PORT)
        datagrams = await self._sockets.find_listener(socket.SOCK_DGRAM, self._address, PORT)
        try:
            listener = await self._sockets.find_listener(socket.SOCK_STREAM, self._address, PORT)
        except BaseException:
            datagrams.close()
            raise
        enlarge_buffer(datagrams)
        server = DnsServer(self._zone, datagrams, listener, self._upstream)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await server.close()

    def _on_service(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None:
            self._services[new.key] = new.object
            self._update(new.key)
        elif old is not None:
            self._services.pop(old.key, None)
            self._update(old.key)

    def _on_slice(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if old is not None:
            owner = service_of(old.object)
            self._slices.get(owner, {}).pop(old.key.name, None)
            self._update(owner)
        if new is not None:
            owner = service_of(new.object)
            self._slices.setdefault(owner, {})[new.key.name] = new.object
            self._update(owner)

    def _update(self, key: Key) -> None:
        service = self._services.get(key)
        slices = [one for _, one in sorted(self._slices.get(key, {}).items())]
        records: list[DnsRecord] = []
        if service is not None:
            try:
                records = list(records_of(service, slices))
            except (ValueError, OSError):
                _log.warning("the names of Service %s are left out: one of them cannot be encoded", key)
        if not slices:
            self._slices.pop(key, None)
        self._zone.set(key, records)
