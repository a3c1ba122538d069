"""WebSocket (RFC 6455) over an upgraded connection, for either side of it (docs/decisions/0009-websocket.md)."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from pinnace.model.byte_streams import Duplex
from pinnace.server.http.messages import Request
from pinnace.server.request.websocket_headers import protocols_of

LARGEST_MESSAGE = 32 << 20
"""The limit of Kubernetes' servers."""

NORMAL, GOING_AWAY, PROTOCOL_ERROR, TOO_LARGE = 1000, 1001, 1002, 1009

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PIECE = 64 * 1024
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_LARGEST_CONTROL = 125


class WebSocketError(ConnectionError):
    """The peer breaks the protocol. `code` is the close code to send."""

    def __init__(self, why: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(why)
        self.code = code


class _Frame(NamedTuple):
    opcode: int
    is_final: bool
    data: bytes


def choose_protocol(request: Request, supported: Sequence[str]) -> str | None:
    """Return the client's first supported protocol, or None. \"\" stands for a client that names none."""
    return next((one for one in protocols_of(request) or [""] if one in supported), None)


def describe_handshake_error(request: Request) -> str:
    """Return why a request cannot become a WebSocket; empty if it can."""
    if request.method != "GET":
        return f"a WebSocket begins with GET, not {request.method}"
    if request.headers.get(b"sec-websocket-version") != b"13":
        return "Sec-WebSocket-Version must be 13"
    try:
        key = base64.b64decode(request.headers.get(b"sec-websocket-key", b""), validate=True)
    except ValueError:
        key = b""
    return "" if len(key) == 16 else "Sec-WebSocket-Key must be sixteen bytes in base64"


def handshake_headers(request: Request, protocol: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of the 101 response."""
    headers = [
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Accept", accept_key(request.headers[b"sec-websocket-key"])),
    ]
    return [*headers, (b"Sec-WebSocket-Protocol", protocol.encode())] if protocol else headers


def accept_key(key: bytes) -> bytes:
    """Return the server's Sec-WebSocket-Accept for a client's key."""
    return base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest())


class WebSocket:
    """Sends and receives messages. One task receives; any task may send."""

    def __init__(self, connection: Duplex, *, is_client: bool = False, largest: int = LARGEST_MESSAGE) -> None:
        self._reader, self._writer = connection
        self._is_client = is_client
        self._largest = largest
        self._buffer = b""
        self._at = 0
        self._is_closed = False

    async def receive(self) -> bytes | None:
        """Return the next message; None when the peer has closed. Raise WebSocketError or another ConnectionError."""
        parts: list[bytes] = []
        size = 0
        is_open = False
        while (frame := await self._frame(self._largest - size)) is not None:
            if frame.opcode == _PING:
                self._send(_PONG, frame.data)
            elif frame.opcode == _CLOSE:
                self.close(NORMAL)
                return None
            elif frame.opcode != _PONG:
                if (frame.opcode == _CONTINUATION) is not is_open:
                    raise WebSocketError(
                        "expected a continuation frame, found a new message"
                        if is_open
                        else "a continuation without a message"
                    )
                is_open = True
                parts.append(frame.data)
                size += len(frame.data)
                if frame.is_final:
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        return None

    def send(self, data: bytes, *, is_text: bool = False) -> None:
        self._send(_TEXT if is_text else _BINARY, data)

    def ping(self) -> None:
        """Send a ping, which detects a dead connection."""
        self._send(_PING, b"")

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self, code: int = NORMAL) -> None:
        """Send a close frame. The connection stays open for data on its way."""
        if not self._is_closed:
            self._send(_CLOSE, struct.pack(">H", code))
            self._is_closed = True

    def _send(self, opcode: int, data: bytes) -> None:
        if self._is_closed:
            return
        size, mask = len(data), 0x80 if self._is_client else 0
        if size <= _LARGEST_CONTROL:
            head = bytes((0x80 | opcode, mask | size))
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | opcode, mask | 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | opcode, mask | 127, size)
        if self._is_client:
            key = os.urandom(4)
            head, data = head + key, _mask(data, key)
        self._writer.write(head + data)

    async def _frame(self, room: int) -> _Frame | None:
        """Return the next frame; None if the connection ends between two frames."""
        if not await self._has_more():
            return None
        first, second = await self._take(2)
        opcode, is_final, size = first & 0x0F, bool(first & 0x80), second & 0x7F
        if first & 0x70 or opcode not in (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise WebSocketError("expected a known opcode and no reserved bits")
        if bool(second & 0x80) is self._is_client:
            raise WebSocketError("expected an unmasked frame" if self._is_client else "expected a masked frame")
        if opcode >= _CLOSE:
            if size > _LARGEST_CONTROL or not is_final:
                raise WebSocketError(f"expected one control frame of at most {_LARGEST_CONTROL} bytes")
        elif size == 126:
            (size,) = struct.unpack(">H", await self._take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self._take(8))
        if size > room and opcode < _CLOSE:
            raise WebSocketError(f"expected a message of at most {self._largest} bytes", TOO_LARGE)
        if self._is_client:
            return _Frame(opcode, is_final, await self._take(size))
        key = await self._take(4)
        return _Frame(opcode, is_final, _mask(await self._take(size), key))

    async def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._buffer):
            parts, held = [self._buffer[self._at :]], len(self._buffer) - self._at
            while held < size:
                piece = await self._reader.read(_PIECE)
                if not piece:
                    raise ConnectionError("the connection ended within a frame")
                parts.append(piece)
                held += len(piece)
            self._buffer, self._at, end = b"".join(parts), 0, size
        taken = self._buffer[self._at : end]
        self._at = end
        return taken

    async def _has_more(self) -> bool:
        if self._at == len(self._buffer):
            self._buffer, self._at = await self._reader.read(_PIECE), 0
        return bool(self._buffer)


def _mask(data: bytes, key: bytes) -> bytes:
    """Mask or unmask `data`. As one long number: byte by byte would take a hundred times longer."""
    size = len(data)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")
