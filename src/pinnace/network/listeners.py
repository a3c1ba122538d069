"""Binds sockets that listen. It imports nothing, for the process that holds the namespaces of a node."""

from __future__ import annotations

import socket


def bind_listener(opened: socket.socket, address: str, port: int) -> None:
    """Bind a socket, which does not block from then on; a stream socket listens. Raise OSError."""
    opened.setblocking(False)
    if opened.type == socket.SOCK_STREAM:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind((address, port))
    if opened.type == socket.SOCK_STREAM:
        opened.listen(1024)
