"""TLS of the server: its settings, client certificates, and the transport, with one OpenSSL call per read or write."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from cryptography.hazmat.bindings.openssl.binding import Binding
from cryptography.x509 import load_pem_x509_certificates
from OpenSSL import SSL
from OpenSSL.crypto import FILETYPE_ASN1, X509, dump_certificate

from pinnace.server.http.reset_connections import Resets

# SSL_MODE_ENABLE_PARTIAL_WRITE, which pyOpenSSL does not name: cleared, so that one call sends many records.
_PARTIAL_WRITES = 0x1
# Send only the server's own certificate. Otherwise OpenSSL searches its chain for each client.
_NO_AUTO_CHAIN = 0x8
_SUITES = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
"""AES-128 first, as in Go's servers: a fifth cheaper than AES-256, which OpenSSL would choose."""
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNTRUSTED = object()

OPENSSL = Binding.lib
"""For functions that pyOpenSSL does not wrap."""

RECORD = 16 * 1024
"""The largest payload of a TLS record, which is the most that is read at once."""


class ReadBuffer:
    """The buffer that OpenSSL reads into: one for all connections of a loop, which reads one at a time."""

    __slots__ = ("buffer", "view")

    def __init__(self) -> None:
        self.buffer = Binding.ffi.new("char[]", RECORD)
        self.view = Binding.ffi.buffer(self.buffer)


