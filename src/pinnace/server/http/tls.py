"""What is agreed upon with clients that speak TLS, and what is believed of the certificates that they show."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.bindings.openssl.binding import Binding
from OpenSSL import SSL
from OpenSSL.crypto import FILETYPE_ASN1, X509, dump_certificate

# One call sends as much as the socket takes. pyOpenSSL has no name for the mode, in which each sends one record.
_PARTIAL_WRITES = 0x1
# Only the server's own certificate is sent. Else OpenSSL looks for those that stand behind it, for each client anew.
_NO_AUTO_CHAIN = 0x8
_SUITES = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
"""AES-128 first, as Go's servers have it: a fifth cheaper than the AES-256 that OpenSSL would choose."""
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNTRUSTED = object()

OPENSSL = Binding.lib
"""For what pyOpenSSL has no words."""

RECORD = 16 * 1024
"""The most that one record of TLS carries, and so the most that is read at once."""


class ReadBuffer:
    """Where OpenSSL puts what it reads: one for all the connections of a loop, which reads one at a time."""

    __slots__ = ("buffer", "view")

    def __init__(self) -> None:
        self.buffer = Binding.ffi.new("char[]", RECORD)
        self.view = Binding.ffi.buffer(self.buffer)


class TlsConnection(SSL.Connection):
    """pyOpenSSL's connection, where reading and writing cost what OpenSSL's two calls do, unless something is wrong."""

    def __init__(self, context: SSL.Context, accepted: socket.socket, room: ReadBuffer) -> None:
        super().__init__(context, accepted)
        self.set_accept_state()
        self._room = room
        # pyOpenSSL has one call read on until there is data: for ever, if the client renews its keys fast enough.
        OPENSSL.SSL_clear_mode(self._ssl, OPENSSL.SSL_MODE_AUTO_RETRY)

    def take(self) -> bytes:
        """The next record, or as much of it as is left. Raises as `recv` does."""
        size = _SSL_READ(self._ssl, self._room.buffer, RECORD)
        if size <= 0:
            self._raise_ssl_error(self._ssl, size)
        return cast(bytes, self._room.view[:size])

    def give(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it. Raises as `send` does: WantWriteError means to come again with the same."""
        size = _SSL_WRITE(self._ssl, data if type(data) is bytes else _FROM_BUFFER(data), len(data))
        if size <= 0:
            self._raise_ssl_error(self._ssl, size)

    def _raise_ssl_error(self, ssl: Any, result: int) -> None:
        try:
            super()._raise_ssl_error(ssl, result)
        except SSL.SysCallError:
            # pyOpenSSL leaves what OpenSSL says of it. Before version 4, that would be taken for the next one's error.
            OPENSSL.ERR_clear_error()
            raise


_SSL_READ, _SSL_WRITE, _FROM_BUFFER = OPENSSL.SSL_read, OPENSSL.SSL_write, Binding.ffi.from_buffer


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
    context.set_mode(SSL.MODE_RELEASE_BUFFERS | _NO_AUTO_CHAIN)  # Thousands of connections may be idle.
    context.set_alpn_select_callback(_choose_protocol)
    context.use_certificate_chain_file(str(certificate))
    context.use_privatekey_file(str(key))
    context.load_verify_locations(str(client_ca))
    if proxy_ca is not None:
        context.load_verify_locations(str(proxy_ca))
    context.set_verify(SSL.VERIFY_PEER, _accept_certificate)
    return context


def _choose_protocol(connection: SSL.Connection, offered: list[bytes]) -> bytes:
    return b"http/1.1" if b"http/1.1" in offered else cast(bytes, SSL.NO_OVERLAPPING_PROTOCOLS)


def _accept_certificate(connection: SSL.Connection, certificate: X509, error: int, depth: int, is_good: int) -> bool:
    if not is_good and error not in (_NOT_YET_VALID, _EXPIRED):
        connection.set_app_data(_UNTRUSTED)
    return True


def client_certificates(tls: SSL.Connection) -> tuple[bytes | None, list[bytes]]:
    """The client's certificate, and those by which it was verified, from itself to one that is trusted."""
    certificate = tls.get_peer_certificate()
    if certificate is None:
        return None, []
    if tls.get_app_data() is _UNTRUSTED:
        # It may be nothing that could be read. What OpenSSL says of it would be taken for the next connection's error.
        OPENSSL.ERR_clear_error()
        return b"", []
    chain = tls.get_verified_chain() or []
    return dump_certificate(FILETYPE_ASN1, certificate), [dump_certificate(FILETYPE_ASN1, one) for one in chain]
