"""Host ports: a port of this machine and of the node that leads to a port of a pod, through a proxy in the agent.

The pods' network has no route to the machine's own, so that the agent accepts the connection outside and makes the
second one inside. Without a host IP the port is open on the loopback of the machine, and on all addresses in the
network of the node, where other pods and those with hostNetwork reach it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from pinnace.model.byte_streams import Duplex, relay
from pinnace.model.tasks import Tasks
from pinnace.network.pods.datagrams import ConnectDatagrams, DatagramForward
from pinnace.network.sockets import HostSockets, Sockets, open_listener

_LOOPBACK, _ANY = "127.0.0.1", "0.0.0.0"
_CHUNK = 65536
_MOST_CONNECTIONS = 1000

Connect = Callable[[int], Awaitable[Duplex]]
"""Connects to a port from within a pod. Raises OSError."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of this machine that leads to a port of a pod."""

    host: str
    host_port: int
    port: int
    protocol: str = "TCP"


class PortInUse(Exception):
    """Another process or pod listens on the host port."""


class HostPorts:
    """The host ports of all pods of a node."""

    def __init__(self, node: Sockets, address: str) -> None:
        """`node` are the sockets of the network in which the node has this address."""
        self._machine = HostSockets()
        self._node = node
        self._address = address
        self._open: dict[str, list[asyncio.Server | DatagramForward]] = {}
        self._tasks = Tasks()

    async def open(
        self, owner: str, ports: Sequence[HostPort], connect: Connect, connect_datagrams: ConnectDatagrams
    ) -> None:
        """Open the ports of a sandbox. Raise PortInUse."""
        if owner in self._open:
            return
        servers = self._open[owner] = []
        try:
            for one in ports:
                for sockets, host in self._places(one.host):
                    if one.protocol == "UDP":
                        listener = await open_listener(sockets, socket.SOCK_DGRAM, host, one.host_port)
                        forward = DatagramForward(one.port, connect_datagrams, self._tasks)
                        servers.append(await forward.listen(listener))
                    else:
                        listener = await open_listener(sockets, socket.SOCK_STREAM, host, one.host_port)
                        servers.append(await self._listen(listener, one.port, connect))
        except OSError as error:
            self.close(owner)
            raise PortInUse(f"the host port {one.host_port} cannot be opened: {error.strerror or error}") from error

    def close(self, owner: str) -> None:
        for server in self._open.pop(owner, ()):
            server.close()

    async def close_all(self) -> None:
        for owner in list(self._open):
            self.close(owner)
        await self._tasks.close()

    def _places(self, host: str) -> Iterator[tuple[Sockets, str]]:
        """Yield where a port is opened: on the machine, in the network of the node, or both."""
        if host != self._address:
            yield self._machine, host or _LOOPBACK
        if host in ("", _ANY, self._address) or host.startswith("127."):
            yield self._node, host or _ANY

    async def _listen(self, listener: socket.socket, port: int, connect: Connect) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._tasks) >= _MOST_CONNECTIONS:
                writer.close()
                return
            await self._tasks.start(_forward(Duplex(reader, writer), connect, port))

        return await asyncio.start_server(accept, sock=listener)


async def _forward(outside: Duplex, connect: Connect, port: int) -> None:
    try:
        inside = await connect(port)
    except OSError:
        outside.writer.close()
        return
    await relay(outside, inside)
