"""The API server over aiohttp, and its limits against clients that are slow, silent or too large."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from aiohttp import web
from multidict import CIMultiDict

from pinnace.model import errors
from pinnace.process.tracing import active_tracer, continued_trace, span
from pinnace.sdk.api.application import ApiApplication
from pinnace.serving.limits import Limits
from pinnace.serving.local_streams import LocalStream
from pinnace.serving.messages import (
    BadTarget,
    Headers,
    Peer,
    Request,
    RequestHead,
    Response,
    StreamingResponse,
    split_target,
)

_PIECE = 64 << 10
_LIMITS = Limits()


class HttpApi:
    """Hands requests to an application, and sends its answers."""

    def __init__(self, application: ApiApplication, limits: Limits = _LIMITS) -> None:
        self._application = application
        self._limits = limits
        self._streams: set[LocalStream] = set()

    def end_watches(self) -> None:
        """End all watches, since this server stops."""
        for stream in list(self._streams):
            stream.finish()

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if active_tracer() is None:
            return await self._answer(http)
        with continued_trace(http.headers), span(f"{http.method} {http.path}"):
            return await self._answer(http)

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        try:
            path, query = split_target(http.raw_path)
        except BadTarget as error:
            return web.Response(status=400, text=f"400 Bad Request: {error}")
        head = _head(http.raw_headers)
        assert http.transport is not None, "a request has a connection"
        request = Request(http.method, http.raw_path, path, query, head, b"", _peer(http.transport))
        answer = await self._application.answer(request, lambda: self._read_body(http))
        if isinstance(answer, StreamingResponse):
            return await self._stream(http, answer)
        if not isinstance(answer, Response):
            return web.Response(status=501, text="this server does not change protocols")
        return await self._send(http, answer)

    async def _read_body(self, http: web.Request) -> bytes:
        """Return the body. Raise TooLarge before more than the limit is read, and Timeout for a slow client."""
        limit = self._limits.body
        if (http.content_length or 0) > limit:
            raise errors.TooLarge(f"limit is {limit}")
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self._limits.body_time):
                async for piece in http.content.iter_any():
                    pieces.append(piece)
                    size += len(piece)
                    if size > limit:
                        raise errors.TooLarge(f"limit is {limit}")
        except TimeoutError:
            raise errors.Timeout(f"the body did not arrive within {self._limits.body_time:g} s") from None
        return b"".join(pieces)

    async def _send(self, http: web.Request, answer: Response) -> web.StreamResponse:
        """Send an answer. The connection of a client that reads nothing is closed."""
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        response = web.StreamResponse(status=answer.status, headers=_header_pairs(answer.headers))
        response.content_length = len(body)
        try:
            await self._within(response.prepare(http))
            for at in range(0, len(body) if http.method != "HEAD" else 0, _PIECE):
                await self._within(response.write(body[at : at + _PIECE]))
            await self._within(response.write_eof())
        except TimeoutError:
            _abort(http)
        return response

    async def _within(self, sending: Awaitable[object]) -> None:
        async with asyncio.timeout(self._limits.stall_time):
            await sending

    async def _stream(self, http: web.Request, answer: StreamingResponse) -> web.StreamResponse:
        """Send a watch until it ends, its client leaves or its client stops reading."""
        response = web.StreamResponse(status=answer.status, headers=_header_pairs(answer.headers))
        stream = LocalStream(answer)
        self._streams.add(stream)
        self._application.watches += 1
        try:
            await self._within(response.prepare(http))
            async for chunk in stream:
                for at in range(0, len(chunk), _PIECE):
                    await self._within(response.write(chunk[at : at + _PIECE]))
            await self._within(response.write_eof())
        except (TimeoutError, ConnectionError):  # The client reads nothing, or has left.
            _abort(http)
        finally:
            await stream.close()
            self._streams.discard(stream)
            self._application.watches -= 1
        return response


def _head(pairs: Sequence[tuple[bytes, bytes]]) -> RequestHead:
    headers: dict[bytes, bytes] = {}
    repeated: list[tuple[bytes, bytes]] = []
    for name, value in pairs:
        lower = name.lower()
        if lower in headers:
            repeated.append((lower, value))
        else:
            headers[lower] = value
    return RequestHead(headers, tuple(repeated))


def _peer(transport: asyncio.BaseTransport) -> Peer:
    peer = Peer(transport)
    tls = transport.get_extra_info("ssl_object")
    peer.certificate = tls.getpeercert(binary_form=True) if tls is not None else None
    return peer


def _header_pairs(headers: Headers) -> CIMultiDict[str]:
    if isinstance(headers, bytes):
        lines = headers.split(b"\r\n")[:-1]
        split = [line.partition(b": ") for line in lines]
        headers = [(name, value) for name, _, value in split]
    return CIMultiDict((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in headers)


def _abort(http: web.Request) -> None:
    if http.transport is not None:
        http.transport.abort()
