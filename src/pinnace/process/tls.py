"""TLS to other servers, with certificates trusted as Go's TLS trusts them."""

from __future__ import annotations

import base64
import binascii
import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

_BEGIN = b"-----BEGIN "
_END = b"-----END "
_DASHES = b"-----"
_HEADERS = b"with headers"


class UnusableBundle(ValueError):
    """No certificate can be read from a bundle. The message is that of Kubernetes."""


def client_tls(*, ca: str = "", ca_file: Path | None = None) -> ssl.SSLContext:
    """Return TLS settings that trust these certificates; those of the system without any. Raise ssl.SSLError, OSError.

    As in Go, a trusted certificate need not be a root: it may be an intermediate one, or the server's own. The names
    of a server are those of the subjectAltName extension: a common name alone is none.
    """
    context = ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None, cadata=ca or None)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # On by default since Python 3.13; Go accepts what it refuses.
    context.hostname_checks_common_name = False
    return context


def readable_certificates(bundle: bytes) -> str:
    """Return the certificates of a caBundle that Go would read, as PEM. Raise UnusableBundle if there is none.

    Text around the blocks, blocks of other types and certificates that cannot be parsed are skipped.
    """
    blocks = list(_pem_blocks(bundle))
    certificates = [der for kind, der in blocks if kind == b"CERTIFICATE"]
    readable = [der for der in certificates if _is_certificate(der)]
    if readable:
        return "".join(ssl.DER_cert_to_PEM_cert(der) for der in dict.fromkeys(readable))
    if not blocks:
        raise UnusableBundle("unable to parse bytes as PEM block")
    if certificates:
        raise UnusableBundle("failed to parse certificate: x509: malformed certificate")
    raise UnusableBundle("no valid certificate authority data seen")


def _is_certificate(der: bytes) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except ssl.SSLError:
        return False
    return True


def _pem_blocks(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type and the content of each PEM block; one with headers has a type of its own."""
    kind, lines = b"", list[bytes]()
    for line in text.split(b"\n"):
        line = line.rstrip()
        if line.startswith(_BEGIN) and line.endswith(_DASHES):
            kind, lines = line[len(_BEGIN) : -len(_DASHES)], []
        elif kind and line == _END + kind + _DASHES:
            with contextlib.suppress(binascii.Error):
                encoded = [line for line in lines if b":" not in line]
                yield kind if encoded == lines else _HEADERS, base64.b64decode(b"".join(encoded))
            kind = b""
        elif kind:
            lines.append(line)
