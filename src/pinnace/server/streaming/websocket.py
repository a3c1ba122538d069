"""WebSocket (RFC 6455) over an upgraded connection, for either side of it (docs/decisions/0009-websocket.md)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from pinnace.model import errors
from pinnace.process.byte_streams import Duplex
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.tasks import Tasks
from pinnace.schema.golang.protobuf import split_events
from pinnace.server.http.response_queue import ChunkedStream, WriteCoalescer
from pinnace.serving.messages import Answer, Request, Response, ResponseStream, Takeover, reader_and_writer
from pinnace.serving.request.negotiation import Accepted

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
    return next((protocol for protocol in protocols_of(request) or [""] if protocol in supported), None)


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


TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""Browsers cannot set headers on a WebSocket: they send their token, encoded, as one subprotocol beside a real one."""


def is_websocket(request: Request) -> bool:
    return request.upgrade and request.headers.get(b"upgrade", b"").lower() == b"websocket"


def protocols_of(request: Request) -> list[str]:
    """Return the subprotocols that the client offers, in its order, without the token: it is never sent back."""
    return [protocol for protocol in _parse_offered(request) if not protocol.startswith(TOKEN_PROTOCOL)]


def token_of_protocols(request: Request) -> str | None:
    """Return the bearer token among the subprotocols; None if there is none. Raise ValueError if it is malformed."""
    tokens = [protocol for protocol in _parse_offered(request) if protocol.startswith(TOKEN_PROTOCOL)]
    if not tokens:
        return None
    if len(tokens) > 1 or not protocols_of(request):
        raise ValueError("expected one token among the subprotocols, and another subprotocol beside it")
    encoded = tokens[0].removeprefix(TOKEN_PROTOCOL)
    return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode() or None


def _parse_offered(request: Request) -> list[str]:
    offered = b",".join(request.header_values(b"sec-websocket-protocol")).decode("latin-1")
    return [protocol.strip() for protocol in offered.split(",") if protocol.strip()]


LINGER_SECONDS = 10.0
"""How long a slow client may take to read the rest and close, after the last event."""

_LARGEST_MESSAGE = 64 * 1024
"""Messages of the client are ignored, but must not fill the memory."""


def watch_over_websocket(
    request: Request, start: Callable[[ResponseStream], NowOrLater[None]], accepted: Accepted
) -> Answer:
    """Return the answer whose WebSocket carries the events that `start` writes to its stream.

    As Kubernetes does, accept one subprotocol of any name, and require an Origin header of any value.
    """
    error = _handshake_error(request)
    if error is not None:
        return error

    async def run(transport: asyncio.Transport, leftover: bytes) -> None:
        socket = WebSocket(Duplex(*await reader_and_writer(transport, leftover)), largest=_LARGEST_MESSAGE)
        messages = _Messages(socket, transport, is_protobuf=accepted.is_protobuf)
        stream = ChunkedStream(messages, WriteCoalescer(asyncio.get_running_loop()), chunks=False)
        await _watch(socket, transport, stream, start)
        if transport.get_write_buffer_size():
            transport.abort()  # The client does not read: a clean close would wait for ever.

    return Takeover(run, handshake_headers(request, "".join(protocols_of(request))))


def _handshake_error(request: Request) -> Response | None:
    if request.headers.get(b"sec-websocket-version") != b"13":
        return Response(400, ((b"Sec-WebSocket-Version", b"13"),), b"missing or bad WebSocket Version")
    if not request.headers.get(b"sec-websocket-key"):
        return Response(400, (), b"mismatch challenge/response")
    if request.headers.get(b"origin", b"null") in (b"", b"null"):
        return Response(403)
    return Response(400) if len(protocols_of(request)) > 1 else None


