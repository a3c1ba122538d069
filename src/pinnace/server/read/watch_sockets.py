"""A watch over a WebSocket: one event, one message. Browsers and clients that cannot read chunks follow by it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pinnace.model.byte_streams import Duplex
from pinnace.server.http.messages import Answer, Request, Response, ResponseStream, Takeover, reader_and_writer
from pinnace.server.http.response_stream import ChunkedStream, WriteCoalescer
from pinnace.server.request.websocket_headers import protocols_of
from pinnace.server.streaming.websocket import GOING_AWAY, NORMAL, WebSocket, handshake_headers

LINGER_SECONDS = 10.0
"""How long a client that is behind may take to read the rest and leave when all is said."""

_LARGEST_SAID = 64 * 1024
"""A client has nothing to say; what it says all the same is thrown away, but not collected first."""


def watch_over_websocket(request: Request, start: Callable[[ResponseStream], Awaitable[None] | None]) -> Answer:
    """The answer that carries what `start` writes to its stream.

    Kubernetes takes any subprotocol, if it is only one, and says the same whatever it is called; it wants to know where
    a client comes from, though any origin will do.
    """
    refused = _refusal(request)
    if refused is not None:
        return refused

    async def run(transport: asyncio.Transport, leftover: bytes) -> None:
        socket = WebSocket(Duplex(*await reader_and_writer(transport, leftover)), largest=_LARGEST_SAID)
        stream = ChunkedStream(_Messages(socket, transport), WriteCoalescer(asyncio.get_running_loop()), chunks=False)
        await _watch(socket, transport, stream, start)
        if transport.get_write_buffer_size():
            transport.abort()  # It does not read: closing in order would wait for it for ever.

    return Takeover(run, handshake_headers(request, "".join(protocols_of(request))))


def _refusal(request: Request) -> Response | None:
    if request.headers.get(b"sec-websocket-version") != b"13":
        return Response(400, ((b"Sec-WebSocket-Version", b"13"),), b"missing or bad WebSocket Version")
    if not request.headers.get(b"sec-websocket-key"):
        return Response(400, (), b"mismatch challenge/response")
    if request.headers.get(b"origin", b"null") in (b"", b"null"):
        return Response(403)
    return Response(400) if len(protocols_of(request)) > 1 else None


class _Messages:
    """The `Wire` of a watch: each of its lines is an event."""

    __slots__ = ("_socket", "_transport")

    def __init__(self, socket: WebSocket, transport: asyncio.Transport) -> None:
        self._socket = socket
        self._transport = transport

    @property
    def buffered(self) -> int:
        return self._transport.get_write_buffer_size()

    def write_chunks(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            for line in chunk.splitlines(keepends=True):
                self._socket.send(line, is_text=True)

    async def drain(self) -> None:
        with suppress(OSError):  # That the client has left is told by what reads.
            await self._socket.drain()


async def _watch(
    socket: WebSocket,
    transport: asyncio.Transport,
    stream: ChunkedStream,
    start: Callable[[ResponseStream], Awaitable[None] | None],
) -> None:
    """From the first event until either side has had enough."""
    ended = asyncio.Event()
    stream.on_close(ended.set)
    reading = asyncio.create_task(_until_left(socket))
    reading.add_done_callback(lambda _: stream.lost())
    running = start(stream)
    sending = asyncio.ensure_future(running) if running is not None else None
    try:
        if sending is not None:
            sending.add_done_callback(lambda _: stream.finish())
        await ended.wait()
        socket.close(NORMAL)
        if transport.get_write_buffer_size():
            await asyncio.wait((reading,), timeout=LINGER_SECONDS)
    except asyncio.CancelledError:
        socket.close(GOING_AWAY)
        raise
    finally:
        stream.finish()
        tasks = [task for task in (reading, sending) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if sending is not None and not sending.cancelled():
            sending.result()


async def _until_left(socket: WebSocket) -> None:
    with suppress(OSError):
        while await socket.receive() is not None:
            pass
