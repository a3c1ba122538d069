"""Accepts TLS connections on listening sockets, and owns those whose handshake has not finished."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable

from OpenSSL import SSL

from pinnace.server.http.reset_connections import Resets
from pinnace.server.http.tls import ReadBuffer, TlsConnection
from pinnace.server.http.tls_transport import TlsTransport

BURST = 16
"""Connections accepted in one turn of the loop."""
PAUSE = 1.0
"""Seconds until the next attempt when no file descriptor or no memory is left."""

log = logging.getLogger(__name__)


async def listening_sockets(host: str, port: int, *, backlog: int, shares_port: bool = False) -> list[socket.socket]:
    """Return a listening socket for each address of the host. Raise OSError.

    With `shares_port` other processes may listen on the same port: the system gives each connection to one of them.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in found:
            one = socket.create_server((str(address[0]), port), family=family, backlog=backlog, reuse_port=shares_port)
            one.setblocking(False)
            sockets.append(one)
            port = port or one.getsockname()[1]
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


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
        self._is_short = False
        for one in self.sockets:
            self._loop.add_reader(one.fileno(), self._accept, one)

    def close(self) -> None:
        """Stop accepting, and abort connections whose handshake has not finished."""
        sockets, self.sockets = self.sockets, []
        for one in sockets:
            self._loop.remove_reader(one.fileno())
            one.close()
        for transport in list(self._arriving):
            transport.abort()
        self._resets.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BURST):
            try:
                accepted, _address = listening.accept()
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
            self._start_transport(accepted)

    def _start_transport(self, accepted: socket.socket) -> None:
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
                on_established=self._arriving.discard,
            )
        except OSError:  # The client has left already: some systems report that here.
            accepted.close()
        else:
            self._arriving.add(transport)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() != -1:
            self._loop.add_reader(listening.fileno(), self._accept, listening)
