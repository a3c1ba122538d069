"""A watch over a WebSocket, one message per event, for browsers and clients that cannot read chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pinnace.model.byte_streams import Duplex
from pinnace.model.tasks import Tasks
from pinnace.server.http.messages import Answer, Request, Response, ResponseStream, Takeover, reader_and_writer
from pinnace.server.http.response_stream import ChunkedStream, WriteCoalescer
from pinnace.server.request.websocket_headers import protocols_of
from pinnace.server.streaming.websocket import GOING_AWAY, NORMAL, WebSocket, handshake_headers

LINGER_SECONDS = 10.0
"""How long a slow client may take to read the rest and close, after the last event."""

_LARGEST_MESSAGE = 64 * 1024
"""Messages of the client are ignored, but must not fill the memory."""


def watch_over_websocket(request: Request, start: Callable[[ResponseStream], Awaitable[None] | None]) -> Answer:
    """Return the answer whose WebSocket carries the events that `start` writes to its stream.

    As Kubernetes does, accept one subprotocol of any name, and require an Origin header of any value.
    """
    error = _handshake_error(request)
    if error is not None:
        return error

    async def run(transport: asyncio.Transport, leftover: bytes) -> None:
        socket = WebSocket(Duplex(*await reader_and_writer(transport, leftover)), largest=_LARGEST_MESSAGE)
        stream = ChunkedStream(_Messages(socket, transport), WriteCoalescer(asyncio.get_running_loop()), chunks=False)
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
    """The `ChunkWriter` of a watch: each line is an event."""

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
        with suppress(OSError):  # The reading task notices that the client has left.
            await self._socket.drain()


async def _watch(
    socket: WebSocket,
    transport: asyncio.Transport,
    stream: ChunkedStream,
    start: Callable[[ResponseStream], Awaitable[None] | None],
) -> None:
    """Send events until either side ends the watch."""
    ended = asyncio.Event()
    stream.on_close(ended.set)
    async with Tasks() as tasks:
        reading = tasks.start(_read_until_closed(socket))
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


async def _read_until_closed(socket: WebSocket) -> None:
    with suppress(OSError):
        while await socket.receive() is not None:
            pass
