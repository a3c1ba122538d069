"""Signs, reads and verifies JSON web tokens. The algorithm is tied to the kind of the key, never to the token.

`none` and all symmetric algorithms do not exist here, so that a public key cannot serve as a shared secret.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from pinnace.auth.authentication.authenticators import BadToken
from pinnace.auth.certificates.authority import CertificateError

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
Claims = dict[str, Any]

LEEWAY_SECONDS = 60
"""Clocks differ; Kubernetes forgives as much."""
_LONGEST = 64 * 1024
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_HASHES: dict[str, type[hashes.SHA256 | hashes.SHA384 | hashes.SHA512]] = {
    "256": hashes.SHA256,
    "384": hashes.SHA384,
    "512": hashes.SHA512,
}
_CURVES: dict[str, tuple[type[ec.EllipticCurve], str, int]] = {
    "ES256": (ec.SECP256R1, "P-256", 32),
    "ES384": (ec.SECP384R1, "P-384", 48),
    "ES512": (ec.SECP521R1, "P-521", 66),
}


@dataclass(frozen=True, slots=True)
class Token:
    """A parsed token. Its signature is not checked yet: see `verify`."""

    header: Claims
    claims: Claims
    signed: bytes
    signature: bytes


def key_id(key: PublicKey) -> str:
    """Return the name of a key: its hash, as Kubernetes makes it."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _encode(hashlib.sha256(der).digest())


def sign(claims: Claims, key: SigningKey) -> str:
    """Return a signed token: RS256 for an RSA key; ES256, ES384 or ES512 by the curve of the others."""
    algorithm = algorithm_of(key.public_key())
    header = {"alg": algorithm, "kid": key_id(key.public_key())}
    signed = f"{_encode(orjson.dumps(header))}.{_encode(orjson.dumps(claims))}"
    if isinstance(key, rsa.RSAPrivateKey):
        return f"{signed}.{_encode(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
    size = _CURVES[algorithm][2]
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(_HASHES[algorithm[2:]]())))
    return f"{signed}.{_encode(r.to_bytes(size, 'big') + s.to_bytes(size, 'big'))}"


def algorithm_of(key: PublicKey) -> str:
    """Return the algorithm that Kubernetes signs with for this kind of key. Raise ValueError for other kinds."""
    if isinstance(key, rsa.RSAPublicKey):
        return "RS256"
    if isinstance(key, ec.EllipticCurvePublicKey):
        for name, (curve, _, _) in _CURVES.items():
            if isinstance(key.curve, curve):
                return name
    raise ValueError("expected an RSA key, or an EC key on the curve P-256, P-384 or P-521")


def read(text: str) -> Token | None:
    """Return the parts of a token; None if it is not a JSON web token."""
    parts = text.split(".")
    if len(parts) != 3 or len(text) > _LONGEST:
        return None
    try:
        header, claims, signature = (_decode(part) for part in parts)
        head, body = orjson.loads(header), orjson.loads(claims)
    except ValueError:
        return None
    if not isinstance(head, dict) or not isinstance(body, dict):
        return None
    return Token(head, body, f"{parts[0]}.{parts[1]}".encode(), signature)


def verify(token: Token, keys: Mapping[str, PublicKey], *, algorithms: frozenset[str] | None = None) -> None:
    """Check that one of the keys signed the token, with one of `algorithms` that it has. Raise BadToken."""
    name = token.header.get("alg")
    if not isinstance(name, str) or (algorithms is not None and name not in algorithms):
        raise BadToken("the token's signing algorithm is not allowed")
    if token.header.get("crit"):
        raise BadToken("the token asks for extensions that are not known here")
    wanted = token.header.get("kid")
    candidates = [keys[wanted]] if isinstance(wanted, str) and wanted in keys else list(keys.values())
    if not any(_signed_by(key, name, token) for key in candidates):
        raise BadToken("the token's signature is not valid")


def check_times(claims: Claims, now: datetime, *, grace_seconds: int = LEEWAY_SECONDS) -> None:
    """Raise BadToken for a token that expired `grace_seconds` ago, has no expiry, or is not valid yet."""
    seconds = now.timestamp()
    expires, begins, issued = claims.get("exp"), claims.get("nbf", 0), claims.get("iat", 0)
    if any(isinstance(moment, bool) or not isinstance(moment, int | float) for moment in (expires, begins, issued)):
        raise BadToken("the token's times are not numbers")
    assert isinstance(expires, int | float)
    if seconds > expires + grace_seconds:
        raise BadToken("the token has expired")
    if seconds < begins - LEEWAY_SECONDS or seconds < issued - LEEWAY_SECONDS:
        raise BadToken("the token is not valid yet")


def audiences_of(claims: Claims) -> tuple[str, ...]:
    given = claims.get("aud")
    if isinstance(given, str):
        return (given,)
    return tuple(audience for audience in given if isinstance(audience, str)) if isinstance(given, list) else ()


