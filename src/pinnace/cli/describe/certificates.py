"""Descriptions of certificate signing requests."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from cryptography import x509
from cryptography.x509.oid import NameOID

from pinnace.cli.describe.parts import Description, heading, long_time
from pinnace.cli.session import PlainCommandError
from pinnace.kinds.cells import format_duration, format_labels
from pinnace.kinds.certificates.columns import request_state
from pinnace.model.objects import Object

_SUBJECT = (
    ("Organization", NameOID.ORGANIZATION_NAME),
    ("Organizational Unit", NameOID.ORGANIZATIONAL_UNIT_NAME),
    ("Country", NameOID.COUNTRY_NAME),
    ("Locality", NameOID.LOCALITY_NAME),
    ("Province", NameOID.STATE_OR_PROVINCE_NAME),
    ("StreetAddress", NameOID.STREET_ADDRESS),
    ("PostalCode", NameOID.POSTAL_CODE),
)
_OTHER_NAMES = (
    ("DNS Names", x509.DNSName),
    ("Email Addresses", x509.RFC822Name),
    ("URIs", x509.UniformResourceIdentifier),
    ("IP Addresses", x509.IPAddress),
)


def signing_request(page: Description, obj: Object) -> None:
    metadata, spec = obj["metadata"], obj["spec"]
    request = _parse(spec["request"])
    seconds = spec.get("expirationSeconds")
    heading(page, obj, namespaced=False)
    page.pairs(
        ("Labels", format_labels(metadata.get("labels"))),
        ("Annotations", format_labels(metadata.get("annotations"))),
        ("CreationTimestamp", long_time(metadata.get("creationTimestamp"))),
        ("Requesting User", spec.get("username", "")),
        ("Signer", spec.get("signerName")),
        ("Requested Duration", None if seconds is None else format_duration(seconds)),
        ("Status", request_state(obj)),
    )
    page.line("Subject:")
    for title, kind in (("Common Name", NameOID.COMMON_NAME), ("Serial Number", NameOID.SERIAL_NUMBER)):
        page.line(f"\t{title}:\t{(_values(request.subject, kind) or [''])[-1]}")
    for title, kind in _SUBJECT:
        _write_list(page, title, _values(request.subject, kind))
    names = _other_names(request)
    if names is not None:
        page.line("Subject Alternative Names:")
        for title, form in _OTHER_NAMES:
            _write_list(page, title, map(str, names.get_values_for_type(form)))


def _parse(encoded: str) -> x509.CertificateSigningRequest:
    try:
        return x509.load_pem_x509_csr(base64.b64decode(encoded))
    except ValueError as error:
        raise PlainCommandError(f"error: Error parsing CSR: {error}") from None


def _values(name: x509.Name, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(one.value) for one in name.get_attributes_for_oid(kind)]


def _other_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _write_list(page: Description, title: str, values: Iterable[str]) -> None:
    """Write values: nothing for none, one line for one, a column for several."""
    several = list(values)
    if several:
        page.listed(title, several, indent="\t")
