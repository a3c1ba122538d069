"""Intermediate certificate authorities for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from pinnace.auth.certificates.authority import KeyPair
from pinnace.process.certificates import ca_builder, common_name


def intermediate(ca: KeyPair, name: str = "between", *, now: datetime | None = None) -> KeyPair:
    """An authority of its own, vouched for by another."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = now or datetime.now(UTC)
    valid = (now - timedelta(minutes=5), now + timedelta(hours=12))
    builder = ca_builder(common_name(name), key.public_key(), valid=valid, issuer=ca.as_issuer, path_length=0)
    return KeyPair(builder.sign(ca.key, hashes.SHA256()), key)
