"""The DNS server of one node, at the cluster's DNS address in the network of its pods."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, ip_address

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key
from pinnace.model.typed_objects import EndpointSlice, Service, ServiceSpec
from pinnace.network.dns.server import DnsServer
from pinnace.network.dns.upstream import DnsUpstream
from pinnace.network.dns.wire import RecordType, address_data, encode_name, service_data
from pinnace.network.dns.zone import DnsRecord, Zone
from pinnace.network.netlink import Netlink
from pinnace.network.nftables import expressions as rule
from pinnace.network.nftables.expressions import Compare, Expression, RuleVerdict
from pinnace.network.nftables.transactions import FIRST, FIRST_OUT, SetShape, Transaction, commit_once
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
        self._rivals: set[Key] = set()
        """Services with endpoints that have the address of this server: their endpoints answer."""
        self._claimed = asyncio.Event()
        self._services: dict[Key, Service] = {}
        self._slices: dict[Key, dict[str, EndpointSlice]] = {}
        manager.informer(Service).on_change(self._on_service)
        manager.informer(EndpointSlice).on_change(self._on_slice)
        manager.add_part("dns", self.run)

    async def run(self) -> None:
        """Serve until cancelled."""
        netlink = Netlink(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
        try:
            netlink.add_local_network(IPv4Network(self._address))
        finally:
            netlink.close()
        await self._limit_queries()
        datagrams = await self._sockets.find_listener(socket.SOCK_DGRAM, self._address, PORT)
        try:
            listener = await self._sockets.find_listener(socket.SOCK_STREAM, self._address, PORT)
        except BaseException:
            datagrams.close()
            raise
        enlarge_buffer(datagrams)
        server = DnsServer(self._zone, datagrams, listener, self._upstream)
        try:
            while True:
                await self._claimed.wait()
                self._claimed.clear()
                await self._limit_queries()
        finally:
            await server.close()

    async def _limit_queries(self) -> None:
        if self._uses_nftables:
            await limit_queries(self._sockets, self._address, PORT, is_tracked=bool(self._rivals))

    def _on_service(self, old: Snapshot[Service] | None, new: Snapshot[Service] | None) -> None:
        if new is not None:
            self._services[new.key] = new.object
            self._update(new.key)
        elif old is not None:
            self._services.pop(old.key, None)
            self._update(old.key)

    def _on_slice(self, old: Snapshot[EndpointSlice] | None, new: Snapshot[EndpointSlice] | None) -> None:
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
        slices = [slice_ for _, slice_ in sorted(self._slices.get(key, {}).items())]
        records: list[DnsRecord] = []
        if service is not None:
            try:
                records = list(records_of(service, slices))
            except (ValueError, OSError):
                _log.warning("the names of Service %s are left out: one of them cannot be encoded", key)
        if not slices:
            self._slices.pop(key, None)
        self._zone.set(key, records)
        addresses = (service.get("spec") or {}).get("clusterIPs") or () if service is not None else ()
        if (key in self._rivals) != (bool(slices) and self._address in addresses):
            self._rivals ^= {key}
            self._claimed.set()


_TABLE, _CHAIN, _ANSWERS, _CLIENTS = "pinnace-dns", "queries", "answers", "clients"
_QUERIES_PER_SECOND = 5000
"""For each client over UDP: about a quarter of the answers that a server has time for."""
_BURST = 1000
_KEEP_SECONDS = 60
_BUFFER_BYTES = 4 << 20
"""Holds the queries of several clients at their limit while the agent does other work."""
_SO_RCVBUFFORCE = 33


async def limit_queries(sockets: Sockets, address: str, port: int, *, is_tracked: bool = False) -> None:
    """Drop the queries of each client that come above its limit; without nftables, warn.

    The kernel has one buffer for the queries of all pods, so the excess of one is dropped before it gets there.

    Queries are no tracked connections, of which a pod has a limited number, unless a Service leads them elsewhere.
    """
    transaction = Transaction(_TABLE)
    transaction.replace_table()
    transaction.add_set(_CLIENTS, SetShape(key=4, seconds=_KEEP_SECONDS))
    transaction.add_chain(_CHAIN, FIRST)
    is_query = _is_datagram(rule.load_destination(0), rule.load_port(0), address, port)
    over = rule.exceeds(_CLIENTS, 0, rate=_QUERIES_PER_SECOND, burst=_BURST)
    transaction.add_rule(_CHAIN, [*is_query, rule.load_source(0), over, rule.end(RuleVerdict.DROP)])
    if not is_tracked:
        transaction.add_chain(_ANSWERS, FIRST_OUT)
        transaction.add_rule(_CHAIN, [*is_query, rule.do_not_track()])
        is_answer = _is_datagram(rule.load_source(0), rule.load_source_port(0), address, port)
        transaction.add_rule(_ANSWERS, [*is_answer, rule.do_not_track()])
    try:
        await commit_once(sockets, transaction)
    except OSError as error:
        _log.warning("a pod that floods the DNS server delays others, since nftables cannot be used: %s", error)


def _is_datagram(load_address: Expression, load_port: Expression, address: str, port: int) -> list[Expression]:
    return [
        *(load_address, rule.compare(0, Compare.EQUAL, IPv4Address(address).packed)),
        *(rule.load_protocol(0), rule.compare(0, Compare.EQUAL, bytes((socket.IPPROTO_UDP,)))),
        *(load_port, rule.compare(0, Compare.EQUAL, port.to_bytes(2, "big"))),
    ]


def enlarge_buffer(datagrams: socket.socket) -> None:
    """Let the socket hold more queries; a user other than root gets as many as the machine allows."""
    for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            datagrams.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            return


_WEIGHT = 100


def records_of(
    service: Service, slices: Sequence[EndpointSlice], *, domain: str = "cluster.local"
) -> Iterator[DnsRecord]:
    """Yield the records of a Service and, if it has no address of its own, of its endpoints."""
    metadata, spec = service["metadata"], service.get("spec") or {}
    name = f"{metadata['name']}.{metadata['namespace']}.svc.{domain}"
    if spec.get("type") == "ExternalName":
        target = (spec.get("externalName") or "").rstrip(".").lower()
        if target:
            yield DnsRecord(name, RecordType.CNAME, encode_name(target), target)
    elif spec.get("clusterIP") == "None":
        yield from _headless(name, slices, publishes_all=bool(spec.get("publishNotReadyAddresses")))
    else:
        yield from _cluster_ip(name, spec)


def _cluster_ip(name: str, spec: ServiceSpec) -> Iterator[DnsRecord]:
    addresses = [address for address in spec.get("clusterIPs") or [spec.get("clusterIP", "")] if address]
    for address in addresses:
        yield _address(name, address)
        yield _pointer(address, name)
    for port in spec.get("ports") or () if addresses else ():
        if port.get("name"):
            yield _service(name, port["name"], port.get("protocol", "TCP"), port["port"], name)


def _headless(name: str, slices: Sequence[EndpointSlice], *, publishes_all: bool) -> Iterator[DnsRecord]:
    seen: set[DnsRecord] = set()
    for slice_ in slices:
        for record in _of_slice(name, slice_, publishes_all=publishes_all):
            if record not in seen:
                seen.add(record)
                yield record


def _of_slice(name: str, slice_: EndpointSlice, *, publishes_all: bool) -> Iterator[DnsRecord]:
    for endpoint in slice_.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready") is False and not publishes_all:
            continue
        for address in endpoint.get("addresses") or ():
            host = endpoint.get("hostname") or ip_address(address).exploded.replace(".", "-").replace(":", "-")
            own = f"{host}.{name}"
            yield _address(name, address)
            yield _address(own, address)
            if endpoint.get("hostname"):
                yield _pointer(address, own)
            for port in slice_.get("ports") or ():
                if port.get("name") and port.get("port"):
                    yield _service(name, port["name"], port.get("protocol") or "TCP", port["port"], own)


def _address(name: str, address: str) -> DnsRecord:
    return DnsRecord(name, RecordType.AAAA if ":" in address else RecordType.A, address_data(address))


def _pointer(address: str, name: str) -> DnsRecord:
    return DnsRecord(ip_address(address).reverse_pointer, RecordType.PTR, encode_name(name), name)


def _service(name: str, port: str, protocol: str, number: int, target: str) -> DnsRecord:
    data = service_data(number, target, weight=_WEIGHT)
    return DnsRecord(f"_{port}._{protocol.lower()}.{name}", RecordType.SRV, data)
