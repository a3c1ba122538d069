"""Messages between the agent, the fork server and the supervisors: JSON with file descriptors, on SOCK_SEQPACKET."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

MAX_BYTES = 1 << 16
MAX_FDS = 128
Message = dict[str, Any]


def send(channel: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Raise OSError if the peer is gone or does not read."""
    data = json.dumps(message).encode()
    if len(data) > MAX_BYTES:
        raise OSError(f"a message of {len(data)} bytes exceeds {MAX_BYTES}; pass the data in a file")
    socket.send_fds(channel, [data], list(fds))


def receive(channel: socket.socket) -> tuple[Message | None, list[int]]:
    """Return a message and its descriptors, which the caller must close; None at the end of the connection."""
    data, fds, _, _ = socket.recv_fds(channel, MAX_BYTES, MAX_FDS)
    if not data:
        return None, fds
    for fd in fds:
        os.set_inheritable(fd, False)
    return json.loads(data), fds


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
