"""Host ports: a port of the node and of this machine's loopback that leads to a port of a pod.

In the network of the node they are rules, so that a pod sees the address of its client and network policies apply to
both. The loopback of the machine, and that of the node, have no route to the pods: there the agent accepts a connection
and makes a second one to the pod, from the address of the node, whose traffic policies always allow. Without nftables
the agent does so at every address.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pinnace.network.families import IpFamily, family_of
from pinnace.network.nftables.transactions import PROTOCOL, Nftables
from pinnace.network.services.connections import forget_stale
from pinnace.network.services.datagrams import DatagramFrontend, Picker
from pinnace.network.services.rules import ServiceRules
from pinnace.network.services.table import Backends, Endpoint, Frontend, TableChange
from pinnace.network.sockets import HostSockets, Sockets, open_listener
from pinnace.process.byte_streams import Duplex, relay
from pinnace.process.clock import SystemClock
from pinnace.process.tasks import Tasks

_TABLE = "pinnace-host-ports"
_LOOPBACK, _ANY = "127.0.0.1", "0.0.0.0"
_MOST_CONNECTIONS = 1000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that leads to a port of a pod."""

    host: str
    host_port: int
    port: int
    protocol: str = "TCP"


class PortInUse(Exception):
    """Another process or pod listens on the host port."""


