"""Signs what certificate requests ask for, in the name of the cluster's certificate authority."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pinnace.auth.certificates.authority import CLOCK_SKEW, CertificateError, KeyPair
from pinnace.process.certificates import certificate_builder
from pinnace.process.clock import Clock

SHORT = timedelta(hours=8)
"""Certificates with shorter lifetimes are not backdated at the cost of their end."""

_SUBJECT = (
    NameOID.COUNTRY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.POSTAL_CODE,
    NameOID.COMMON_NAME,
    NameOID.SERIAL_NUMBER,
)
_SINGLE = frozenset((NameOID.COMMON_NAME, NameOID.SERIAL_NUMBER))
_ALTERNATIVES = (x509.DNSName, x509.RFC822Name, x509.IPAddress, x509.UniformResourceIdentifier)

_KEY_USES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED_USES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": x509.ObjectIdentifier("2.16.840.1.113730.4.1"),
}


class RequestSigner:
    """Holds the authority's key, so that those who decide what is signed need not."""

    def __init__(self, authority: KeyPair, clock: Clock) -> None:
        self._authority = authority
        self._clock = clock

    def sign(self, request: bytes, *, usages: Sequence[str], lifetime: timedelta) -> bytes:
        """Return the certificate (PEM) for a request (DER), for `usages` only, and never for signing others.

        Only subject and names are taken from the request. Raise ValueError if it cannot be signed, and CertificateError
        if the authority can no longer sign.
        """
        csr = x509.load_der_x509_csr(request)
        if not csr.is_signature_valid:
            raise ValueError("the request is not signed by the key that it is for")
        now, end = self._clock.now().replace(microsecond=0), self._authority.certificate.not_valid_after_utc
        if now >= end:
            raise CertificateError(
                f"the certificate authority has expired at {end.isoformat()}; start anew to renew it"
            )
        ends = now + lifetime if lifetime < SHORT else now + lifetime - CLOCK_SKEW
        subject = _subject(csr.subject)
        valid = (now - CLOCK_SKEW, min(ends, end))
        builder = certificate_builder(subject, csr.public_key(), valid=valid, issuer=self._authority.as_issuer)
        for extension, is_critical in _extensions(csr, usages, has_subject=bool(list(subject))):
            builder = builder.add_extension(extension, critical=is_critical)
        signed = builder.sign(self._authority.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


def _subject(name: x509.Name) -> x509.Name:
    """Return the subject with the supported attributes in the usual order. Of several common names the last counts."""
    parts: list[x509.NameAttribute[str | bytes]] = []
    for kind in _SUBJECT:
        attributes = name.get_attributes_for_oid(kind)
        parts += attributes[-1:] if kind in _SINGLE else attributes
    return x509.Name(parts)


def _extensions(
    csr: x509.CertificateSigningRequest, usages: Sequence[str], *, has_subject: bool
) -> list[tuple[x509.ExtensionType, bool]]:
    extensions: list[tuple[x509.ExtensionType, bool]] = []
    uses = {_KEY_USES[usage] for usage in usages if usage in _KEY_USES}
    if "key_agreement" not in uses:
        uses -= {"encipher_only", "decipher_only"}  # They say how keys are agreed on, and else nothing.
    if uses:
        extensions.append((x509.KeyUsage(**{name: name in uses for name in _KEY_USES.values()}), True))
    extended = dict.fromkeys(_EXTENDED_USES[usage] for usage in usages if usage in _EXTENDED_USES)
    if extended:
        extensions.append((x509.ExtendedKeyUsage(list(extended)), False))
    try:
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return extensions
    kept = [name for name in names if isinstance(name, _ALTERNATIVES)]
    if kept:
        extensions.append((x509.SubjectAlternativeName(kept), not has_subject))
    return extensions
