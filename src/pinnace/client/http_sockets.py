"""WebSockets over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from pinnace.client.transport import Answer, ConnectionLost, Socket

HEARTBEAT = 30.0
"""Seconds between pings: a command may be silent for hours."""
_LARGEST_MESSAGE = 64 << 20
_CLOSED = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)


async def open_socket(
    session: aiohttp.ClientSession,
    url: Any,
    headers: Sequence[tuple[str, str]],
    protocols: Sequence[str],
    options: Mapping[str, Any],
) -> Socket | Answer:
    """Open a WebSocket with aiohttp's options. Return the server's answer if it rejects the upgrade."""
    for_upgrade = {name: value for name, value in options.items() if name in ("proxy", "server_hostname")}
    try:
        socket = await session.ws_connect(
            url, headers=headers, protocols=protocols, heartbeat=HEARTBEAT, max_msg_size=_LARGEST_MESSAGE, **for_upgrade
        )
    except aiohttp.WSServerHandshakeError as rejected:
        # aiohttp drops the body of the answer: the same request without the upgrade gets it again.
        async with session.get(url, headers=headers, **options) as response:
            body = await response.read() if response.status == rejected.status else b""
        return Answer(rejected.status, {}, body)
    return _HttpSocket(socket)


class _HttpSocket:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.protocol = socket.protocol or ""

    async def receive(self) -> bytes | None:
        message = await self._socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            data: bytes = message.data
            return data
        if message.type is aiohttp.WSMsgType.TEXT:
            text: str = message.data
            return text.encode()
        if message.type in _CLOSED and self._socket.close_code in (1000, None):
            return None
        raise ConnectionLost(f"the connection was lost: {self._socket.exception() or message.data}", was_sent=True)

    async def send(self, data: bytes) -> None:
        try:
            await self._socket.send_bytes(data)
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"the connection was lost: {error}", was_sent=True) from error

    async def close(self) -> None:
        await self._socket.close()
