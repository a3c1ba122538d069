"""Accepts clients that speak TLS: the sockets that are listened on, and who has not finished the handshake."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable

from OpenSSL import SSL

from pinnace.server.http.resets import Resets
from pinnace.server.http.tls import ReadBuffer, TlsConnection
from pinnace.server.http.tls_transport import TlsTransport

BURST = 16
"""Connections that are accepted at once."""
PAUSE = 1.0
"""Seconds until accepting is tried again when no file is left, or no memory."""

log = logging.getLogger(__name__)


async def listening_sockets(host: str, port: int, *, backlog: int) -> list[socket.socket]:
    """Sockets for each address that the host has. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in found:
            one = socket.create_server((str(address[0]), port), family=family, backlog=backlog)
            one.setblocking(False)
            sockets.append(one)
            port = port or one.getsockname()[1]
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


class Listener:
    """Accepts connections on some sockets and makes transports of them."""

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
        self._room = ReadBuffer()
        self._resets = Resets(self._loop)
        self._arriving: set[TlsTransport] = set()
        self._is_short = False
        for one in self.sockets:
            self._loop.add_reader(one.fileno(), self._accept, one)

    def close(self) -> None:
        """Accept no more. Who has not finished the handshake is cut off."""
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
                if self._is_short:  # One that was accepted between two that were not is no end of it.
                    self._is_short = False
                    log.warning("connections are accepted again")
                return
            except (InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # No file is left for it, or no memory: that may pass.
                if not self._is_short:
                    log.error("connections cannot be accepted: %s; trying again every %g s", error, PAUSE)
                self._is_short = True
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(PAUSE, self._accept_again, listening)
                return
            self._welcome(accepted)

    def _welcome(self, accepted: socket.socket) -> None:
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = TlsTransport(
                accepted,
                TlsConnection(self._context, accepted, self._room),
                self._make_protocol(),
                self._resets,
                handshake_time=self._handshake_time,
                closing_time=self._closing_time,
                arrived=self._arriving.discard,
            )
        except OSError:  # Gone already, which some systems say when options are set.
            accepted.close()
        else:
            self._arriving.add(transport)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() != -1:
            self._loop.add_reader(listening.fileno(), self._accept, listening)