class HostPorts:
    """The host ports of all pods of a node. `open` those of the pods that run already, then `start` it."""

    def __init__(self, node: Sockets, addresses: Sequence[str], *, uses_nftables: bool = True) -> None:
        """`node` are the sockets of the network in which the node has these addresses, the first one of IPv4."""
        self._machine = HostSockets()
        self._node = node
        self._address = addresses[0]
        self._families = [family_of(address) for address in addresses]
        self._uses_nftables = uses_nftables
        self._nftables: Nftables | None = None
        self._rules: list[ServiceRules] = []
        self._is_started = False
        self._table: dict[str, dict[Frontend, Backends]] = {}
        """The frontends that the rules of the kernel lead to each pod, by its sandbox."""
        self._open: dict[str, list[asyncio.Server | DatagramFrontend]] = {}
        self._tasks = Tasks()
        self._clock = SystemClock()

    async def start(self) -> None:
        """Put the rules into force, in place of those of an earlier agent. Without nftables, listen instead."""
        self._is_started = True
        if not self._uses_nftables:
            return
        try:
            self._nftables = Nftables(await self._node.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
            rules = [ServiceRules(self._nftables, family, table=_TABLE) for family in self._families]
            for rule in rules:
                self._replace(rule)
        except OSError as error:
            _log.warning("host ports are served by a proxy, since nftables cannot be used: %s", error)
            self._close_rules()
        else:
            self._rules = rules

    async def open(self, owner: str, ports: Sequence[HostPort], pod: Sequence[str]) -> None:
        """Open the ports of a sandbox, whose pod has these addresses. Raise PortInUse."""
        if owner in self._open:
            return
        servers = self._open[owner] = []
        port = 0
        try:
            if self._uses_rules:
                await self._lead(owner, _frontends(ports, self._address, pod))
            for port_ in ports:
                port = port_.host_port
                for sockets, host in self._places(port_):
                    servers.append(await self._listen(sockets, host, port_, pod[0]))
        except OSError as error:
            await self.close(owner)
            raise PortInUse(f"the host port {port} cannot be opened: {error.strerror or error}") from error
        except PortInUse:
            await self.close(owner)
            raise

    async def close(self, owner: str) -> None:
        for server in self._open.pop(owner, ()):
            server.close()
        gone = self._table.pop(owner, {})
        if gone:
            await self._apply(dict.fromkeys(gone))

    async def close_all(self) -> None:
        """Close what this process serves. The rules stay, since the pods do."""
        for servers in self._open.values():
            for server in servers:
                server.close()
        self._open.clear()
        await self._tasks.close()
        self._close_rules()

    @property
    def _uses_rules(self) -> bool:
        return bool(self._rules) or (self._uses_nftables and not self._is_started)

    async def _lead(self, owner: str, table: dict[Frontend, Backends]) -> None:
        for other in self._table.values():
            for frontend in table.keys() & other.keys():
                raise PortInUse(f"the host port {frontend.port} cannot be opened: another pod of this node has it")
        self._table[owner] = table
        if table:
            await self._apply(dict(table))

    async def _apply(self, change: TableChange) -> None:
        for rules in self._rules:
            own = {frontend: to for frontend, to in change.items() if family_of(frontend.address) is rules.family}
            if not own:
                continue
            if rules.is_empty or not self._frontends_of(rules.family):
                self._replace(rules)
            else:
                rules.apply(own)
            if any(frontend.protocol == "UDP" for frontend in own):
                with await self._node.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL) as tracking:
                    tracking.setblocking(False)
                    forget_stale(tracking, own, rules.family)

    def _replace(self, rules: ServiceRules) -> None:
        """Make the rules of a family anew. Most nodes have no host port, and need none."""
        if whole := self._frontends_of(rules.family):
            rules.replace(whole)
        else:
            rules.remove()

    def _frontends_of(self, family: IpFamily) -> dict[Frontend, Backends]:
        tables = self._table.values()
        return {place: to for table in tables for place, to in table.items() if family_of(place.address) is family}

    def _close_rules(self) -> None:
        self._rules = []
        if self._nftables is not None:
            self._nftables.close()
            self._nftables = None

    def _places(self, port: HostPort) -> Iterator[tuple[Sockets, str]]:
        """Yield where the agent listens: on the machine, in the network of the node, or both."""
        if port.protocol not in ("TCP", "UDP"):
            return
        if port.host != self._address:
            yield self._machine, port.host or _LOOPBACK
        if port.host.startswith("127."):
            yield self._node, port.host
        elif port.host in ("", _ANY, self._address) and not self._uses_rules:
            yield self._node, port.host or _ANY
        elif port.host in ("", _ANY):
            yield self._node, _LOOPBACK

    async def _listen(self, sockets: Sockets, host: str, port: HostPort, pod: str) -> asyncio.Server | DatagramFrontend:
        if port.protocol == "UDP":
            bound = await open_listener(sockets, socket.SOCK_DGRAM, host, port.host_port)
            picker = Picker(Backends((Endpoint(pod, port.port),)), self._clock)
            return DatagramFrontend(bound, picker, self._node, self._clock)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._tasks) >= _MOST_CONNECTIONS:
                writer.close()
                return
            await self._tasks.start(self._forward(Duplex(reader, writer), pod, port.port))

        listener = await open_listener(sockets, socket.SOCK_STREAM, host, port.host_port)
        return await asyncio.start_server(accept, sock=listener)

    async def _forward(self, outside: Duplex, pod: str, port: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=await self._connect(pod, port))
        except OSError:
            outside.writer.close()
            return
        await relay(outside, Duplex(reader, writer))

    async def _connect(self, pod: str, port: int) -> socket.socket:
        """Connect to a pod from the network of the node. Raise OSError."""
        opened = await self._node.open_socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            await asyncio.get_running_loop().sock_connect(opened, (pod, port))
        except BaseException:
            opened.close()
            raise
        return opened


def _frontends(ports: Sequence[HostPort], node: str, pod: Sequence[str]) -> dict[Frontend, Backends]:
    """The part of the ports that the kernel leads to a pod: all but those of loopback addresses."""
    table = {}
    for address in pod:
        family = family_of(address)
        for port in ports:
            host = port.host or family.any_address
            if port.host in ("", family.any_address) or (host == node and family_of(node) is family):
                table[Frontend(host, port.protocol, port.host_port)] = Backends((Endpoint(address, port.port),))
    return table
