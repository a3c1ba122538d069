"""Parse and check the certificates and certificate requests in objects.

`cryptography` is imported with the first certificate: most runs never need it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pinnace.kinds.validation.pem import find_blocks

if TYPE_CHECKING:
    from cryptography import x509

REQUEST_TYPE = "PEM block type must be CERTIFICATE REQUEST"


class PemBlock(NamedTuple):
    """One PEM block: its type, whether it has headers, and its bytes."""

    type: str
    has_headers: bool
    der: bytes


def decoded(text: str) -> bytes:
    """Decode a bytes field; empty where the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def pem_blocks(data: bytes) -> Iterator[PemBlock]:
    """Return the blocks of a PEM text, ignoring text between them."""
    for block_type, text in find_blocks(data):
        lines = text.split(b"\n")
        headers = next((number for number, line in enumerate(lines) if b":" not in line), len(lines))
        try:
            der = base64.b64decode(b"".join(b" ".join(lines[headers:]).split()), validate=True)
        except (binascii.Error, ValueError):
            continue
        yield PemBlock(block_type.decode(errors="replace"), headers > 0, der)


def check_request(pem: bytes) -> str:
    """Return why this is not a certificate request signed by its own key; empty for a valid one."""
    block = next(pem_blocks(pem), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        return REQUEST_TYPE
    try:
        request = parse_request(block.der)
    except ValueError:
        return "asn1: structure error: malformed certificate request"
    return "" if request.is_signature_valid else "x509: the signature does not match the request's public key"


def parse_request(der: bytes) -> x509.CertificateSigningRequest:
    """Parse a PKCS#10 request. Raise ValueError."""
    from cryptography import x509  # noqa: PLC0415

    return x509.load_der_x509_csr(der)


def parse_certificate(der: bytes) -> x509.Certificate:
    """Parse an X.509 certificate. Raise ValueError."""
    from cryptography import x509  # noqa: PLC0415

    return x509.load_der_x509_certificate(der)


def check_certificate(pem: bytes) -> str:
    """Return why this is not a chain of certificates; empty for a valid or empty one."""
    if not pem:
        return ""
    blocks = 0
    for block in pem_blocks(pem):
        if block.type != "CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{block.type}"'
        if block.has_headers:
            return "no PEM block headers are permitted"
        blocks += 1
        try:
            parse_certificate(block.der)
        except ValueError:
            return "x509: malformed certificate"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def check_trust_anchor(block: PemBlock) -> str:
    """Return why a block of a trust bundle is not a certificate authority; empty for a valid one."""
    from cryptography import x509  # noqa: PLC0415

    if block.type != "CERTIFICATE":
        return f"has bad block type: {block.type}"
    if block.has_headers:
        return "has PEM block headers"
    try:
        certificate = parse_certificate(block.der)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return "does not have the CA bit set"
    except ValueError:
        return "does not parse as X.509"
    return "" if constraints.ca else "does not have the CA bit set"


def is_certificate_of(certificate: bytes, request: bytes) -> bool:
    """Return whether a certificate is for the key of a request, both as DER. Raise ValueError."""
    issued, requested = parse_certificate(certificate).public_key(), parse_request(request).public_key()
    return _spki(issued) == _spki(requested)


def _spki(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_bytes(serialization.Encoding.DER, form))


def check_public_key(key: Any) -> tuple[str, str]:
    """Return a key type that pods may not use, as printed, and the reason; two empty strings for a valid key."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415

    if isinstance(key, ed25519.Ed25519PublicKey):
        return "", ""
    if isinstance(key, ec.EllipticCurvePublicKey):
        if isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1):
            return "", ""
        return f"curve {_go_curve(key.curve.name)}", "elliptic public keys must use curve P256, P384, or P521"
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size in (3072, 4096):
            return "", ""
        return f"{key.key_size}-bit modulus", "RSA keys must have modulus size 3072 or 4096"
    return "", "unknown public key type; supported types are Ed25519, ECDSA, and RSA"


def _go_curve(name: str) -> str:
    return {"secp224r1": "P-224"}.get(name, name)
