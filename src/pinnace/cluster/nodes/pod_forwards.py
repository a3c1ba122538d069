"""Ports of this machine's loopback that lead to ports of pods, for the server's calls to webhooks and aggregated APIs.

The server never dials a pod's address: the network of the host may have another machine there. The agent of the pod's
node connects from within the pod.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Protocol

from pinnace.model import errors
from pinnace.model.byte_streams import Duplex, relay
from pinnace.model.tasks import Tasks

if TYPE_CHECKING:  # Loaded with the first forward: most clusters have none.
    from pinnace.model.node_connections import NodeConnection, PodAddress

_LOOPBACK = "127.0.0.1"
_MOST_FORWARDS = 200


class OwnNodes(Protocol):
    def find(self, node: str) -> NodeConnection: ...


class PodForwards:
    """Opens a port for each port of a pod that is asked for, and keeps the most recent ones. Close it."""

    def __init__(self, nodes: OwnNodes) -> None:
        self._nodes = nodes
        self._ports: dict[tuple[str, int], tuple[socket.socket, asyncio.Task[None]]] = {}
        self._tasks = Tasks()

    def address_of(self, node: str, pod: PodAddress, port: int) -> tuple[str, int] | None:
        """Return a host and port that lead to a port of a pod; None if its node is not one of this machine."""
        try:
            connection = self._nodes.find(node)
        except (KeyError, errors.ApiError):
            return None
        if connection.host:
            return None
        key = (pod.uid, port)
        known = self._ports.pop(key, None)
        if known is None:
            listener = socket.create_server((_LOOPBACK, 0))
            listener.setblocking(False)
            known = listener, self._tasks.start(self._accept(listener, connection, pod, port))
            while len(self._ports) >= _MOST_FORWARDS:
                self._drop(next(iter(self._ports)))
        self._ports[key] = known  # The last one is the most recent.
        return _LOOPBACK, known[0].getsockname()[1]

    async def close(self) -> None:
        for key in list(self._ports):
            self._drop(key)
        await self._tasks.close()

    def _drop(self, key: tuple[str, int]) -> None:
        listener, task = self._ports.pop(key)
        task.cancel()
        listener.close()

    async def _accept(self, listener: socket.socket, connection: NodeConnection, pod: PodAddress, port: int) -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
            client.setblocking(False)
            self._tasks.start(_forward(client, connection, pod, port))


async def _forward(client: socket.socket, connection: NodeConnection, pod: PodAddress, port: int) -> None:
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        inside = await connection.connect(pod, port)
    except OSError:
        writer.transport.abort()
        return
    await relay(Duplex(reader, writer), inside)
