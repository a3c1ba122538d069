"""Certificates for webhooks: a CA signs one server certificate, and its key is discarded.

A run makes its own, or all replicas share the one in a Secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.certificates import (
    CertificateIssuer,
    alternative_names,
    ca_builder,
    certificate_builder,
    common_name,
    key_usage,
)
from pinnace.sdk.installation.installation import ServiceName

LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=60)
_END = b"-----END CERTIFICATE-----"
_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A server certificate, its key and its CA, as PEM. The CA's key is discarded after it has signed."""

    ca: bytes
    """The CA to trust, and after a renewal also the previous one, whose certificate other replicas may still use."""
    certificate: bytes
    key: bytes

    @property
    def ends(self) -> datetime:
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    def is_due(self, now: datetime) -> bool:
        """Return whether it is time to renew it."""
        return self.ends - now <= RENEW_BEFORE

    def succeeding(self, old: ServerCertificate) -> ServerCertificate:
        """Return the same certificate, with the previous CA trusted too."""
        last = old.ca[: old.ca.index(_END) + len(_END)] + b"\n"
        return replace(self, ca=self.ca + last)


def new_certificate(names: Sequence[str], *, now: datetime, lifetime: timedelta = LIFETIME) -> ServerCertificate:
    """Return a certificate for a server with these names or addresses, and its CA."""
    # TLS uses the machine's time and renewal uses `now`, which a test may have moved: it is valid at both.
    machine = datetime.now(UTC)
    valid = (min(now, machine) - _SKEW, max(now, machine) + lifetime)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = CertificateIssuer(common_name("pinnace-webhooks"), ca_key.public_key())
    ca = ca_builder(issuer.name, ca_key.public_key(), valid=valid, path_length=0).sign(ca_key, hashes.SHA256())
    certificate = (
        certificate_builder(common_name(names[0][:64]), key.public_key(), valid=valid, issuer=issuer)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(alternative_names(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return ServerCertificate(
        ca.public_bytes(serialization.Encoding.PEM),
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


_ATTEMPTS = 5


def secret_name(service: ServiceName) -> str:
    return f"{service.name}-webhook-certificate"


async def shared_certificate(client: Client, service: ServiceName) -> ServerCertificate:
    """Return the certificate for a Service from its Secret; make a new one if it is missing, broken or due.

    The CA of the old certificate stays trusted: other replicas use it for a while.
    """
    namespace, name, _ = service
    for _ in range(_ATTEMPTS):
        secret = await client.get_or_none("v1/Secret", secret_name(service), namespace=namespace)
        known = _read(secret) if secret is not None else None
        if known is not None and not known.is_due(client.clock.now()):
            return known
        made = new_certificate([f"{name}.{namespace}.svc", f"{name}.{namespace}", name], now=client.clock.now())
        if known is not None:
            made = made.succeeding(known)
        try:
            await _write(client, secret, namespace, secret_name(service), made)
        except (errors.AlreadyExists, errors.Conflict):
            continue  # Another replica has written its certificate: use that one.
        return made
    raise RuntimeError(
        f"the Secret {namespace}/{secret_name(service)} keeps changing: stop the other process that writes it"
    )


async def _write(client: Client, secret: Object | None, namespace: str, name: str, made: ServerCertificate) -> None:
    data = {"ca.crt": made.ca, "tls.crt": made.certificate, "tls.key": made.key}
    encoded = {file: base64.b64encode(content).decode() for file, content in data.items()}
    if secret is not None:
        await client.update({**secret, "data": encoded})
        return
    metadata = {"name": name, "namespace": namespace}
    await client.create(
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": encoded}
    )


def _read(secret: Object) -> ServerCertificate | None:
    try:
        data = {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}
        certificate = ServerCertificate(data["ca.crt"], data["tls.crt"], data["tls.key"])
        certificate.ends  # noqa: B018 - raises if it is no certificate
    except (KeyError, ValueError, binascii.Error):
        return None
    return certificate
