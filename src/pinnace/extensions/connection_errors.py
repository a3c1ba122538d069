"""Words the failure of a connection to another server, the same for all callers."""

from __future__ import annotations

import os


def describe_connection_error(error: Exception, where: str) -> str:
    """Describe the failure of a connection to `where` in Kubernetes' words."""
    import aiohttp  # noqa: PLC0415 - slow to load, and most clusters need it never.

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        return f"tls: failed to verify certificate: {getattr(found, 'verify_message', '') or found}"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno is not None:
        number = error.os_error.errno
        return f"dial tcp {where}: connect: {os.strerror(number).lower()}"
    return str(error) or type(error).__name__
