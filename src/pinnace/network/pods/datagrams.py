"""Forwards UDP from a port of this machine to a port of a pod: one socket in the pod for each client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from pinnace.model.tasks import Tasks

_MOST_CLIENTS = 256
_MOST_WAITING = 64
"""Datagrams that wait for the socket in the pod; more are lost, as UDP allows."""
_IDLE_SECONDS = 60.0

ConnectDatagrams = Callable[[int], Awaitable[socket.socket]]
"""Returns a UDP socket in a pod that is connected to one of its ports. Raises OSError."""


class DatagramForward(asyncio.DatagramProtocol):
    """One host port. `close` ends it with the sockets of its clients."""

    def __init__(self, port: int, connect: ConnectDatagrams, tasks: Tasks) -> None:
        self._port = port
        self._connect = connect
        self._tasks = tasks
        self._outside: asyncio.DatagramTransport | None = None
        self._clients: dict[Any, _Client] = {}

    async def listen(self, bound: socket.socket) -> DatagramForward:
        """Receive from a bound socket, which it closes at the end."""
        loop = asyncio.get_running_loop()
        self._outside, _ = await loop.create_datagram_endpoint(lambda: self, sock=bound)
        return self

    def datagram_received(self, data: bytes, addr: Any) -> None:
        client = self._clients.get(addr)
        if client is None:
            if len(self._clients) >= _MOST_CLIENTS:
                self.forget(next(iter(self._clients)))
            client = self._clients[addr] = _Client(self, addr)
            self._tasks.start(self._open(client))
        client.send(data)

    def answer(self, data: bytes, addr: Any) -> None:
        if self._outside is not None:
            self._outside.sendto(data, addr)

    def forget(self, addr: Any) -> None:
        client = self._clients.pop(addr, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for addr in list(self._clients):
            self.forget(addr)
        if self._outside is not None:
            self._outside.close()
            self._outside = None

    async def _open(self, client: _Client) -> None:
        try:
            inside = await self._connect(self._port)
        except OSError:
            self.forget(client.addr)
            return
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: client, sock=inside)


class _Client(asyncio.DatagramProtocol):
    """The socket in the pod for one client outside."""

    def __init__(self, forward: DatagramForward, addr: Any) -> None:
        self.addr = addr
        self._forward = forward
        self._waiting: list[bytes] = []
        self._inside: asyncio.DatagramTransport | None = None
        self._is_closed = False
        self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, forward.forget, addr)

    def send(self, data: bytes) -> None:
        self._stay()
        if self._inside is not None:
            self._inside.sendto(data)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append(data)

    def close(self) -> None:
        self._is_closed = True
        self._idle.cancel()
        if self._inside is not None:
            self._inside.close()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._inside = transport
        if self._is_closed:
            transport.close()
            return
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            transport.sendto(data)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._stay()
        self._forward.answer(data, self.addr)

    def error_received(self, exc: Exception) -> None:
        """Nothing listens in the pod: the client learns it from the missing answer."""

    def _stay(self) -> None:
        self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._forward.forget, self.addr)
