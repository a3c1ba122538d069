"""TLS for clients: OpenSSL works on each connection's socket itself, behind the interface of an asyncio transport.

An own transport, since the loop's own copies what is sent three times over and has the OpenSSL that Python came with,
which encrypts at less than half the speed of the one that `cryptography` brings (docs/decisions/0006-tls.md).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL
from OpenSSL.crypto import X509

RECORD = 16 * 1024
"""The most that one record of TLS carries, and so the most that is read at once."""
BURST = 16
"""Records that are read of one client before others get their turn."""
HIGH_WATER = 64 * 1024

# One call sends as much as the socket takes. pyOpenSSL has no name for the mode, in which each sends one record.
_PARTIAL_WRITES = 0x1
_SUITES = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
"""AES-128 first, as Go's servers have it: a fifth cheaper than the AES-256 that OpenSSL would choose."""
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNTRUSTED = object()

_Piece = bytes | bytearray | memoryview

log = logging.getLogger(__name__)


def tls_context(*, certificate: Path, key: Path, client_ca: Path, proxy_ca: Path | None = None) -> SSL.Context:
    """TLS for an API server: HTTP/1.1 only; clients are asked for a certificate and may have none.

    No certificate breaks the handshake: who shows a bad one gets an answer that says so. Those that `client_ca` and
    `proxy_ca` stand behind are shown as they are, though their time may not have come, or be over; of all others it
    is known only that there was one. Telling users from proxies is left to whom reads them.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(b"ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_tls13_ciphersuites(_SUITES)
    # No client of Kubernetes resumes sessions; tickets would be two more writes for each handshake.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(
        SSL.OP_CIPHER_SERVER_PREFERENCE | SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET
    )
    context.clear_mode(_PARTIAL_WRITES)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # Thousands of connections may be idle.
    context.set_alpn_select_callback(_chosen_protocol)
    context.use_certificate_chain_file(str(certificate))
    context.use_privatekey_file(str(key))
    context.load_verify_locations(str(client_ca))
    if proxy_ca is not None:
        context.load_verify_locations(str(proxy_ca))
    context.set_verify(SSL.VERIFY_PEER, _let_in)
    return context


def _chosen_protocol(connection: SSL.Connection, offered: list[bytes]) -> bytes:
    return b"http/1.1" if b"http/1.1" in offered else cast(bytes, SSL.NO_OVERLAPPING_PROTOCOLS)


def _let_in(connection: SSL.Connection, certificate: X509, problem: int, depth: int, is_good: int) -> bool:
    if not is_good and problem not in (_NOT_YET_VALID, _EXPIRED):
        connection.set_app_data(_UNTRUSTED)
    return True


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
        self._arriving: set[TlsTransport] = set()
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

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BURST):
            try:
                accepted, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:  # No file is left for it, or no memory: that may pass.
                log.error("a connection could not be accepted: %s", problem)
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(1.0, self._accept_again, listening)
                return
            self._arriving.add(
                TlsTransport(
                    accepted,
                    self._context,
                    self._make_protocol(),
                    handshake_time=self._handshake_time,
                    closing_time=self._closing_time,
                    arrived=self._arriving.discard,
                )
            )

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() != -1:
            self._loop.add_reader(listening.fileno(), self._accept, listening)


class TlsTransport(asyncio.Transport):
    """One client's connection. Its protocol hears of it once the handshake is done.

    Beside what asyncio's transports tell, `get_extra_info` knows `client_certificate` (DER; b"" for one that nobody
    who is trusted stands behind; None if there is none) and `client_chain`, from it to who is trusted.
    """

    def __init__(
        self,
        accepted: socket.socket,
        context: SSL.Context,
        protocol: asyncio.Protocol,
        *,
        handshake_time: float,
        closing_time: float,
        arrived: Callable[[TlsTransport], None],
    ) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__()
        self._told: dict[str, object] = {"peername": _peer_name(accepted), "socket": accepted, "is_tls": True}
        self._loop = asyncio.get_running_loop()
        self._socket = accepted
        self._descriptor = accepted.fileno()
        self._tls = SSL.Connection(context, accepted)
        self._tls.set_accept_state()
        self._protocol: asyncio.BaseProtocol = protocol
        self._closing_time = closing_time
        self._arrived = arrived
        self._waiting: deque[_Piece] = deque()
        """What is still to be sent. The first may be half sent: it must be given to OpenSSL again as it was."""
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._is_known = False
        self._is_reading = False
        self._wants_reading = True
        self._is_writing = False
        self._has_paused = False
        self._is_closing = False
        self._has_said_goodbye = False
        self._is_lost = False
        self._alarm: asyncio.TimerHandle | None = self._loop.call_later(handshake_time, self.abort)
        self._read_on(self._shake_hands)

    # The handshake.

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            self._write_no_more()
        except SSL.WantWriteError:
            self._write_on(self._shake_hands)
        except SSL.Error:  # Whatever it speaks, it is not TLS, or none that is served.
            self.abort()
        else:
            self._write_no_more()
            self._introduce()

    def _introduce(self) -> None:
        self._disarm()
        self._arrived(self)
        self._is_known = True
        certificate, chain = _shown(self._tls)
        self._told.update(client_certificate=certificate, client_chain=chain)
        self._protocol.connection_made(self)
        if not self._is_closing and self._wants_reading:
            self._read_on(self._read)
            self._read()  # The first request may have come with the end of the handshake.

    # Reading.

    def _read(self) -> None:
        protocol = cast(asyncio.Protocol, self._protocol)
        for _ in range(BURST):
            try:
                data = self._tls.recv(RECORD)
            except SSL.WantReadError:
                return
            except SSL.WantWriteError:
                if not self._waiting:  # Something of TLS itself is to be sent before it can go on.
                    self._write_on(self._read_again)
                return
            except SSL.ZeroReturnError:
                self._end_of_file()
                return
            except SSL.Error as problem:
                self._cut_off(problem)
                return
            protocol.data_received(data)
            if len(data) < RECORD or not self._is_reading or self._is_closing:
                return  # If there is more, the loop tells: OpenSSL reads whole records, and no further.
            protocol = cast(asyncio.Protocol, self._protocol)

    def _read_again(self) -> None:
        self._write_no_more()
        if self._is_reading and not self._is_closing:
            self._read()

    def _end_of_file(self) -> None:
        """The client sends no more. TLS is closed both ways at once: what waits goes out, and that is all."""
        self._read_no_more()
        cast(asyncio.Protocol, self._protocol).eof_received()
        self.close()

    def pause_reading(self) -> None:
        self._wants_reading = False
        if self._is_known and not self._is_closing:
            self._read_no_more()

    def resume_reading(self) -> None:
        self._wants_reading = True
        if self._is_known and not self._is_closing and not self._is_reading:
            self._read_on(self._read)

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_lost or self._is_closing or not len(data):
            return
        if not self._waiting:
            try:
                self._tls.send(data)
                return
            except SSL.WantWriteError:
                self._write_on(self._send)
            except SSL.Error as problem:
                self._cut_off(problem)
                return
        # Who gave a buffer may change it: what is kept must not change.
        self._waiting.append(data if isinstance(data, (bytes, memoryview)) else bytes(data))
        if not self._has_paused and self.get_write_buffer_size() >= self._high:
            self._has_paused = True
            self._protocol.pause_writing()

    def _send(self) -> None:
        while self._waiting:
            try:
                self._tls.send(self._waiting[0])
            except SSL.WantWriteError:
                return
            except SSL.Error as problem:
                self._cut_off(problem)
                return
            self._waiting.popleft()
            if self._has_paused and self.get_write_buffer_size() <= self._low:
                self._has_paused = False
                self._protocol.resume_writing()  # It may write more, which waits its turn.
        if self._is_lost:
            return
        self._write_no_more()
        if self._is_closing:
            self._say_goodbye()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._waiting))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None and low is None else 4 * cast(int, low) if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    # Ending.

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Send what waits, say that this is all, and let the client hang up; after a while, do so for it."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._is_known:
            self._lose(None)
            return
        self._disarm()
        self._alarm = self._loop.call_later(self._closing_time, self.abort)
        self._read_no_more()
        if not self._waiting:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._has_said_goodbye or self._is_lost:
            return
        self._has_said_goodbye = True
        try:
            if not self._tls.shutdown():
                self._read_on(self._discard)  # Until the client has said so, too.
                return
        except SSL.Error:
            pass
        self._lose(None)

    def _discard(self) -> None:
        """Closing with bytes unread would reset the connection, and could destroy what is on its way to the client."""
        try:
            self._tls.recv(RECORD)
        except SSL.WantReadError:
            return
        except SSL.Error:  # It has said goodbye, or is gone.
            self._lose(None)

    def abort(self) -> None:
        self._is_closing = True
        self._lose(None)

    def _cut_off(self, problem: SSL.Error) -> None:
        """The connection has failed. What a client does wrong with TLS is its own affair."""
        self._is_closing = True
        self._lose(ConnectionResetError(str(problem)) if isinstance(problem, SSL.SysCallError) else None)

    def _lose(self, problem: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._disarm()
        self._read_no_more()
        self._write_no_more()
        self._waiting.clear()
        self._arrived(self)
        self._loop.call_soon(self._report, problem)

    def _report(self, problem: Exception | None) -> None:
        """After whoever is being called has returned."""
        self._socket.close()
        protocol, self._protocol = self._protocol, asyncio.Protocol()
        del self._tls  # Freed now, and not when the garbage of those who knew each other is looked for.
        if self._is_known:
            protocol.connection_lost(problem)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # The loop's side.

    def _read_on(self, callback: Callable[[], None]) -> None:
        self._is_reading = True
        self._loop.add_reader(self._descriptor, callback)

    def _read_no_more(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _write_on(self, callback: Callable[[], None]) -> None:
        self._is_writing = True
        self._loop.add_writer(self._descriptor, callback)

    def _write_no_more(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._descriptor)

    # Whom it speaks to.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._told.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


def _peer_name(accepted: socket.socket) -> object:
    try:
        return accepted.getpeername()
    except OSError:  # Gone already.
        return None


def _shown(tls: SSL.Connection) -> tuple[bytes | None, list[bytes]]:
    """The client's certificate, and those by which it was verified, from itself to one that is trusted."""
    certificate = tls.get_peer_certificate(as_cryptography=True)
    if certificate is None:
        return None, []
    if tls.get_app_data() is _UNTRUSTED:
        return b"", []
    chain = tls.get_verified_chain(as_cryptography=True) or []
    return certificate.public_bytes(Encoding.DER), [one.public_bytes(Encoding.DER) for one in chain]
