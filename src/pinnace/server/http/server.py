"""The HTTP server. Other packages import requests, answers and limits from here."""

from __future__ import annotations

import asyncio

from OpenSSL.SSL import Context

from pinnace.server.http.connection import Connection, ServerContext
from pinnace.server.http.header_cache import HeaderCache
from pinnace.server.http.limits import Limits
from pinnace.server.http.listener import Listener, listening_sockets
from pinnace.server.http.messages import (
    JSON_HEADERS,
    Answer,
    Headers,
    Peer,
    Request,
    RequestHandler,
    Response,
    ResponseStream,
    StreamingResponse,
    Takeover,
    failure,
    frame,
    header_block,
    reader_and_writer,
)
from pinnace.server.http.response_queue import LargeResponseQueue
from pinnace.server.http.response_stream import WriteCoalescer
from pinnace.server.http.status_lines import StatusLines
from pinnace.server.http.tls import tls_context

__all__ = [
    "JSON_HEADERS",
    "Answer",
    "Headers",
    "HttpServer",
    "Limits",
    "Peer",
    "Request",
    "RequestHandler",
    "Response",
    "ResponseStream",
    "StreamingResponse",
    "Takeover",
    "failure",
    "frame",
    "header_block",
    "reader_and_writer",
    "tls_context",
]

BACKLOG = 1024

# How long cancelled tasks and aborted connections may take to end when the server stops.
_AFTERMATH = 1.0


class HttpServer:
    """Listens, and passes each request to the handler.

    A slow, silent or hostile client costs other clients nothing: see `Limits`.
    """

    def __init__(self, *, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._listener: asyncio.Server | Listener | None = None
        self._context: ServerContext | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The listening port; the system's choice if `start` was called with 0."""
        assert self._listener is not None, "the server has not been started"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._context.connections) if self._context is not None else 0

    @property
    def cut_off(self) -> int:
        """How many connections were closed because their client read nothing for `Limits.stall_time`."""
        return self._context.cut_off if self._context is not None else 0

    async def start(
        self, host: str, port: int, tls: Context | None, handler: RequestHandler, *, shares_port: bool = False
    ) -> None:
        """Listen, without TLS if `tls` is None. Connections are accepted when this returns."""
        loop, limits = asyncio.get_running_loop(), self._limits
        context = ServerContext(
            loop,
            handler,
            limits,
            set(),
            set(),
            WriteCoalescer(loop),
            LargeResponseQueue(loop),
            StatusLines(),
            HeaderCache(),
            self._watch_limits,
        )
        self._context = context
        if tls is None:
            self._listener = await loop.create_server(
                lambda: Connection(context), host, port, backlog=BACKLOG, reuse_address=True
            )
        else:
            self._listener = Listener(
                await listening_sockets(host, port, backlog=BACKLOG, shares_port=shares_port),
                tls,
                lambda: Connection(context),
                handshake_time=limits.head_time,
                closing_time=limits.stall_time,
            )

    async def drain(self, seconds: float) -> None:
        """Serve on for a while, but close each connection after its next answer, so that clients go elsewhere.

        A connection that has nothing to answer stays open: closing it could meet a request on its way.
        """
        if self._context is not None and seconds > 0:
            self._context.is_draining = True
            await asyncio.sleep(seconds)

    async def stop(self, grace: float) -> None:
        """Stop accepting, finish pending requests and end streams; abort the rest after `grace` seconds."""
        if self._listener is None or self._context is None:
            return
        context = self._context
        context.stopping = context.is_draining = True
        self._listener.close()
        for connection in list(context.connections):
            connection.shut_down()
        until = context.loop.time() + grace
        while (context.connections or context.tasks) and context.loop.time() < until:
            await asyncio.sleep(min(0.01, grace))
        if self._timer is not None:
            self._timer.cancel()
        for task in list(context.tasks):
            task.cancel()
        for connection in list(context.connections):
            connection.abort()
        if context.tasks:
            await asyncio.wait(list(context.tasks), timeout=_AFTERMATH)
        await asyncio.sleep(0)  # Transports report their end in the next turn.

    def _watch_limits(self) -> None:
        """Check the deadlines of all connections: one timer for all is cheaper than one per request."""
        assert self._context is not None
        now = self._context.loop.time()
        for connection in list(self._context.connections):
            connection.check(now)
        self._context.is_watched = bool(self._context.connections)
        if not self._context.is_watched:
            return  # The next connection starts the timer again.
        limits = self._limits
        shortest = min(limits.head_time, limits.body_time, limits.idle_time, limits.stall_time, limits.linger_time)
        self._timer = self._context.loop.call_later(max(0.01, min(1.0, shortest / 4)), self._watch_limits)
