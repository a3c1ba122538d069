"""The log subresource: what a container has written, and goes on to write."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from pinnace.model import errors, field_errors
from pinnace.model.byte_streams import Duplex
from pinnace.model.node_connections import ContainerLogOptions
from pinnace.schema.golang.times import canonical_time
from pinnace.server.http.messages import (
    Answer,
    Request,
    ResponseStream,
    StreamingResponse,
    Takeover,
    frame,
    reader_and_writer,
)
from pinnace.server.request.call import Call
from pinnace.server.request.websocket_headers import is_websocket
from pinnace.server.streaming.upgrades import websocket_upgrade
from pinnace.server.streaming.websocket import GOING_AWAY, NORMAL, WebSocket

_BINARY, _BASE64 = "binary.k8s.io", "base64.binary.k8s.io"
_BUFFERED_AT_MOST = 256 * 1024
LINGER_SECONDS = 10.0
"""How long a client may take to leave when all is said."""


def log_options(call: Call) -> ContainerLogOptions:
    """What the query asks for. Raises BadRequest for what cannot be read, Invalid for what makes no sense."""
    try:
        since = canonical_time(call.text("sinceTime")) if call.text("sinceTime") else ""
    except ValueError as error:
        raise errors.BadRequest(str(error)) from None
    options = ContainerLogOptions(
        follow=call.flag("follow"),
        previous=call.flag("previous"),
        timestamps=call.flag("timestamps"),
        since_seconds=call.number("sinceSeconds"),
        since_time=since,
        tail_lines=call.number("tailLines"),
        limit_bytes=call.number("limitBytes"),
    )
    errs = []
    if options.tail_lines is not None and options.tail_lines < 0:
        errs.append(field_errors.invalid("tailLines", options.tail_lines, "must be greater than or equal to 0"))
    if options.limit_bytes is not None and options.limit_bytes < 1:
        errs.append(field_errors.invalid("limitBytes", options.limit_bytes, "must be greater than 0"))
    if options.since_seconds is not None and options.since_time:
        errs.append(field_errors.forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif options.since_seconds is not None and options.since_seconds < 1:
        errs.append(field_errors.invalid("sinceSeconds", options.since_seconds, "must be greater than 0"))
    if call.text("stream"):
        errs.append(field_errors.forbidden("stream", "may not be specified"))
    if errs:
        raise errors.Invalid(errs, group="", kind="PodLogOptions", name=call.name)
    return options


def serve_log(request: Request, pieces: AsyncIterator[bytes]) -> Answer:
    """The answer that carries a log, as it comes."""
    if is_websocket(request):
        protocol, headers = websocket_upgrade(request, ("", _BINARY, _BASE64))

        async def run(transport: asyncio.Transport, leftover: bytes) -> None:
            socket = WebSocket(Duplex(*await reader_and_writer(transport, leftover)))
            await _over_websocket(socket, pieces, is_base64=protocol == _BASE64)

        return Takeover(run, headers)

    async def start(stream: ResponseStream) -> None:
        try:
            async for piece in pieces:
                stream.write(frame(piece))
                if stream.buffered > _BUFFERED_AT_MOST:
                    await stream.drain()
                if stream.closed:
                    return
        finally:
            await _closed(pieces)

    return StreamingResponse(200, ((b"Content-Type", b"text/plain"), (b"Cache-Control", b"no-cache, private")), start)


async def _over_websocket(socket: WebSocket, pieces: AsyncIterator[bytes], *, is_base64: bool) -> None:
    """What the client says is not listened to, but for its leaving."""
    sending = asyncio.ensure_future(_send(socket, pieces, is_base64=is_base64))
    reading = asyncio.ensure_future(_ignore(socket))
    try:
        await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
        socket.close(NORMAL)
        if not reading.done():
            await asyncio.wait((reading,), timeout=LINGER_SECONDS)
    except asyncio.CancelledError:
        socket.close(GOING_AWAY)
        raise
    finally:
        for task in (sending, reading):
            task.cancel()
        await asyncio.gather(sending, reading, return_exceptions=True)
        await _closed(pieces)


async def _send(socket: WebSocket, pieces: AsyncIterator[bytes], *, is_base64: bool) -> None:
    async for piece in pieces:
        socket.send(base64.b64encode(piece) if is_base64 else piece, is_text=is_base64)
        await socket.drain()


async def _ignore(socket: WebSocket) -> None:
    with suppress(OSError):
        while await socket.receive() is not None:
            pass


async def _closed(pieces: AsyncIterator[bytes]) -> None:
    """Let what yields the pieces end, too: it may hold a file or a connection."""
    if isinstance(pieces, AsyncGenerator):
        await pieces.aclose()
