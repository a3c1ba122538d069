"""Intermediate certificate authorities for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pinnace.auth.certificates.authority import KeyPair


def intermediate(ca: KeyPair, name: str = "between", *, now: datetime | None = None) -> KeyPair:
    """An authority of its own, vouched for by another."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = now or datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=12))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca.key, hashes.SHA256())
    )
    return KeyPair(certificate, key)
