"""Words the failure of a connection to another server, the same for all callers."""

from __future__ import annotations

import os
import re
import socket
import ssl

from pinnace.extensions.certificate_errors import explain_certificate_error
from pinnace.schema.golang.text import quote

_STATUS_LINE = re.compile(r"b'(?P<line>[^'\n]*)'")


async def explain_connection_error(error: Exception, host: str, port: int, *, name: str, bundle: str = "") -> str:
    """Describe a failure to speak HTTPS with host and port, in Kubernetes' words.

    `name` is the name that the certificate must have, `bundle` the certificates that are trusted.
    """
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return await explain_certificate_error(inner, host, port, name=name, bundle=bundle)
    return describe_connection_error(error, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def describe_connection_error(error: Exception, where: str) -> str:
    """Describe the failure of a connection to `where` in Kubernetes' words."""
    import aiohttp  # noqa: PLC0415 - slow to load, and most clusters need it never.

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        return f"tls: failed to verify certificate: x509: {getattr(found, 'verify_message', '') or found}"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"net/http: HTTP/1.x transport connection broken: {_describe_response(error.message)}"
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)):
        return "EOF"
    inner = getattr(error, "os_error", None) or error.__cause__ or error
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
        said = (error.reason or "").rpartition("ALERT_")[2].lower().replace("_", " ")
        return f"remote error: tls: {said}"
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