def to_jwk(key: PublicKey) -> Claims:
    """Return the public key as a JWK, with which others verify tokens. Raise ValueError as `algorithm_of` does."""
    algorithm = algorithm_of(key)
    if isinstance(key, rsa.RSAPublicKey):
        modulus, exponent = key.public_numbers().n, key.public_numbers().e
        shape = {"kty": "RSA", "n": _encode(_bytes_of(modulus)), "e": _encode(_bytes_of(exponent))}
        return {"use": "sig", "kid": key_id(key), "alg": algorithm, **shape}
    assert isinstance(key, ec.EllipticCurvePublicKey)
    numbers, (_, curve, size) = key.public_numbers(), _CURVES[algorithm]
    return {
        "use": "sig",
        "kty": "EC",
        "kid": key_id(key),
        "crv": curve,
        "alg": algorithm,
        "x": _encode(numbers.x.to_bytes(size, "big")),
        "y": _encode(numbers.y.to_bytes(size, "big")),
    }


def from_jwk(jwk: Claims) -> PublicKey | None:
    """Return the key of a JWK; None for an unsupported type, or for another use."""
    if jwk.get("use") not in (None, "sig"):
        return None
    try:
        match jwk.get("kty"):
            case "RSA":
                key = rsa.RSAPublicNumbers(_number(jwk["e"]), _number(jwk["n"])).public_key()
                return key if key.key_size >= 2048 else None
            case "EC":
                curve = next((curve for curve, name, _ in _CURVES.values() if name == jwk.get("crv")), None)
                if curve is None:
                    return None
                return ec.EllipticCurvePublicNumbers(_number(jwk["x"]), _number(jwk["y"]), curve()).public_key()
            case "OKP" if jwk.get("crv") == "Ed25519":
                return ed25519.Ed25519PublicKey.from_public_bytes(_decode(jwk["x"]))
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    return None


def _signed_by(key: PublicKey, algorithm: str, token: Token) -> bool:
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            return _signed_on_curve(key, algorithm, token)
        if isinstance(key, ed25519.Ed25519PublicKey):
            if algorithm != "EdDSA":
                return False
            key.verify(token.signature, token.signed)
            return True
        kind = _HASHES.get(algorithm[2:])
        if kind is None or algorithm[:2] not in ("RS", "PS"):
            return False
        if algorithm[:2] == "RS":
            key.verify(token.signature, token.signed, padding.PKCS1v15(), kind())
        else:
            pss = padding.PSS(padding.MGF1(kind()), padding.PSS.DIGEST_LENGTH)
            key.verify(token.signature, token.signed, pss, kind())
    except InvalidSignature:
        return False
    return True


def _signed_on_curve(key: ec.EllipticCurvePublicKey, algorithm: str, token: Token) -> bool:
    if algorithm not in _CURVES:
        return False
    curve, _, size = _CURVES[algorithm]
    if not isinstance(key.curve, curve) or len(token.signature) != 2 * size:
        return False
    r, s = int.from_bytes(token.signature[:size], "big"), int.from_bytes(token.signature[size:], "big")
    key.verify(encode_dss_signature(r, s), token.signed, ec.ECDSA(_HASHES[algorithm[2:]]()))
    return True


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Decode URL-safe base64 without padding. Raise ValueError for anything else, which the library would skip."""
    data = text.encode("ascii")
    if data.translate(None, _BASE64):
        raise ValueError("not base64")
    return urlsafe_b64decode(data + b"=" * (-len(data) % 4))


def _bytes_of(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _number(text: str) -> int:
    return int.from_bytes(_decode(text), "big")


_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----.*?-----END \1-----", re.DOTALL)
_EXPECTED = "expected an RSA key, or an EC key on the curve P-256, P-384 or P-521, as PEM"


def load_signing_key(path: Path) -> SigningKey:
    """Read the private key that signs tokens. Raise CertificateError."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            algorithm_of(key.public_key())
            return key
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"{path} is not a usable signing key ({error}); {_EXPECTED}") from error
    raise CertificateError(f"{path} is not a usable signing key; {_EXPECTED}")


def load_public_keys(path: Path) -> list[PublicKey]:
    """Read keys that verify tokens: public keys, certificates, or private keys. Raise CertificateError."""
    try:
        data = path.read_bytes()
        keys = [_public_key(match.group(1), match.group(0)) for match in _BLOCK.finditer(data)]
        for key in keys:
            algorithm_of(key)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"{path} has no usable public key ({error}); {_EXPECTED}, or a certificate") from error
    if not keys:
        raise CertificateError(f"{path} has no usable public key; {_EXPECTED}, or a certificate")
    return keys


def _public_key(label: bytes, block: bytes) -> PublicKey:
    key: object
    if label == b"CERTIFICATE":
        key = x509.load_pem_x509_certificate(block).public_key()
    elif label.endswith(b"PRIVATE KEY"):
        key = serialization.load_pem_private_key(block, password=None).public_key()
    else:
        key = serialization.load_pem_public_key(block)
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise ValueError(f"{label.decode()} holds another kind of key")
    return key
