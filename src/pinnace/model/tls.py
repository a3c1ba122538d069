"""TLS to other servers, with certificates trusted as Go's TLS trusts them."""

from __future__ import annotations

import ssl
from pathlib import Path


def client_tls(*, ca: str = "", ca_file: Path | None = None) -> ssl.SSLContext:
    """Return TLS settings that trust these certificates; those of the system without any. Raise ssl.SSLError, OSError.

    As in Go, a trusted certificate need not be a root: it may be an intermediate one, or the server's own.
    """
    context = ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None, cadata=ca or None)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # On by default since Python 3.13; Go accepts what it refuses.
    return context
