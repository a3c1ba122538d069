"""A client that sends exactly what a test wants, valid or not, over TLS."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson

from pinnace.cluster.cluster import RunningCluster
from pinnace.model.objects import Object
from pinnace.process.byte_streams import Duplex
from pinnace.server.streaming.spdy import SpdySession
from pinnace.server.streaming.websocket import WebSocket

SECONDS = 60.0
PODS = "/api/v1/namespaces/default/pods"
KEY = base64.b64encode(b"0123456789abcdef").decode()


@dataclass(slots=True)
class Upgraded:
    status: int
    headers: dict[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def duplex(self) -> Duplex:
        return Duplex(self.reader, self.writer)

    async def message(self) -> str:
        """Return the body of an answer without an upgrade."""
        body = await self.reader.readexactly(int(self.headers["content-length"]))
        status: Object = orjson.loads(body)
        return str(status["message"])

    async def rest(self) -> bytes:
        """All that comes until the server closes."""
        try:
            return await asyncio.wait_for(self.reader.read(), SECONDS)
        except (ConnectionError, ssl.SSLError):
            return b""

    def socket(self) -> WebSocket:
        return WebSocket(self.duplex, is_client=True)

    def session(self) -> SpdySession:
        return SpdySession(self.duplex, is_client=True)


@asynccontextmanager
async def upgraded(
    cluster: RunningCluster, target: str, *, protocols: Sequence[str] = (), is_spdy: bool = False, handshake: str = ""
) -> AsyncIterator[Upgraded]:
    """A request to go on as a WebSocket, or with SPDY."""
    context = ssl.create_default_context(cadata=cluster.access.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.server.port, ssl=context)
    if handshake:
        kind = handshake
    elif is_spdy:
        kind = "Upgrade: SPDY/3.1\r\n" + "".join(f"X-Stream-Protocol-Version: {protocol}\r\n" for protocol in protocols)
    else:
        kind = f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n"
        kind += f"Sec-WebSocket-Protocol: {', '.join(protocols)}\r\n" if protocols else ""
    head = f"{'POST' if is_spdy else 'GET'} {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n{kind}"
    try:
        writer.write(f"{head}Authorization: Bearer {cluster.access.token}\r\n\r\n".encode())
        lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        yield Upgraded(int(lines[0].split()[1]), headers, reader, writer)
    finally:
        writer.transport.abort()


async def messages(socket: WebSocket) -> dict[int, bytes]:
    """All that a server says until it closes, by channel."""
    received: dict[int, bytes] = {}
    async with asyncio.timeout(SECONDS):
        while (message := await socket.receive()) is not None:
            received[message[0]] = received.get(message[0], b"") + message[1:]
    return received