class TlsConnection(SSL.Connection):
    """pyOpenSSL's connection with cheaper reads and writes: one OpenSSL call each, unless it fails."""

    def __init__(self, context: SSL.Context, accepted: socket.socket, buffer: ReadBuffer) -> None:
        super().__init__(context, accepted)
        self.set_accept_state()
        self._read_buffer = buffer
        # With it, one read would loop until there is data: for ever, if the client renews its keys fast enough.
        OPENSSL.SSL_clear_mode(self._ssl, OPENSSL.SSL_MODE_AUTO_RETRY)

    def read_record(self) -> bytes:
        """Return the next record, or the rest of one. Raise as `recv` does."""
        size = _SSL_READ(self._ssl, self._read_buffer.buffer, RECORD)
        if size <= 0:
            self._raise_ssl_error(self._ssl, size)
        return cast(bytes, self._read_buffer.view[:size])

    def write_bytes(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`. Raise as `send` does: after WantWriteError, call again with the same bytes."""
        size = _SSL_WRITE(self._ssl, data if type(data) is bytes else _FROM_BUFFER(data), len(data))
        if size <= 0:
            self._raise_ssl_error(self._ssl, size)

    def _raise_ssl_error(self, ssl: Any, result: int) -> None:
        try:
            super()._raise_ssl_error(ssl, result)
        except SSL.SysCallError:
            # pyOpenSSL before version 4 leaves the error in OpenSSL's queue, where the next connection would find it.
            OPENSSL.ERR_clear_error()
            raise


_SSL_READ, _SSL_WRITE, _FROM_BUFFER = OPENSSL.SSL_read, OPENSSL.SSL_write, Binding.ffi.from_buffer


def tls_context(*, certificate: Path, key: Path, client_ca: Path, proxy_ca: Path | None = None) -> SSL.Context:
    """Return the TLS context of an API server: HTTP/1.1 only; client certificates are requested and optional.

    No certificate fails the handshake: a client with an invalid one gets an HTTP error instead. Certificates that
    `client_ca` or `proxy_ca` has signed are passed on even outside their validity period; for all others, it is only
    known that there was one. Callers tell users from proxies.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(b"ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_tls13_ciphersuites(_SUITES)
    # Kubernetes' clients do not resume sessions; tickets would be two more writes per handshake.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(
        SSL.OP_CIPHER_SERVER_PREFERENCE | SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET
    )
    context.clear_mode(_PARTIAL_WRITES)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS | _NO_AUTO_CHAIN)  # Saves memory: thousands of connections may be idle.
    context.set_alpn_select_callback(_choose_protocol)
    context.use_certificate_chain_file(str(certificate))
    context.use_privatekey_file(str(key))
    for ca in (client_ca, proxy_ca) if proxy_ca is not None else (client_ca,):
        context.load_verify_locations(str(ca))
        # Clients with several certificates choose one by the names of the CAs in the server's request.
        for issuer in load_pem_x509_certificates(ca.read_bytes()):
            context.add_client_ca(issuer)
    context.set_verify(SSL.VERIFY_PEER, _accept_certificate)
    return context


def _choose_protocol(connection: SSL.Connection, offered: list[bytes]) -> bytes:
    return b"http/1.1" if b"http/1.1" in offered else cast(bytes, SSL.NO_OVERLAPPING_PROTOCOLS)


def _accept_certificate(connection: SSL.Connection, certificate: X509, error: int, depth: int, is_good: int) -> bool:
    if not is_good and error not in (_NOT_YET_VALID, _EXPIRED):
        connection.set_app_data(_UNTRUSTED)
    return True


def client_certificates(tls: SSL.Connection) -> tuple[bytes | None, list[bytes]]:
    """Return the client's certificate, and its verified chain up to a trusted one."""
    certificate = tls.get_peer_certificate()
    if certificate is None:
        return None, []
    if tls.get_app_data() is _UNTRUSTED:
        # The error that a malformed certificate leaves in OpenSSL's queue would be taken for the next connection's.
        OPENSSL.ERR_clear_error()
        return b"", []
    chain = tls.get_verified_chain() or []
    return dump_certificate(FILETYPE_ASN1, certificate), [dump_certificate(FILETYPE_ASN1, part) for part in chain]


BURST = 16
"""Records read from one client before the loop handles others."""
HIGH_WATER = 64 * 1024

_PLAIN_REQUEST = "http request"
_PLAIN_ANSWER = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
"""The response of Go's servers."""

_Piece = bytes | bytearray | memoryview


class TransportOwner(Protocol):
    """The part that accepted the connection of a transport."""

    def note_established(self, transport: TlsTransport) -> None:
        """Take note that the handshake has ended, one way or the other."""

    def note_lost(self, transport: TlsTransport) -> None:
        """Take note that the connection has ended."""


class TlsTransport(asyncio.Transport):
    """One client's connection. It calls its protocol's `connection_made` after the handshake.

    Beside asyncio's names, `get_extra_info` has `client_certificate` (DER; b"" if no trusted CA has signed it; None if
    there is none), `client_chain`, from it to a trusted certificate, and `parts_sent`, which grows with each part of
    the waiting bytes that is sent.
    """

    def __init__(
        self,
        accepted: socket.socket,
        channel: TlsConnection,
        protocol: asyncio.Protocol,
        resets: Resets,
        *,
        handshake_time: float,
        closing_time: float,
        owner: TransportOwner,
    ) -> None:
        super().__init__()
        self._extra_info: dict[str, object] = {"peername": _peer_name(accepted), "socket": accepted, "is_tls": True}
        self._loop = asyncio.get_running_loop()
        self._socket = accepted
        self._descriptor = accepted.fileno()
        self._tls = channel
        self._protocol: asyncio.BaseProtocol = protocol
        self._closing_time = closing_time
        self._owner = owner
        self._resets = resets
        self._waiting: deque[_Piece] = deque()
        """Bytes to send. The first piece may be half sent: OpenSSL must get the same piece again."""
        self._size = 0
        self._parts_sent = 0
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._is_established = False
        self._is_reading = False
        self._wants_reading = True
        self._was_reset = False
        """The client has reset the connection: uvloop reports no more data, so read until nothing is left."""
        self._is_held = False
        """Reading waits until TLS itself has sent something, for which the socket has no room."""
        self._is_writing = False
        self._has_paused = False
        self._is_closing = False
        self._has_shut_down = False
        self._is_lost = False
        resets.listen(self._descriptor, self._on_reset)  # First, because it may fail.
        self._alarm: asyncio.TimerHandle | None = self._loop.call_later(handshake_time, self.abort)
        self._add_reader(self._shake_hands)

    # The handshake.

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            self._remove_writer()
        except SSL.WantWriteError:
            self._add_writer(self._shake_hands)
        except SSL.Error as error:  # Not TLS, or an unsupported version.
            if _is_plain_http(error):
                self._answer_plain_http()
            self.abort()
        else:
            self._remove_writer()
            self._finish_handshake()

    def _answer_plain_http(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.recv(1 << 16)  # Closing a socket with unread data would discard what was sent.
            self._socket.send(_PLAIN_ANSWER)

    def _finish_handshake(self) -> None:
        self._disarm()
        self._owner.note_established(self)
        certificate, chain = client_certificates(self._tls)
        self._extra_info.update(client_certificate=certificate, client_chain=chain)
        self._is_established = True
        try:
            self._protocol.connection_made(self)
        except Exception as error:
            self._report_failure(error)
        if not self._is_closing and self._wants_reading:
            self._add_reader(self._read)
            self._read()  # The first request may have arrived with the end of the handshake.

    # Reading.

    def _read(self) -> None:
        protocol = cast(asyncio.Protocol, self._protocol)
        for _ in range(BURST):
            try:
                data = self._tls.read_record()
            except SSL.Error as error:
                self._read_nothing(error)
                return
            try:
                protocol.data_received(data)
            except Exception as error:
                self._report_failure(error)
            if not self._is_reading or self._is_closing:
                return
            if len(data) < RECORD and not self._was_reset:
                return  # If more is there, the loop reports it: OpenSSL reads no further than one record.
            protocol = cast(asyncio.Protocol, self._protocol)
        if self._was_reset:
            self._loop.call_soon(self._read_rest)

    def _read_nothing(self, error: SSL.Error) -> None:
        """Wait for more, for room to send, or for nothing any more."""
        match error:
            case SSL.WantReadError():
                return
            case SSL.WantWriteError():
                self._hold()
            case SSL.ZeroReturnError():
                self._end_of_file()
            case _:
                self._fail(error)

    def _on_reset(self) -> None:
        self._was_reset = True
        if self._is_closing:
            self.abort()  # The client has left: no clean shutdown.
        elif self._is_established:
            self._read_rest()

    def _read_rest(self) -> None:
        """Read the data before the reset, unless reading is paused: then the protocol gets it when it resumes."""
        if self._is_reading and not self._is_closing:
            self._read()

    def _hold(self) -> None:
        """Pause reading until the socket has room to send: until then each attempt would fail in a busy loop."""
        self._remove_reader()
        self._is_held = True
        self._add_writer(self._send)

    def _release_reading(self) -> None:
        if self._is_held:
            self._is_held = False
            if self._wants_reading:
                self.resume_reading()

    def _end_of_file(self) -> None:
        """Close: the client sends no more, and TLS closes both ways at once. Waiting bytes are still sent."""
        self._remove_reader()
        try:
            cast(asyncio.Protocol, self._protocol).eof_received()
        except Exception as error:
            self._report_failure(error)
        self.close()

    def pause_reading(self) -> None:
        self._wants_reading = False
        if self._is_established and not self._is_closing:
            self._remove_reader()

    def resume_reading(self) -> None:
        self._wants_reading = True
        if self._is_established and not self._is_closing and not self._is_reading:
            self._add_reader(self._read)

    def is_reading(self) -> bool:
        return self._wants_reading and not self._is_closing

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_lost or self._is_closing or not len(data):
            return
        if self._waiting:
            self._keep(data)
            return
        try:
            self._tls.write_bytes(data)
        except SSL.WantWriteError:
            self._add_writer(self._send)
            self._keep(data)
        except SSL.Error as error:
            self._fail(error)

    def _keep(self, data: bytes | bytearray | memoryview) -> None:
        """Send the data later: the socket is full."""
        # The caller may change its buffer: copy what is kept.
        is_fixed = data.readonly if isinstance(data, memoryview) else isinstance(data, bytes)
        self._waiting.append(data if is_fixed else bytes(data))
        self._size += len(data)
        if not self._has_paused and self._size >= self._high:
            self._has_paused = True
            self._protocol.pause_writing()

    def _send(self) -> None:
        while self._waiting:
            try:
                self._tls.write_bytes(self._waiting[0])
            except SSL.WantWriteError:  # Part of it is sent; OpenSSL does not say how much.
                self._parts_sent += 1
                self._extra_info["parts_sent"] = self._parts_sent
                return
            except SSL.Error as error:
                self._fail(error)
                return
            self._size -= len(self._waiting.popleft())
            self._release_reading()
            if self._has_paused and self._size <= self._low:
                self._has_paused = False
                self._protocol.resume_writing()  # It may write more, which is appended.
        if self._is_lost:
            return
        self._remove_writer()
        if self._is_closing:
            self._shut_down_tls()
        elif self._is_held:
            self._release_reading()
            if self._is_reading:
                self._read()  # This also sends what TLS has to send.

    def get_write_buffer_size(self) -> int:
        return self._size

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
        """Send the waiting bytes and shut TLS down; close when the client has done so too, or after `closing_time`."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._is_established:
            self._lose(None)
            return
        self._disarm()
        self._alarm = self._loop.call_later(self._closing_time, self.abort)
        self._remove_reader()
        if not self._waiting:
            self._shut_down_tls()

    def _shut_down_tls(self) -> None:
        if self._has_shut_down or self._is_lost:
            return
        try:
            is_over = self._tls.shutdown()
        except SSL.WantWriteError:
            self._add_writer(self._shut_down_tls)
            return
        except SSL.Error:
            is_over = True
        self._has_shut_down = True
        self._remove_writer()
        if is_over:
            self._lose(None)
        else:
            self._add_reader(self._discard)  # Until the client has shut down too.

    def _discard(self) -> None:
        """Read and discard: closing with unread bytes would reset the connection, and the client might miss the end."""
        try:
            self._tls.read_record()
        except SSL.WantReadError:
            return
        except SSL.Error:  # The client has shut down, or is gone.
            self._lose(None)

    def abort(self) -> None:
        self._is_closing = True
        self._lose(None)

    def _fail(self, error: SSL.Error) -> None:
        """Close because the connection has failed. TLS errors of a client are not reported."""
        self._is_closing = True
        self._lose(ConnectionResetError(str(error)) if isinstance(error, SSL.SysCallError) else None)

    def _report_failure(self, error: Exception) -> None:
        """Log that the protocol raised, and abort: the state of the connection is unknown."""
        context = {"message": "a connection's protocol failed", "exception": error, "transport": self}
        self._loop.call_exception_handler({**context, "protocol": self._protocol})
        self.abort()

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._disarm()
        self._remove_reader()
        self._remove_writer()
        self._waiting.clear()
        self._size = 0
        self._owner.note_established(self)
        self._owner.note_lost(self)
        self._loop.call_soon(self._report, error)

    def _report(self, error: Exception | None) -> None:
        """Tell the protocol, after the current call has returned."""
        self._resets.forget(self._descriptor)
        self._socket.close()
        protocol, self._protocol = self._protocol, asyncio.Protocol()
        del self._tls  # Free it now, not at the next collection of cycles.
        if self._is_established:
            protocol.connection_lost(error)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # Registration with the loop.

    def _add_reader(self, callback: Callable[[], None]) -> None:
        self._is_reading = True
        self._loop.add_reader(self._descriptor, callback)

    def _remove_reader(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _add_writer(self, callback: Callable[[], None]) -> None:
        self._is_writing = True
        self._loop.add_writer(self._descriptor, callback)

    def _remove_writer(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._descriptor)

    # The protocol.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra_info.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


def _peer_name(accepted: socket.socket) -> object:
    try:
        return accepted.getpeername()
    except OSError:  # The client has left already.
        return None


def _is_plain_http(error: SSL.Error) -> bool:
    if isinstance(error, SSL.SysCallError) or not error.args:
        return False
    return any(reason == _PLAIN_REQUEST for *_, reason in error.args[0])
