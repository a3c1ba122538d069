"""The log subresource: the output of a container, past and following."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator

from pinnace.model import errors, field_errors
from pinnace.model.node_connections import ContainerLogOptions
from pinnace.process.byte_streams import Duplex
from pinnace.process.tasks import Tasks
from pinnace.schema.golang.times import canonical_time
from pinnace.server.streaming.relay import send_pieces
from pinnace.server.streaming.websocket import (
    GOING_AWAY,
    NORMAL,
    WebSocket,
    is_websocket,
    read_until_closed,
    websocket_upgrade,
)
from pinnace.serving.messages import (
    Answer,
    Request,
    ResponseStream,
    StreamingResponse,
    Takeover,
    reader_and_writer,
)
from pinnace.serving.request.call import Call

_BINARY, _BASE64 = "binary.k8s.io", "base64.binary.k8s.io"
LINGER_SECONDS = 10.0
"""How long a client may take to close after the end of the log."""


def log_options(call: Call) -> ContainerLogOptions:
    """Parse the query. Raise BadRequest for malformed values and Invalid for values out of range."""
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
    """Return the answer that streams a log."""
    if is_websocket(request):
        protocol, headers = websocket_upgrade(request, ("", _BINARY, _BASE64))

        async def run(transport: asyncio.Transport, leftover: bytes) -> None:
            socket = WebSocket(Duplex(*await reader_and_writer(transport, leftover)))
            await _send_over_websocket(socket, pieces, is_base64=protocol == _BASE64)

        return Takeover(run, headers)

    async def start(stream: ResponseStream) -> None:
        try:
            await send_pieces(pieces, stream)
        finally:
            await _close(pieces)

    return StreamingResponse(200, ((b"Content-Type", b"text/plain"), (b"Cache-Control", b"no-cache, private")), start)


async def _send_over_websocket(socket: WebSocket, pieces: AsyncIterator[bytes], *, is_base64: bool) -> None:
    """Send the log until it ends or the client closes. Messages of the client are ignored."""
    try:
        async with Tasks() as tasks:
            sending = tasks.start(_send(socket, pieces, is_base64=is_base64))
            reading = tasks.start(read_until_closed(socket))
            try:
                await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
                socket.close(NORMAL)
                if not reading.done():
                    await asyncio.wait((reading,), timeout=LINGER_SECONDS)
            except asyncio.CancelledError:
                socket.close(GOING_AWAY)
                raise
    finally:
        await _close(pieces)


async def _send(socket: WebSocket, pieces: AsyncIterator[bytes], *, is_base64: bool) -> None:
    async for piece in pieces:
        socket.send(base64.b64encode(piece) if is_base64 else piece, is_text=is_base64)
        await socket.drain()


async def _close(pieces: AsyncIterator[bytes]) -> None:
    """Close the generator: it may hold a file or a connection."""
    if isinstance(pieces, AsyncGenerator):
        await pieces.aclose()
