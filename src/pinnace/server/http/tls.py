"""TLS settings of the server, and the verification of client certificates."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.bindings.openssl.binding import Binding
from cryptography.x509 import load_pem_x509_certificates
from OpenSSL import SSL
from OpenSSL.crypto import FILETYPE_ASN1, X509, dump_certificate

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
        for one in load_pem_x509_certificates(ca.read_bytes()):
            context.add_client_ca(one)
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
    return dump_certificate(FILETYPE_ASN1, certificate), [dump_certificate(FILETYPE_ASN1, one) for one in chain]
