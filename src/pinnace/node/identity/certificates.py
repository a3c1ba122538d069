"""The certificates of a node: their requests to the cluster, their file, and their renewal.

A node is the user system:node:NAME in the group system:nodes. Its certificate and key are in one file, which is
replaced when a new certificate is issued.
"""

from __future__ import annotations

import asyncio
import logging
import random
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pinnace.client.client import Client
from pinnace.client.credentials import Identity, NoCredentials
from pinnace.client.following import Event
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.typed_objects import CertificateSigningRequest
from pinnace.process.certificates import CertificateIssuer, alternative_names, certificate_builder, common_name
from pinnace.process.private_files import write_private

CLIENT_FILE = "kubelet-client-current.pem"
SERVING_FILE = "kubelet-server-current.pem"
_REQUEST = "certificates.k8s.io/v1/CertificateSigningRequest"
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
_SERVING_SIGNER = "kubernetes.io/kubelet-serving"
_APPROVAL_SECONDS = 900.0
_RETRY_SECONDS = 60.0
_log = logging.getLogger(__name__)


class CertificateRefused(Exception):
    """The cluster has denied a certificate, or has not issued it in time."""


@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """A certificate with its key, both as PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)

    def is_usable(self, node: str, ca: bytes, now: datetime) -> bool:
        """Return whether the certificate belongs to this node, is valid now and is signed by this CA, if known."""
        parsed = self.parsed
        names = [str(attribute.value) for attribute in parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if names != [user_of(node)] or not parsed.not_valid_before_utc <= now < parsed.not_valid_after_utc:
            return False
        return not ca or any(_is_signed_by(parsed, authority) for authority in x509.load_pem_x509_certificates(ca))

    def renewal_time(self, share: float) -> datetime:
        """Return the time after which a share of the lifetime has passed."""
        parsed = self.parsed
        return parsed.not_valid_before_utc + (parsed.not_valid_after_utc - parsed.not_valid_before_utc) * share


class CertificateFile:
    """A `CredentialSource`: the client certificate in a file, read again when it is replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = -1
        self._known = Identity()

    async def identity(self, *, afresh: bool = False) -> Identity:
        try:
            inode = self.path.stat().st_ino
            if afresh or inode != self._inode:
                pair = load(self.path)
                self._known, self._inode = Identity(certificate=pair.certificate, key=pair.key), inode
        except (OSError, ValueError) as error:
            if self._inode < 0:
                raise NoCredentials(f"the certificate {self.path} of the node cannot be read: {error}") from error
        return self._known


def user_of(node: str) -> str:
    return f"system:node:{node}"


def load(path: Path) -> NodeCertificate:
    """Read a certificate and its key from one file. Raise OSError or ValueError."""
    content = path.read_bytes()
    key = serialization.load_pem_private_key(content, password=None)
    certificate = x509.load_pem_x509_certificate(content)
    if key.public_key() != certificate.public_key():
        raise ValueError("the key does not belong to the certificate")
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return NodeCertificate(certificate.public_bytes(serialization.Encoding.PEM), text)


def save(path: Path, pair: NodeCertificate) -> None:
    """Replace the file at once. Only its owner can read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, pair.certificate + pair.key)


async def request_client_certificate(client: Client, node: str) -> NodeCertificate:
    """Ask the cluster for the certificate of a node, and wait until it is approved and signed.

    Raise CertificateRefused if it is denied or takes too long.
    """
    return await _request(client, node, _CLIENT_SIGNER, "client auth", ())


async def request_serving_certificate(client: Client, node: str, names: Sequence[str]) -> NodeCertificate:
    """Ask for the certificate of the node's own server. An administrator approves it, as for every kubelet."""
    return await _request(client, node, _SERVING_SIGNER, "server auth", names)


def self_signed_certificate(node: str, names: Sequence[str], now: datetime) -> NodeCertificate:
    """Make the certificate of the node's own server, as kubelets do without an approved one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject, valid = common_name(node), (now - timedelta(hours=1), now + timedelta(days=365))
    builder = certificate_builder(
        subject, key.public_key(), valid=valid, issuer=CertificateIssuer(subject, key.public_key())
    )
    certificate = builder.add_extension(alternative_names(names), critical=False).sign(key, hashes.SHA256())
    return NodeCertificate(certificate.public_bytes(serialization.Encoding.PEM), _private_text(key))


async def _request(client: Client, node: str, signer: str, usage: str, names: Sequence[str]) -> NodeCertificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, user_of(node)),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(alternative_names(names), critical=False)
    encoded = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    request = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": b64encode(encoded).decode(),
            "signerName": signer,
            "usages": ["digital signature", usage],
        },
    }
    made = await client.create(cast(CertificateSigningRequest, request))
    certificate = await _await_certificate(client, made["metadata"]["name"])
    return NodeCertificate(certificate, _private_text(key))


def _private_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


async def _await_certificate(client: Client, name: str) -> bytes:
    _log.info("waiting for certificate request %s; if it stays pending: kubectl certificate approve %s", name, name)
    try:
        async with (
            asyncio.timeout(_APPROVAL_SECONDS),
            aclosing(client.follow(_REQUEST, fields=f"metadata.name={name}")) as changes,
        ):
            async for change in changes:
                if isinstance(change, Event) and change.type in ("ADDED", "MODIFIED"):
                    certificate = _certificate_of(cast(CertificateSigningRequest, change.snapshot.object), name)
                    if certificate:
                        return certificate
    except TimeoutError:
        pass
    raise CertificateRefused(
        f"certificate request {name} was not approved and signed within {_APPROVAL_SECONDS:g} s; "
        f"approve it (kubectl certificate approve {name}) and start the node again"
    )


def _certificate_of(request: CertificateSigningRequest, name: str) -> bytes:
    status = request.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") in ("Denied", "Failed"):
            why = condition.get("message") or condition.get("reason") or "no reason given"
            raise CertificateRefused(f"certificate request {name}: {condition['type']}: {why}")
    return b64decode(status.get("certificate") or "")


class CertificateRenewal:
    """Replaces the client certificate of a node before it expires, as kubelets do."""

    def __init__(self, client: Client, node: str, path: Path, *, share: float | None = None) -> None:
        """`share` of its lifetime is the age of a certificate that is due; without it not the same on all nodes."""
        self._client = client
        self._node = node
        self._path = path
        self._share = 0.7 + 0.2 * random.random() if share is None else share

    async def run(self) -> None:
        """Renew the certificate whenever it is due, until cancelled."""
        clock = self._client.clock
        while True:
            due = load(self._path).renewal_time(self._share)
            await clock.sleep(max(0.0, (due - clock.now()) / timedelta(seconds=1)))
            try:
                save(self._path, await request_client_certificate(self._client, self._node))
            except (CertificateRefused, errors.ApiError, ConnectionLost) as error:
                _log.warning("the certificate of the node was not renewed: %s", error)
                await clock.sleep(_RETRY_SECONDS)


def _is_signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
