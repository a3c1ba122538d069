"""One call of the API server to a node agent in another process of this machine: a connection with files.

The server connects to `agent.sock`, sends one request with the ends of its pipes, and receives the result. Further
messages resize the terminal. Closing the connection cancels the call.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from pinnace.node.runtime.embedded import messages
from pinnace.node.runtime.embedded.channels import connect
from pinnace.node.runtime.embedded.messages import Message

SOCKET = "agent.sock"


class CallSocket:
    """Messages on one connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    @classmethod
    def open(cls, path: Path) -> CallSocket:
        """Raise OSError if no agent listens."""
        return cls(connect(path))

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        messages.send(self._connection, message, fds)

    async def receive(self) -> tuple[Message | None, list[int]]:
        """Return a message and its files; None at the end."""
        while True:
            try:
                return messages.receive(self._connection)
            except BlockingIOError:
                await self._wait()
            except OSError:
                return None, []

    def close(self) -> None:
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()

    async def _wait(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._connection.fileno(), _resolve, ready)
        try:
            await ready
        finally:
            if self._connection.fileno() >= 0:
                self._loop.remove_reader(self._connection.fileno())


def listen(path: Path) -> socket.socket:
    """Listen on a path that only this user can reach."""
    path.unlink(missing_ok=True)
    place = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"/proc/self/fd/{place}/{path.name}")
    os.close(place)
    path.chmod(0o600)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
