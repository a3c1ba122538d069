"""Binds sockets that listen. It imports nothing, for the process that holds the namespaces of a node."""

from __future__ import annotations

import socket

_IPV6_FREE_BIND = 78


def bind_listener(opened: socket.socket, address: str, port: int) -> None:
    """Bind a socket, which does not block from then on; a stream socket listens. Raise OSError."""
    opened.setblocking(False)
    if opened.type == socket.SOCK_STREAM:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own.
        # A Service address is local by a route, which is enough for IPv4; no interface has it.
        opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREE_BIND, 1)
    opened.bind((address, port))
    if opened.type == socket.SOCK_STREAM:
        opened.listen(1024)
