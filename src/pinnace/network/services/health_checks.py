"""Health-check node ports: a load balancer learns there whether this node has ready endpoints of a Service.

They exist for Services of type LoadBalancer with externalTrafficPolicy: Local, since their traffic stays on the node
that receives it. The status code is 200 with endpoints and 503 without; the path of the request does not matter.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping

from pinnace.model.objects import Key
from pinnace.network.services.table import HealthCheck
from pinnace.network.sockets import Sockets, open_listener

_MOST_BYTES = 16 * 1024
_READ_SECONDS = 10.0
_log = logging.getLogger(__name__)


class HealthCheckPorts:
    """The ports of all Services at one address. `apply` the wanted state; `close` it."""

    def __init__(self, sockets: Sockets, address: str) -> None:
        self._sockets = sockets
        self._address = address
        self._wanted: Mapping[Key, HealthCheck] = {}
        self._servers: dict[Key, tuple[int, asyncio.Server]] = {}

    async def apply(self, wanted: Mapping[Key, HealthCheck]) -> None:
        """Open and close ports. A port that cannot be opened is logged and left out."""
        self._wanted = dict(wanted)
        for key, (port, server) in list(self._servers.items()):
            if key not in wanted or wanted[key].port != port:
                del self._servers[key]
                server.close()
        for key, check in wanted.items():
            if key not in self._servers:
                await self._open(key, check.port)

    async def close(self) -> None:
        await self.apply({})

    async def _open(self, key: Key, port: int) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._answer(key, reader, writer)

        try:
            listener = await open_listener(self._sockets, socket.SOCK_STREAM, self._address, port)
        except OSError as error:
            _log.warning("cannot listen on %s:%d for health checks: %s", self._address, port, error.strerror or error)
            return
        self._servers[key] = port, await asyncio.start_server(answer, sock=listener, limit=_MOST_BYTES)

    async def _answer(self, key: Key, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):  # TimeoutError is an OSError.
            writer.close()
            return
        check = self._wanted.get(key)
        writer.write(_response(key, check.endpoints if check is not None else 0))
        writer.close()


def _response(key: Key, endpoints: int) -> bytes:
    service = {"namespace": key.namespace, "name": key.name}
    content = {"service": service, "localEndpoints": endpoints, "serviceProxyHealthy": True}
    body = json.dumps(content, indent="\t").encode()
    status = "200 OK" if endpoints else "503 Service Unavailable"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"
        f"X-Load-Balancing-Endpoint-Weight: {endpoints}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
