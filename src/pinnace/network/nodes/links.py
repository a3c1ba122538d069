"""Leads packets between the pods of several nodes on one machine.

Each node has a veth pair in its network namespace: packets for other nodes leave through `nodes0`, and its peer has a
packet socket. The agent reads that socket, and writes each packet to the packet socket of the node to which it belongs.
The sockets are exchanged through a directory that the agents share. This needs neither a route of the machine nor root:
an ordinary user has no rights that span the namespaces of two nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path

from pinnace.network.families import IPV4, IPV6
from pinnace.network.netlink import Netlink, Network
from pinnace.network.sockets import Sockets
from pinnace.process.tasks import Tasks

OUTSIDE, INSIDE = "nodes0", "nodes1"
_ETHERNET_ALL, _ETHERNET_BYTES = 3, 14
_SOL_PACKET, _IGNORE_OUTGOING, _OFFLOAD_HEADER = 263, 23, 15
_OFFLOAD_BYTES = 10
"""The bytes before each packet by which large packets and checksums stay with the kernel until they are needed."""
_KIND = slice(_OFFLOAD_BYTES + 12, _OFFLOAD_BYTES + 14)
_PACKET = _OFFLOAD_BYTES + _ETHERNET_BYTES
_DESTINATIONS = {
    kind: slice(_PACKET + family.destination_offset, _PACKET + family.destination_offset + family.address_bytes)
    for kind, family in ((b"\x08\x00", IPV4), (b"\x86\xdd", IPV6))
}
"""The place of the destination address by the kind of a packet."""
_LARGEST = 65536 + 128
_BATCH = 64
_SILENT_SECONDS = 0.5
"""The time between two attempts to reach the next agent of a node."""
_log = logging.getLogger(__name__)


class NodeLinks:
    """Connects this node with the others that use the same directory, until cancelled."""

    def __init__(
        self, sockets: Sockets, *, pod_networks: Sequence[str], cluster_networks: Sequence[str], directory: Path
    ) -> None:
        """The networks of this node's pods and of all pods: one of each IP family."""
        self._sockets = sockets
        self._pod_networks = [ip_network(network) for network in pod_networks]
        self._cluster_networks = [ip_network(network) for network in cluster_networks]
        self._directory = directory
        self._peers: dict[Network, socket.socket] = {}
        self._silent: dict[Network, float] = {}
        """Peers whose agent has ended, and when to connect again: their network may have ended with it."""
        self._ways: dict[bytes, Network] = {}
        self._requested: set[Network] = set()
        self._tasks = Tasks()

    async def run(self) -> None:
        await self._make_pair()
        packets = await self._open_packets()
        listeners = [self._listen(network) for network in self._pod_networks]
        loop = asyncio.get_running_loop()
        loop.add_reader(packets.fileno(), self._forward, packets)
        try:
            async with asyncio.TaskGroup() as group:
                for listener in listeners:
                    group.create_task(self._answer(listener, packets))
        finally:
            loop.remove_reader(packets.fileno())
            await self._tasks.close()
            for network in self._pod_networks:
                self._path(network).unlink(missing_ok=True)
            for opened in (packets, *listeners, *self._peers.values()):
                opened.close()

    async def _answer(self, listener: socket.socket, packets: socket.socket) -> None:
        """Give the packet socket to each agent that asks for it. The connection ends with this agent."""
        loop = asyncio.get_running_loop()
        given: set[socket.socket] = set()

        def close(asking: socket.socket) -> None:
            loop.remove_reader(asking.fileno())
            given.discard(asking)
            asking.close()

        try:
            while True:
                asking, _ = await loop.sock_accept(listener)
                given.add(asking)
                loop.add_reader(asking.fileno(), close, asking)  # It sends nothing: this is its end.
                with contextlib.suppress(OSError):
                    socket.send_fds(asking, [b"packets"], [packets.fileno()])
        finally:
            for asking in list(given):
                close(asking)

    async def _make_pair(self) -> None:
        netlink = Netlink(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
        try:
            with contextlib.suppress(FileExistsError):  # Made by an earlier agent.
                netlink.add_pair(OUTSIDE, INSIDE)
                netlink.set_up(INSIDE)
                netlink.set_up(OUTSIDE, resolves_addresses=False)
                for network in self._cluster_networks:
                    netlink.add_link_route(network, name=OUTSIDE)
        finally:
            netlink.close()

    async def _open_packets(self) -> socket.socket:
        packets = await self._sockets.open_socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETHERNET_ALL))
        packets.setblocking(False)
        for option in (_IGNORE_OUTGOING, _OFFLOAD_HEADER):
            packets.setsockopt(_SOL_PACKET, option, 1)
        packets.bind((INSIDE, _ETHERNET_ALL))
        return packets

    def _listen(self, network: Network) -> socket.socket:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(network)
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short(path) as name:
            listener.bind(name)
        listener.listen(64)
        listener.setblocking(False)
        return listener

    def _path(self, network: Network) -> Path:
        return self._directory / f"{network.network_address}-{network.prefixlen}"

    def _forward(self, packets: socket.socket) -> None:
        """Send packets on. One whose node is not known yet is lost, as on any network; its sender tries again."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_BATCH):
                data = packets.recv(_LARGEST)
                place = _DESTINATIONS.get(data[_KIND])
                if place is None:
                    continue
                network = self._find(data[place])
                peer = self._peers.get(network) if network is not None else None
                if peer is None:
                    continue
                try:
                    peer.send(data)
                except BlockingIOError:
                    continue
                except OSError:  # The network of that node is gone; it may be back.
                    self._forget(network)

    def _find(self, address: bytes) -> Network | None:
        """Return the pod network of an address; find its node if it is new."""
        network = self._ways.get(address)
        if network is None:
            network = self._search(address)
            if network is None:
                return None
            if len(self._ways) > _LARGEST:
                self._ways.clear()
            self._ways[address] = network
        if network not in self._peers or self._silent.get(network, math.inf) <= asyncio.get_running_loop().time():
            self._connect(network)
        return network

    def _search(self, packed: bytes) -> Network | None:
        address = ip_address(packed)
        for name in os.listdir(self._directory):
            with contextlib.suppress(ValueError):
                network = ip_network(name.replace("-", "/"))
                if address in network and network not in self._pod_networks:
                    return network
        return None

    def _connect(self, network: Network) -> None:
        """Ask the agent of a node for its packet socket."""
        if network in self._requested:
            return
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asking.setblocking(False)
        try:
            with _short(self._path(network)) as name:
                asking.connect(name)
        except OSError:  # Its agent does not run.
            asking.close()
            self._ask_later(network)
            return
        self._requested.add(network)
        self._tasks.start(self._receive(network, asking))

    async def _receive(self, network: Network, asking: socket.socket) -> None:
        with asking:
            try:
                await _until_readable(asking)
            finally:
                self._requested.discard(network)
            _, fds, _, _ = socket.recv_fds(asking, 64, 1)
            if not fds:
                return
            self._forget(network)
            peer = self._peers[network] = socket.socket(fileno=fds[0])
            await _until_readable(asking)  # Its agent has ended; the next may have lost its network.
            if self._peers.get(network) is peer:
                self._ask_later(network)

    def _ask_later(self, network: Network) -> None:
        if network in self._peers:
            self._silent[network] = asyncio.get_running_loop().time() + _SILENT_SECONDS

    def _forget(self, network: Network | None) -> None:
        if network is not None:
            self._silent.pop(network, None)
        if network is not None and (known := self._peers.pop(network, None)) is not None:
            known.close()


async def _until_readable(connection: socket.socket) -> None:
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(connection.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection.fileno())


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a short name of a path: the address of a unix socket has at most 107 bytes."""
    place = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{place}/{path.name}"
    finally:
        os.close(place)
