"""Host ports: a port of this machine that leads to a port of a pod, through a proxy in the agent.

The pods' network has no route to the machine's own, so that the agent accepts the connection outside and makes the
second one inside. Without a host IP the port is open on loopback alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pinnace.model.byte_streams import ByteReader, ByteWriter, Duplex
from pinnace.model.tasks import Tasks
from pinnace.network.pods.datagrams import ConnectDatagrams, DatagramForward

_LOOPBACK = "127.0.0.1"
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

    def __init__(self) -> None:
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
                host = one.host or _LOOPBACK
                if one.protocol == "UDP":
                    forward = DatagramForward(one.port, connect_datagrams, self._tasks)
                    servers.append(await forward.listen(host, one.host_port))
                else:
                    servers.append(await self._listen(host, one.host_port, one.port, connect))
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

    async def _listen(self, host: str, host_port: int, port: int, connect: Connect) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._tasks) >= _MOST_CONNECTIONS:
                writer.close()
                return
            await self._tasks.start(_forward(Duplex(reader, writer), connect, port))

        return await asyncio.start_server(accept, host, host_port)


async def _forward(outside: Duplex, connect: Connect, port: int) -> None:
    try:
        inside = await connect(port)
    except OSError:
        outside.writer.close()
        return
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(outside.reader, inside.writer))
            group.create_task(_copy(inside.reader, outside.writer))
    finally:
        outside.writer.close()
        inside.writer.close()


async def _copy(source: ByteReader, target: ByteWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
        target.write_eof()
