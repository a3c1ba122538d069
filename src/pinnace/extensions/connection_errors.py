"""Why a connection to somebody else's server failed, so that the sentence is the same for all who connect."""

from __future__ import annotations

import os


def describe_connection_error(error: Exception, where: str) -> str:
    """What went wrong with a connection to `where`, in the words that users of Kubernetes know."""
    import aiohttp  # noqa: PLC0415 - slow to load, and most clusters need it never.

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        return f"tls: failed to verify certificate: {getattr(found, 'verify_message', '') or found}"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno is not None:
        number = error.os_error.errno
        return f"dial tcp {where}: connect: {os.strerror(number).lower()}"
    return str(error) or type(error).__name__
