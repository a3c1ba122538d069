"""Sockets of a network namespace: the machine's own, or that of the node and its pods."""

from __future__ import annotations

import socket
from typing import Protocol


class Sockets(Protocol):
    """Creates sockets in one network namespace. They stay in it, whichever process binds or connects them."""

    async def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a socket that is neither bound nor connected. Raise OSError."""


class HostSockets:
    """The `Sockets` of this process' own network."""

    async def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)


async def open_listener(sockets: Sockets, kind: int, address: str, port: int) -> socket.socket:
    """Return a bound socket that does not block; a stream socket listens. Raise OSError if the port is in use."""
    opened = await sockets.open_socket(socket.AF_INET, kind)
    try:
        opened.setblocking(False)
        if kind == socket.SOCK_STREAM:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((address, port))
        if kind == socket.SOCK_STREAM:
            opened.listen(1024)
    except BaseException:
        opened.close()
        raise
    return opened
