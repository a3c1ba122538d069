"""Builds certificates with the key identifiers that strict verifiers (Python since 3.13) require."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes, CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class CertificateIssuer:
    """The name and the public key of the authority that signs a certificate."""

    name: x509.Name
    public_key: CertificateIssuerPublicKeyTypes


def certificate_builder(
    subject: x509.Name,
    public_key: CertificatePublicKeyTypes,
    *,
    valid: tuple[datetime, datetime],
    issuer: CertificateIssuer,
) -> x509.CertificateBuilder:
    """Return a builder for the certificate of a server or client, with the identifier of the key that signs it."""
    builder = _builder(subject, public_key, valid=valid, issuer=issuer)
    return builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)


def ca_builder(
    subject: x509.Name,
    public_key: CertificateIssuerPublicKeyTypes,
    *,
    valid: tuple[datetime, datetime],
    issuer: CertificateIssuer | None = None,
    path_length: int | None = None,
) -> x509.CertificateBuilder:
    """Return a builder for the certificate of an authority, which signs itself if no `issuer` is given."""
    builder = _builder(subject, public_key, valid=valid, issuer=issuer or CertificateIssuer(subject, public_key))
    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the use of a key: signatures, and those of certificates for an authority."""
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def common_name(name: str) -> x509.Name:
    """Return a subject that has only a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def alternative_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return the extension that lists the host names and addresses of a server."""
    return x509.SubjectAlternativeName([_general_name(name) for name in names])


def _builder(
    subject: x509.Name,
    public_key: CertificatePublicKeyTypes,
    *,
    valid: tuple[datetime, datetime],
    issuer: CertificateIssuer,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key), critical=False)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
