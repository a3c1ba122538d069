"""The HTTP server. All else speaks in the terms of this file and knows nothing of sockets."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from pinnace.server.connection import Connection, DateHeader, Surroundings
from pinnace.server.limits import Limits
from pinnace.server.messages import (
    JSON_HEADERS,
    Answer,
    Handler,
    Headers,
    Peer,
    Request,
    Response,
    Sink,
    Stream,
    Takeover,
    failure,
    frame,
    header_block,
    reader_and_writer,
)
from pinnace.server.sinks import Corks

__all__ = [
    "JSON_HEADERS",
    "Answer",
    "Handler",
    "Headers",
    "HttpServer",
    "Limits",
    "Peer",
    "Request",
    "Response",
    "Sink",
    "Stream",
    "Takeover",
    "failure",
    "frame",
    "header_block",
    "reader_and_writer",
    "tls_context",
]

BACKLOG = 1024

_TIMES_ARE_NOT_CHECKED = ssl.VerifyFlags(0x200000)
"""X509_V_FLAG_NO_CHECK_TIME, which the ssl module has no name for."""

# Cancelled tasks and cut connections get this long to be gone when the server stops.
_AFTERMATH = 1.0


def tls_context(*, certificate: Path, key: Path, client_ca: Path, proxy_ca: Path | None = None) -> ssl.SSLContext:
    """TLS for an API server: HTTP/1.1 only, client certificates are verified but not required.

    Those of `client_ca` and `proxy_ca` are let through. Telling users from proxies is left to whom reads them, and so
    is whether they are valid now: who comes too late gets an answer that says so, not a broken handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    # The client's order counts: Go's prefers AES-128, a fifth cheaper than the AES-256 that OpenSSL would choose.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # No client of Kubernetes resumes sessions; tickets would be two more writes for each handshake.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(cafile=client_ca)
    if proxy_ca is not None:
        context.load_verify_locations(cafile=proxy_ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= _TIMES_ARE_NOT_CHECKED
    return context


class HttpServer:
    """Listens, and has each request answered by the handler.

    A slow, silent or hostile client costs others nothing: see `Limits`.
    """

    def __init__(self, *, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._server: asyncio.Server | None = None
        self._around: Surroundings | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; the system's choice if 0 was asked for."""
        assert self._server is not None, "the server has not been started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._around.connections) if self._around is not None else 0

    async def start(self, host: str, port: int, ssl_context: ssl.SSLContext | None, handler: Handler) -> None:
        """Listen. Connections are accepted when this returns."""
        loop = asyncio.get_running_loop()
        around = Surroundings(loop, handler, self._limits, set(), set(), Corks(loop), DateHeader())
        self._server = await loop.create_server(
            lambda: Connection(around),
            host,
            port,
            ssl=ssl_context,
            ssl_handshake_timeout=self._limits.head_time if ssl_context is not None else None,
            ssl_shutdown_timeout=self._limits.stall_time if ssl_context is not None else None,
            backlog=BACKLOG,
            reuse_address=True,
        )
        self._around = around
        self._watch_limits()

    async def stop(self, grace: float) -> None:
        """Accept no more, let requests in flight finish, end streams; cut what is left after `grace` seconds."""
        if self._server is None or self._around is None:
            return
        around = self._around
        around.stopping = True
        self._server.close()
        for connection in list(around.connections):
            connection.end()
        until = around.loop.time() + grace
        while (around.connections or around.tasks) and around.loop.time() < until:
            await asyncio.sleep(min(0.01, grace))
        if self._timer is not None:
            self._timer.cancel()
        for task in list(around.tasks):
            task.cancel()
        for connection in list(around.connections):
            connection.abort()
        if around.tasks:
            await asyncio.wait(list(around.tasks), timeout=_AFTERMATH)
        await asyncio.sleep(0)  # Lets the transports report that they are gone.

    def _watch_limits(self) -> None:
        """Check every connection's deadlines: one timer for all is cheaper than one for each request."""
        assert self._around is not None
        now = self._around.loop.time()
        for connection in list(self._around.connections):
            connection.check(now)
        limits = self._limits
        shortest = min(limits.head_time, limits.body_time, limits.idle_time, limits.stall_time, limits.linger_time)
        self._timer = self._around.loop.call_later(max(0.01, min(1.0, shortest / 4)), self._watch_limits)
