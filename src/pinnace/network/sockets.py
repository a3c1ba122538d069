"""Sockets of a network namespace: the machine's own, or that of the node and its pods."""

from __future__ import annotations

import socket
from typing import Protocol

from pinnace.network.families import IPV4, IpFamily, family_of
from pinnace.network.listeners import bind_listener
from pinnace.process.tasks import Tasks

_SPARE = 32
"""How many sockets a pool opens at once."""


class Sockets(Protocol):
    """Creates sockets in one network namespace. They stay in it, whichever process binds or connects them."""

    async def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a socket that is neither bound nor connected. Raise OSError."""

    async def open_sockets(self, family: int, kind: int, protocol: int = 0, *, count: int = 1) -> list[socket.socket]:
        """Return several of them. Raise OSError."""

    async def find_listener(self, kind: int, address: str, port: int) -> socket.socket:
        """Return a bound socket, the same for each process that asks: none of its clients is refused between two."""


class HostSockets:
    """The `Sockets` of this process' own network."""

    async def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)

    async def open_sockets(self, family: int, kind: int, protocol: int = 0, *, count: int = 1) -> list[socket.socket]:
        return [await self.open_socket(family, kind, protocol) for _ in range(count)]

    async def find_listener(self, kind: int, address: str, port: int) -> socket.socket:
        return await open_listener(self, kind, address, port)


class SocketPool:
    """Stream sockets that are opened ahead: those of another namespace come from another process, one by one slowly."""

    def __init__(self, sockets: Sockets, tasks: Tasks, family: IpFamily = IPV4) -> None:
        """`tasks` own the work of opening more. `close` it."""
        self._sockets = sockets
        self._family = family.number
        self._tasks = tasks
        self._spare: list[socket.socket] = []
        self._is_filling = False

    def take(self) -> socket.socket | None:
        """Return a socket that does not block, or None if there is none at the moment."""
        if len(self._spare) < _SPARE // 2 and not self._is_filling:
            self._is_filling = True
            self._tasks.start(self._fill())
        return self._spare.pop() if self._spare else None

    async def open(self) -> socket.socket:
        """Open a socket that does not block. Raise OSError."""
        opened = await self._sockets.open_socket(self._family, socket.SOCK_STREAM)
        opened.setblocking(False)
        return opened

    def close(self) -> None:
        for spare in self._spare:
            spare.close()
        self._spare.clear()

    async def _fill(self) -> None:
        try:
            opened = await self._sockets.open_sockets(self._family, socket.SOCK_STREAM, count=_SPARE)
        finally:
            self._is_filling = False
        for spare in opened:
            spare.setblocking(False)
        self._spare += opened


async def open_listener(sockets: Sockets, kind: int, address: str, port: int) -> socket.socket:
    """Return a bound socket that does not block; a stream socket listens. Raise OSError if the port is in use."""
    opened = await sockets.open_socket(family_of(address).number, kind)
    try:
        bind_listener(opened, address, port)
    except BaseException:
        opened.close()
        raise
    return opened
