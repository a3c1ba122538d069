"""Sockets of the node's network namespace, which the fork server opens for the agent."""

from __future__ import annotations

import errno
import socket
from abc import ABC, abstractmethod

from pinnace.node.runtime.embedded.channels import Channel
from pinnace.node.runtime.embedded.fork_server_client import Abilities
from pinnace.node.runtime.errors import RuntimeFailure


class NodeSockets(ABC):
    """The part of a runtime that gives its node's sockets to proxies, rules and the DNS server."""

    @abstractmethod
    async def _connect_node(self) -> tuple[Channel, Abilities]:
        """Return the connection to the fork server."""

    async def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Create a socket in the network of the node, from which pods are reached. Raise OSError."""
        return (await self.open_sockets(family, kind, protocol))[0]

    async def open_sockets(self, family: int, kind: int, protocol: int = 0, *, count: int = 1) -> list[socket.socket]:
        node, _ = await self._connect_node()
        request = {"op": "socket", "family": family, "kind": kind, "protocol": protocol, "count": count}
        try:
            _, fds = await node.request(request)
        except RuntimeFailure as error:
            raise OSError(errno.EIO, f"the node has opened no socket: {error}") from error
        return [socket.socket(fileno=fd) for fd in fds]

    async def find_listener(self, kind: int, address: str, port: int) -> socket.socket:
        """Return a bound socket in the network of the node, which stays open when this agent ends. Raise OSError."""
        node, _ = await self._connect_node()
        try:
            _, fds = await node.request({"op": "listen", "kind": kind, "address": address, "port": port})
        except RuntimeFailure as error:
            raise OSError(errno.EADDRNOTAVAIL, f"the node does not listen on {address}:{port}: {error}") from error
        return socket.socket(fileno=fds[0])