class _Messages:
    """The `ChunkWriter` of a watch: each event is a message, a line of JSON or protobuf without its length."""

    __slots__ = ("_is_protobuf", "_socket", "_transport")

    def __init__(self, socket: WebSocket, transport: asyncio.Transport, *, is_protobuf: bool) -> None:
        self._socket = socket
        self._transport = transport
        self._is_protobuf = is_protobuf

    @property
    def buffered(self) -> int:
        return self._transport.get_write_buffer_size()

    def write_chunks(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            if self._is_protobuf:
                for event in split_events(chunk):
                    self._socket.send(event[4:], is_text=False)
                continue
            for line in chunk.splitlines(keepends=True):
                self._socket.send(line, is_text=True)

    async def drain(self) -> None:
        with suppress(OSError):  # The reading task notices that the client has left.
            await self._socket.drain()


async def _watch(
    socket: WebSocket,
    transport: asyncio.Transport,
    stream: ChunkedStream,
    start: Callable[[ResponseStream], NowOrLater[None]],
) -> None:
    """Send events until either side ends the watch."""
    ended = asyncio.Event()
    stream.on_close(ended.set)
    async with Tasks() as tasks:
        reading = tasks.start(read_until_closed(socket))
        reading.add_done_callback(lambda _: stream.abandon())
        running = start(stream)
        if running is not None:
            tasks.start(_await(running)).add_done_callback(lambda _: stream.finish())
        try:
            await ended.wait()
            socket.close(NORMAL)
            if transport.get_write_buffer_size():
                await asyncio.wait((reading,), timeout=LINGER_SECONDS)
        except asyncio.CancelledError:
            socket.close(GOING_AWAY)
            raise
        finally:
            stream.finish()


async def _await(work: Awaitable[None]) -> None:
    await work


PING_SECONDS = 30.0
"""How often to ping, so that a vanished client is noticed while nothing is written."""


async def ping_regularly(ping: Callable[[], None], drain: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(PING_SECONDS)
        ping()
        await drain()


async def read_until_closed(socket: WebSocket) -> None:
    """Ignore messages until the client leaves."""
    with suppress(OSError):
        while await socket.receive() is not None:
            pass


_SPDY = b"SPDY/3.1"
_VERSION = b"x-stream-protocol-version"


class NoCommonProtocol(errors.ApiError):
    """The client offers no protocol that this server supports."""

    code, reason = 403, "Forbidden"


def websocket_upgrade(request: Request, supported: Sequence[str]) -> tuple[str, list[tuple[bytes, bytes]]]:
    """Return the protocol and the headers of the answer. Raise an ApiError if there is no common one."""
    err = describe_handshake_error(request)
    if err:
        raise errors.BadRequest(f"unable to upgrade: {err}")
    protocol = choose_protocol(request, supported)
    if protocol is None:
        offered = " ".join(protocols_of(request))
        raise NoCommonProtocol(
            f"requested protocol(s) are not supported: [{offered}]; supports [{' '.join(filter(None, supported))}]"
        )
    return protocol, handshake_headers(request, protocol)


def spdy_upgrade(request: Request, supported: Sequence[str], *, without: str) -> tuple[str, list[tuple[bytes, bytes]]]:
    """Return the same for SPDY. A client that names no protocol uses `without`."""
    if _SPDY.lower() not in request.headers.get(b"upgrade", b"").lower():
        raise errors.BadRequest("unable to upgrade: missing upgrade headers in request")
    offered = [name.strip() for name in b",".join(request.header_values(_VERSION)).decode("latin-1").split(",")]
    offered = [name for name in offered if name]
    headers = [(b"Connection", b"Upgrade"), (b"Upgrade", _SPDY)]
    if not offered:
        return without, headers
    protocol = next((name for name in offered if name in supported), None)
    if protocol is None:
        raise NoCommonProtocol(
            "unable to upgrade: unable to negotiate protocol: "
            f"client supports [{' '.join(offered)}], server accepts [{' '.join(supported)}]"
        )
    return protocol, [*headers, (b"X-Stream-Protocol-Version", protocol.encode())]
