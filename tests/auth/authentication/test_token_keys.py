"""Keys of service account tokens from files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from pinnace.auth.authentication import jwt
from pinnace.auth.authentication.jwt import load_public_keys, load_signing_key
from pinnace.auth.certificates.authority import CertificateError

KEYS: dict[str, jwt.SigningKey] = {
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
}
FORMATS = (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL)


def private_pem(key: jwt.SigningKey, form: serialization.PrivateFormat = FORMATS[0]) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def public_pem(key: jwt.SigningKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def certificate_pem(key: jwt.SigningKey) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tokens")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("form", FORMATS, ids=["pkcs8", "traditional"])
@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_of_every_kind_of_key_is_verified_by_its_jwk(
    algorithm: str, form: serialization.PrivateFormat, tmp_path: Path
) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(private_pem(KEYS[algorithm], form))
    key = load_signing_key(path)
    token = jwt.read(jwt.sign({"sub": "a"}, key))
    assert token is not None
    assert token.header["alg"] == algorithm
    published = jwt.from_jwk(jwt.to_jwk(key.public_key()))
    assert published is not None
    jwt.verify(token, {"a": published})


@pytest.mark.parametrize("encode", [private_pem, public_pem, certificate_pem], ids=["private", "public", "certificate"])
@pytest.mark.parametrize("algorithm", KEYS)
def test_a_public_key_may_be_a_key_or_a_certificate(algorithm: str, encode: object, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    assert callable(encode)
    path.write_bytes(encode(KEYS[algorithm]) + encode(KEYS["ES256"]))
    first, second = load_public_keys(path)
    assert jwt.key_id(first) == jwt.key_id(KEYS[algorithm].public_key())
    assert jwt.key_id(second) == jwt.key_id(KEYS["ES256"].public_key())


@pytest.mark.parametrize("text", [b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_file_without_a_usable_key_is_named(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(text)
    for load in (load_signing_key, load_public_keys):
        with pytest.raises(CertificateError, match=r"key\.pem"):
            load(path)


def test_other_kinds_of_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    key = ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, FORMATS[0], serialization.NoEncryption()))
    for load in (load_signing_key, load_public_keys):
        with pytest.raises(CertificateError, match="expected an RSA key, or an EC key"):
            load(path)
