"""Says why the certificate of another server was refused, in the words of Go, which people search for."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from datetime import datetime
from typing import TYPE_CHECKING

from pinnace.model.clock import SystemClock
from pinnace.schema.golang.text import quote

if TYPE_CHECKING:
    from cryptography import x509

_SECONDS = 2.0
_MOST_NAMES = 100
_DATES = frozenset((9, 10))
_PURPOSE = 26
_UNTRUSTED = frozenset((2, 7, 18, 19, 20, 21, 24, 32, 79))
_CANNOT_SIGN = "x509: invalid signature: parent certificate cannot sign this kind of certificate"


async def explain_certificate_error(
    error: ssl.SSLCertVerificationError, host: str, port: int, *, name: str, bundle: str
) -> str:
    """Return the reason why the certificate of the server at host and port is not one of `name`.

    OpenSSL does not give out a certificate that it refuses, so it is read by a second connection. The decision has
    been made before and stays.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            der = await _read_certificate(host, port, name)
    except (OSError, TimeoutError, ValueError):  # Python takes not every text as the name of a server.
        return f"tls: failed to verify certificate: x509: {_describe_code(error)}"
    return f"tls: failed to verify certificate: x509: {_describe(error, der, name, bundle)}"


async def _read_certificate(host: str, port: int, name: str) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        return der
    finally:
        writer.transport.abort()


def _describe(error: ssl.SSLCertVerificationError, der: bytes, name: str, bundle: str) -> str:
    """Return the first reason in the order in which Go checks: dates, names, chain, usage."""
    from cryptography import x509  # noqa: PLC0415 - slow to load, and most clusters need it never.

    try:
        leaf = x509.load_der_x509_certificate(der)
        trusted = x509.load_pem_x509_certificates(bundle.encode()) if bundle else []
        now = SystemClock().now()  # OpenSSL has compared with this clock, too.
        if reason := _describe_dates(leaf, now) or _describe_names(leaf, name):
            return reason
        parents = [one for one in trusted if one.subject == leaf.issuer]
        if error.verify_code in _DATES and (
            reason := next(filter(None, (_describe_dates(p, now) for p in parents)), "")
        ):
            return reason
        return _describe_code(error) + (_describe_parents(leaf, parents) if error.verify_code in _UNTRUSTED else "")
    except ValueError:
        return _describe_code(error)


def _describe_code(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _UNTRUSTED:
        return "certificate signed by unknown authority"
    if error.verify_code == _PURPOSE:
        return "certificate specifies an incompatible key usage"
    return error.verify_message


def _describe_dates(certificate: x509.Certificate, now: datetime) -> str:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    compared = f"before {first:%Y-%m-%dT%H:%M:%SZ}" if now < first else f"after {last:%Y-%m-%dT%H:%M:%SZ}"
    if first <= now <= last:
        return ""
    return f"certificate has expired or is not yet valid: current time {now:%Y-%m-%dT%H:%M:%SZ} is {compared}"


def _describe_names(leaf: x509.Certificate, name: str) -> str:
    """Return why the certificate does not have this name; empty if it has."""
    from cryptography import x509  # noqa: PLC0415 - as above.

    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    common = [str(one.value) for one in leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    if names is None and common and _is_name(common[-1], name):
        return "certificate relies on legacy Common Name field, use SANs instead"
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        valid = names.get_values_for_type(x509.DNSName) if names is not None else []
        if any(_is_name(one, name) for one in valid):
            return ""
        return _describe_mismatch(valid, name, "names")
    addresses = names.get_values_for_type(x509.IPAddress) if names is not None else []
    if address in addresses:
        return ""
    if not addresses:
        return f"cannot validate certificate for {name} because it doesn't contain any IP SANs"
    return _describe_mismatch([str(one) for one in addresses], name, "IP SANs")


def _describe_mismatch(valid: list[str], name: str, noun: str) -> str:
    if len(valid) >= _MOST_NAMES:
        return f"certificate is valid for {len(valid)} {noun}, but none matched {name}"
    if not valid:
        return f"certificate is not valid for any names, but wanted to match {name}"
    return f"certificate is valid for {', '.join(valid)}, not {name}"


def _is_name(pattern: str, name: str) -> bool:
    """Return whether a name of a certificate, in which the first label may be `*`, is this one."""
    wanted, found = name.lower().rstrip(".").split("."), pattern.lower().split(".")
    if found[0] == "*" and len(found) > 1:
        return wanted[1:] == found[1:]
    return wanted == found


def _describe_parents(leaf: x509.Certificate, parents: list[x509.Certificate]) -> str:
    """Return why a trusted certificate with the name of the issuer did not sign the leaf; empty if there is none."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - as above.

    for parent in parents:
        if not _may_sign(parent):
            return _hint(_CANNOT_SIGN, parent)
        try:
            leaf.verify_directly_issued_by(parent)
        except (InvalidSignature, TypeError):
            return _hint(_signature_error(parent), parent)
    return ""


def _may_sign(parent: x509.Certificate) -> bool:
    from cryptography import x509  # noqa: PLC0415 - as above.

    try:
        return parent.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _signature_error(parent: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415 - as above.

    key = parent.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return "crypto/rsa: verification error"
    return f"x509: {'ECDSA' if isinstance(key, ec.EllipticCurvePublicKey) else 'Ed25519'} verification failure"


def _hint(reason: str, parent: x509.Certificate) -> str:
    from cryptography.x509 import NameOID  # noqa: PLC0415 - as above.

    found = [
        *parent.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[-1:],
        *parent.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[:1],
    ]
    called = str(found[0].value) if found else f"serial:{parent.serial_number}"
    return (
        f" (possibly because of {quote(reason)} while trying to verify candidate authority certificate {quote(called)})"
    )
