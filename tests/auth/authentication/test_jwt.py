"""Tokens that lie: each must be refused, whatever it says of itself."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from pinnace.auth.authentication import jwt
from pinnace.auth.authentication.authenticators import BadToken

KEY = ec.generate_private_key(ec.SECP256R1())
KEYS: dict[str, jwt.PublicKey] = {jwt.key_id(KEY.public_key()): KEY.public_key()}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def verified(text: str, keys: dict[str, jwt.PublicKey] = KEYS, **options: Any) -> jwt.Claims:
    token = jwt.read(text)
    assert token is not None
    jwt.verify(token, keys, **options)
    return token.claims


def test_a_signed_token_is_verified() -> None:
    assert verified(jwt.sign({"sub": "bob"}, KEY)) == {"sub": "bob"}


def test_the_key_as_others_read_it_verifies_too() -> None:
    read = jwt.from_jwk(jwt.to_jwk(KEY.public_key()))
    assert read is not None
    assert verified(jwt.sign({"sub": "bob"}, KEY), {"any": read}) == {"sub": "bob"}


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, 1, ["ES256"]])
@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_an_unsigned_token_is_refused(algorithm: Any, signature: str) -> None:
    text = f"{part({'alg': algorithm})}.{part({'sub': 'admin'})}.{signature}"
    with pytest.raises(BadToken):
        verified(text)


def test_a_public_key_is_no_shared_secret() -> None:
    """The old trick: sign with HMAC, and the public key, which everybody has, as the secret."""
    encodings = (
        KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        KEY.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
    )
    for secret in encodings:
        signed = f"{part({'alg': 'HS256', 'kid': next(iter(KEYS))})}.{part({'sub': 'admin'})}"
        forged = f"{signed}.{part(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"
        with pytest.raises(BadToken):
            verified(forged)


def test_another_key_under_our_key_s_name_is_refused() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    head, body, signature = jwt.sign({"sub": "admin"}, other).split(".")
    claimed = orjson.loads(urlsafe_b64decode(head + "==")) | {"kid": next(iter(KEYS))}
    with pytest.raises(BadToken):
        verified(f"{part(claimed)}.{body}.{signature}")


def test_a_key_that_the_token_brings_along_is_not_looked_at() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    head, body, signature = jwt.sign({"sub": "admin"}, other).split(".")
    claimed = orjson.loads(urlsafe_b64decode(head + "==")) | {"jwk": jwt.to_jwk(other.public_key())}
    with pytest.raises(BadToken):
        verified(f"{part(claimed)}.{body}.{signature}")


def test_changed_claims_are_refused() -> None:
    head, _, signature = jwt.sign({"sub": "bob"}, KEY).split(".")
    with pytest.raises(BadToken):
        verified(f"{head}.{part({'sub': 'admin'})}.{signature}")


def test_an_algorithm_that_is_not_on_the_list_is_refused() -> None:
    with pytest.raises(BadToken, match="not allowed"):
        verified(jwt.sign({"sub": "bob"}, KEY), algorithms=frozenset(("RS256",)))


def test_an_algorithm_of_another_kind_of_key_is_refused() -> None:
    key = rsa.generate_private_key(65537, 2048)
    signed = f"{part({'alg': 'ES256'})}.{part({'sub': 'bob'})}"
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(BadToken):
        verified(f"{signed}.{part(signature)}", {"rsa": key.public_key()})


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "PS384"])
def test_rsa_signatures_of_providers_are_verified(algorithm: str) -> None:
    key = rsa.generate_private_key(65537, 2048)
    kinds: dict[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
    kind = kinds[algorithm[2:]]
    signed = f"{part({'alg': algorithm})}.{part({'sub': 'bob'})}"
    how = (
        padding.PKCS1v15() if algorithm.startswith("RS") else padding.PSS(padding.MGF1(kind), padding.PSS.DIGEST_LENGTH)
    )
    signature = key.sign(signed.encode(), how, kind)
    assert verified(f"{signed}.{part(signature)}", {"rsa": key.public_key()}) == {"sub": "bob"}


def test_edwards_signatures_are_verified() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    signed = f"{part({'alg': 'EdDSA'})}.{part({'sub': 'bob'})}"
    text = f"{signed}.{part(key.sign(signed.encode()))}"
    assert verified(text, {"ed": key.public_key()}) == {"sub": "bob"}


@pytest.mark.parametrize("extension", [["exp"], ["b64"]])
def test_extensions_that_must_be_understood_are_refused(extension: list[str]) -> None:
    text = f"{part({'alg': 'ES256', 'crit': extension})}.{part({})}.AAAA"
    with pytest.raises(BadToken, match="extensions"):
        verified(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "..",
        "é.é.é",
        f"{part([])}.{part({})}.x",
        f"{part({})}.{part([])}.x",
        "x" * 70000,
    ],
)
def test_a_malformed_token_is_not_parsed(text: str) -> None:
    assert jwt.read(text) is None


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW.timestamp() - 61}, "expired"),
        ({"exp": NOW.timestamp() + 600, "nbf": NOW.timestamp() + 61}, "not valid yet"),
        ({"exp": NOW.timestamp() + 600, "iat": NOW.timestamp() + 61}, "not valid yet"),
        ({}, "not numbers"),
        ({"exp": "never"}, "not numbers"),
        ({"exp": True}, "not numbers"),
        ({"exp": None}, "not numbers"),
    ],
)
def test_times_are_held_to(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(BadToken, match=why):
        jwt.check_times(claims, NOW)


def test_clocks_may_differ_a_little() -> None:
    at = NOW.timestamp()
    jwt.check_times({"exp": at - 59, "nbf": at + 59, "iat": at + 59}, NOW)


@pytest.mark.parametrize(
    "jwk",
    [
        {},
        {"kty": "oct", "k": "AAAA"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-1"},
        {"kty": "RSA", "n": 7, "e": None},
        {**jwt.to_jwk(KEY.public_key()), "use": "enc"},
    ],
)
def test_keys_that_cannot_sign_tokens_are_left_out(jwk: dict[str, Any]) -> None:
    assert jwt.from_jwk(jwk) is None
