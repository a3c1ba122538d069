"""Reads the keys of service account tokens from files, in every format that kube-apiserver accepts."""

from __future__ import annotations

import re
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pinnace.auth.authentication.jwt import PublicKey, SigningKey, algorithm_of
from pinnace.auth.certificates.authority import CertificateError

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
        found = [_public_key(match.group(1), match.group(0)) for match in _BLOCK.finditer(data)]
        for key in found:
            algorithm_of(key)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"{path} has no usable public key ({error}); {_EXPECTED}, or a certificate") from error
    if not found:
        raise CertificateError(f"{path} has no usable public key; {_EXPECTED}, or a certificate")
    return found


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
