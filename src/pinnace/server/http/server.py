"""The HTTP server. Other packages import requests, answers and limits from here."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from OpenSSL import SSL
from OpenSSL.SSL import Context

from pinnace.server.http.connection import Connection, ServerContext
from pinnace.server.http.request_parser import HeaderCache
from pinnace.server.http.reset_connections import Resets
from pinnace.server.http.response_queue import LargeResponseQueue, StatusLines, WriteCoalescer
from pinnace.server.http.tls_transport import ReadBuffer, TlsConnection, TlsTransport, tls_context
from pinnace.serving.limits import Limits
from pinnace.serving.messages import (
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

__all__ = [
    "JSON_HEADERS",
    "Answer",
    "ConnectionShares",
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
        if tls is not None:
            self.serve(await listening_sockets(host, port, backlog=BACKLOG, shares_port=shares_port), tls, handler)
            return
        context = self._context = self._new_context(handler)
        self._listener = await context.loop.create_server(
            lambda: Connection(context), host, port, backlog=BACKLOG, reuse_address=True
        )

    def serve(
        self,
        sockets: list[socket.socket],
        tls: Context,
        handler: RequestHandler,
        *,
        shares: ConnectionShares | None = None,
    ) -> None:
        """Accept the connections of sockets that listen already, and close these at the end.

        `shares` bounds the connections, and divides them between the addresses of the clients.
        """
        context = self._context = self._new_context(handler)
        self._listener = Listener(
            sockets,
            tls,
            lambda: Connection(context),
            handshake_time=self._limits.head_time,
            closing_time=self._limits.stall_time,
            shares=shares,
        )

    def _new_context(self, handler: RequestHandler) -> ServerContext:
        loop = asyncio.get_running_loop()
        return ServerContext(
            loop,
            handler,
            self._limits,
            set(),
            set(),
            WriteCoalescer(loop),
            LargeResponseQueue(loop),
            StatusLines(),
            HeaderCache(),
            self._watch_limits,
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


BURST = 16
"""Connections accepted in one turn of the loop."""
PAUSE = 1.0
"""Seconds until the next attempt when no file descriptor or no memory is left."""

log = logging.getLogger(__name__)


async def listening_sockets(host: str, port: int, *, backlog: int, shares_port: bool = False) -> list[socket.socket]:
    """Return a listening socket for each address of the host. Raise OSError.

    With `shares_port` other processes may listen on the same port: the system gives each connection to one of them.
    """
    addresses = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in addresses:
            listening = socket.create_server(
                (str(address[0]), port), family=family, backlog=backlog, reuse_port=shares_port
            )
            listening.setblocking(False)
            sockets.append(listening)
            port = port or listening.getsockname()[1]
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


class ConnectionShares(Protocol):
    """Divides a number of connections between clients: see `pinnace.network.shares`."""

    def make_room(self, client: str) -> bool: ...

    def add(self, client: str, connection: TlsTransport) -> None: ...

    def remove(self, client: str, connection: TlsTransport) -> None: ...


class Listener:
    """Accepts connections on some sockets and makes a `TlsTransport` of each."""

    def __init__(
        self,
        sockets: Iterable[socket.socket],
        context: SSL.Context,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        handshake_time: float,
        closing_time: float,
        shares: ConnectionShares | None = None,
    ) -> None:
        self.sockets = list(sockets)
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._make_protocol = make_protocol
        self._handshake_time = handshake_time
        self._closing_time = closing_time
        self._read_buffer = ReadBuffer()
        self._resets = Resets(self._loop)
        self._arriving: set[TlsTransport] = set()
        self._shares = shares
        self._clients: dict[TlsTransport, str] = {}
        """The addresses of the clients, if connections are shared."""
        self._is_short = False
        for listening in self.sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def close(self) -> None:
        """Stop accepting, and abort connections whose handshake has not finished."""
        sockets, self.sockets = self.sockets, []
        for listening in sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        for transport in list(self._arriving):
            transport.abort()
        self._resets.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BURST):
            try:
                accepted, address = listening.accept()
            except BlockingIOError:
                if self._is_short:  # Only now: a single success between failures does not count.
                    self._is_short = False
                    log.warning("accepting connections again")
                return
            except (InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # No file descriptor or no memory is left: try again later.
                if not self._is_short:
                    log.error("cannot accept connections: %s; trying again every %g s", error, PAUSE)
                self._is_short = True
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(PAUSE, self._accept_again, listening)
                return
            self._start_transport(accepted, str(address[0]))

    def _start_transport(self, accepted: socket.socket, client: str) -> None:
        if self._shares is not None and not self._shares.make_room(client):
            accepted.close()
            return
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = TlsTransport(
                accepted,
                TlsConnection(self._context, accepted, self._read_buffer),
                self._make_protocol(),
                self._resets,
                handshake_time=self._handshake_time,
                closing_time=self._closing_time,
                owner=self,
            )
        except OSError:  # The client has left already: some systems report that here.
            accepted.close()
            return
        self._arriving.add(transport)
        if self._shares is not None:
            self._clients[transport] = client
            self._shares.add(client, transport)

    def note_established(self, transport: TlsTransport) -> None:
        self._arriving.discard(transport)

    def note_lost(self, transport: TlsTransport) -> None:
        if self._shares is not None and transport in self._clients:
            self._shares.remove(self._clients.pop(transport), transport)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() != -1:
            self._loop.add_reader(listening.fileno(), self._accept, listening)
