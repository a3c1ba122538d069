"""The HTTPS port of a node agent: a server of `server.nodes`, whose callers the API server of its client decides on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model.objects import Object
from pinnace.network.shares import Shares
from pinnace.node.agent.status.served_minor import served_minor
from pinnace.server.http.tls_transport import TlsTransport
from pinnace.server.nodes.kubelet_callers import NodeApi, NodeCallers
from pinnace.server.nodes.kubelet_port import NodeServer

T = TypeVar("T")
_MOST_CONNECTIONS = 200
"""The connections of all pods of a node. The agent opens a file for each, and few pods have a reason to connect."""


def kubelet_port(client: Client, node: str) -> NodeServer:
    """Return the server, ready to be started."""

    async def create(review: Object) -> Object:
        return await _unless_lost(partial(client.create, review))

    async def minor() -> int:
        return await _unless_lost(partial(served_minor, client))

    shares = Shares[TlsTransport](_MOST_CONNECTIONS, TlsTransport.abort)
    return NodeServer(lambda ca: NodeCallers(NodeApi(create, minor), node, ca, client.clock), shares)


async def _unless_lost(call: Callable[[], Awaitable[T]]) -> T:
    try:
        return await call()
    except ConnectionLost as error:
        raise ConnectionError(str(error)) from error
