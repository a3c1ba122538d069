"""Words the failure of a connection to another server, the same for all callers."""

from __future__ import annotations

import os
import re
import socket
import ssl

from pinnace.schema.golang.text import quote

_STATUS_LINE = re.compile(r"b'(?P<line>[^'\n]*)'")


_CERTIFICATE_ERRORS = {
    **dict.fromkeys((2, 7, 18, 19, 20, 21, 24, 32, 79), "certificate signed by unknown authority"),
    **dict.fromkeys((9, 10), "certificate has expired or is not yet valid"),
    26: "certificate specifies an incompatible key usage",
}
"""By OpenSSL's code. OpenSSL names the host of a certificate for another one."""


def describe_connection_error(error: Exception, where: str) -> str:
    """Describe the failure of a connection to `where` in Kubernetes' words."""
    import aiohttp  # noqa: PLC0415 - slow to load, and most clusters need it never.

    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        reason = _CERTIFICATE_ERRORS.get(inner.verify_code, inner.verify_message)
        return f"tls: failed to verify certificate: x509: {reason}"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"net/http: HTTP/1.x transport connection broken: {_describe_response(error.message)}"
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)):
        return "EOF"
    if isinstance(inner, socket.gaierror):
        return f"dial tcp: lookup {where.rpartition(':')[0]}: no such host"
    if isinstance(inner, ssl.SSLError):
        return _describe_handshake(inner)
    if isinstance(inner, ConnectionResetError):
        return "EOF" if inner.errno is None else f"read tcp {where}: read: connection reset by peer"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(inner, OSError) and inner.errno is not None:
        return f"dial tcp {where}: connect: {os.strerror(inner.errno).lower()}"
    return str(error) or type(error).__name__


def _describe_handshake(error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return "tls: first record does not look like a TLS handshake"
    if "ALERT" in (error.reason or ""):
        alert = (error.reason or "").rpartition("ALERT_")[2].lower().replace("_", " ")
        return f"remote error: tls: {alert}"
    return f"tls: {(error.reason or str(error)).lower().replace('_', ' ')}"


def _describe_response(message: str) -> str:
    """Describe an answer that is not HTTP, by the line that aiohttp quotes."""
    quoted = _STATUS_LINE.search(message)
    line = quoted["line"] if quoted is not None else message.partition("\n")[0]
    if "status code" in message or "response status" in message:
        return f"malformed HTTP status code {quote(line.partition(' ')[2].partition(' ')[0])}"
    if "header token" in message:
        return f"malformed MIME header: missing colon: {quote(line)}"
    if "Content-Length" in message and "character" in message:
        return f"bad Content-Length {quote(line.partition(':')[2].strip())}"
    return f"malformed HTTP response {quote(line[:100])}"
