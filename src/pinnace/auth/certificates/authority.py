"""Makes and keeps the cluster's certificates: its CAs, the server's, the administrator's, and the token signing key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_pem_x509_certificates
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pinnace.process.certificates import (
    CertificateIssuer,
    alternative_names,
    ca_builder,
    certificate_builder,
    common_name,
    key_usage,
)
from pinnace.process.private_files import write_private

CA_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(minutes=5)
"""Certificates are valid from a little earlier, for clients whose clock is late."""

FRONT_PROXY = "front-proxy-client"
"""The name of proxies that may say who is calling."""

CREDENTIALS = (
    "pki/ca.crt",
    "pki/ca.key",
    "pki/sa.key",
    "pki/front-proxy-ca.crt",
    "pki/front-proxy-ca.key",
    "token",
)
"""The files of a data directory that all servers of one cluster have in common."""
SERVER_NAMES = (
    "127.0.0.1",
    "::1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
)


class CertificateError(Exception):
    """A certificate or key on disk cannot be used. The message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def as_issuer(self) -> CertificateIssuer:
        return CertificateIssuer(self.certificate.subject, self.key.public_key())

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return private_pem(self.key)


@dataclass(frozen=True, slots=True)
class PairFiles:
    """Where a certificate and its private key are kept."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where all of a cluster's certificates are kept."""

    ca: PairFiles
    server: PairFiles
    admin: PairFiles
    token_key: Path
    """The private key that service account tokens are signed with."""
    token_public_key: Path
    front_proxy_ca: PairFiles
    """Signs the certificates of proxies, whose word on who is calling is believed."""
    front_proxy_client: PairFiles
    """The client certificate of this server towards aggregated servers."""
    client_ca_bundle: Path | None = None
    """The CAs of client certificates, if there are others than `ca`."""
    serving_ca: Path | None = None
    """The certificate by which clients trust the server, if it is not signed by `ca`."""

    @property
    def client_ca(self) -> Path:
        """The CAs whose certificates authenticate users."""
        return self.client_ca_bundle or self.ca.certificate

    @property
    def root_ca(self) -> Path:
        """The CA for clients and pods to trust."""
        return self.serving_ca or self.ca.certificate

    def trust(self) -> dict[str, str]:
        """Return the entries of extension-apiserver-authentication: the CAs and headers of callers."""
        return {
            "client-ca-file": self.client_ca.read_text(),
            "requestheader-client-ca-file": self.front_proxy_ca.certificate.read_text(),
            "requestheader-allowed-names": json.dumps([FRONT_PROXY]),
            "requestheader-username-headers": json.dumps(["X-Remote-User"]),
            "requestheader-uid-headers": json.dumps(["X-Remote-Uid"]),
            "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
            "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
        }


def new_ca(*, name: str = "pinnace", now: datetime | None = None) -> KeyPair:
    """Make a certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = ca_builder(common_name(name), key.public_key(), valid=_validity(CA_LIFETIME, now))
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def issue(
    ca: KeyPair,
    *,
    common_name: str,
    organizations: Sequence[str] = (),
    server_names: Sequence[str] = (),
    client: bool = False,
    lifetime: timedelta = LEAF_LIFETIME,
    now: datetime | None = None,
) -> KeyPair:
    """Make a certificate signed by `ca`: for a server if it has `server_names` (host names or addresses), for a client
    if `client`. It never outlives the CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    uses = [ExtendedKeyUsageOID.SERVER_AUTH] if server_names else []
    if client:
        uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    if not uses:
        raise ValueError(f"the certificate for {common_name} would be good for nothing: name servers, or client=True")
    now = now or datetime.now(UTC)
    valid = _validity(min(lifetime, ca.certificate.not_valid_after_utc - now), now)
    builder = (
        certificate_builder(subject, key.public_key(), valid=valid, issuer=ca.as_issuer)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    )
    if server_names:
        builder = builder.add_extension(alternative_names(server_names), critical=False)
    return KeyPair(builder.sign(ca.key, hashes.SHA256()), key)


def ensure_certificates(
    directory: Path, *, server_names: Sequence[str] = SERVER_NAMES, now: datetime | None = None
) -> CertificateFiles:
    """Make what is missing in `directory`, renew what expires within 30 days, and keep the rest.

    Renewing the CA renews all that it signed. The token key is never replaced: tokens in use would die with it.
    Raises CertificateError for a file that cannot be read or does not belong.
    """
    now = now or datetime.now(UTC)
    _make_private_directory(directory)
    files = CertificateFiles(
        ca=PairFiles(directory / "ca.crt", directory / "ca.key"),
        server=PairFiles(directory / "apiserver.crt", directory / "apiserver.key"),
        admin=PairFiles(directory / "admin.crt", directory / "admin.key"),
        token_key=directory / "sa.key",
        token_public_key=directory / "sa.pub",
        front_proxy_ca=PairFiles(directory / "front-proxy-ca.crt", directory / "front-proxy-ca.key"),
        front_proxy_client=PairFiles(directory / "front-proxy-client.crt", directory / "front-proxy-client.key"),
    )
    ca = _load_pair(files.ca)
    if ca is None or _expires_soon(ca, now):
        ca = new_ca(now=now)
        _write_pair(files.ca, ca)
    server = _load_pair(files.server)
    if server is None or _expires_soon(server, now) or not _signed_by(server, ca) or not _covers(server, server_names):
        server = issue(ca, common_name="kube-apiserver", server_names=server_names, now=now)
        _write_pair(files.server, server)
    admin = _load_pair(files.admin)
    if admin is None or _expires_soon(admin, now) or not _signed_by(admin, ca):
        admin = issue(ca, common_name="kubernetes-admin", organizations=("system:masters",), client=True, now=now)
        _write_pair(files.admin, admin)
    proxy_ca = _load_pair(files.front_proxy_ca)
    if proxy_ca is None or _expires_soon(proxy_ca, now):
        proxy_ca = new_ca(name="front-proxy-ca", now=now)
        _write_pair(files.front_proxy_ca, proxy_ca)
    proxy = _load_pair(files.front_proxy_client)
    if proxy is None or _expires_soon(proxy, now) or not _signed_by(proxy, proxy_ca):
        proxy = issue(proxy_ca, common_name=FRONT_PROXY, client=True, now=now)
        _write_pair(files.front_proxy_client, proxy)
    if not files.token_key.exists():
        write_private(files.token_key, private_pem(ec.generate_private_key(ec.SECP256R1())), durable=True)
    public = _public_pem(load_key(files.token_key))
    if not files.token_public_key.exists() or files.token_public_key.read_bytes() != public:
        write_private(files.token_public_key, public)
    return files


def load_pair(files: PairFiles) -> KeyPair:
    """Read a certificate and its key. Raise CertificateError if they are not there, broken, or not of one another."""
    pair = _load_pair(files)
    if pair is None:
        raise CertificateError(f"{files.certificate} and {files.key} are not there")
    return pair


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key. Raise CertificateError."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise CertificateError(
            f"{path} is not a usable private key ({error}); remove it to have it made anew"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path} is not an elliptic curve key; remove it to have it made anew")
    return key


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _make_private_directory(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)


def _validity(lifetime: timedelta, now: datetime | None) -> tuple[datetime, datetime]:
    now = now or datetime.now(UTC)
    return now - CLOCK_SKEW, now + lifetime


def _public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _load_pair(files: PairFiles) -> KeyPair | None:
    """Return the key pair on disk; None if either file is missing, since half a pair is useless."""
    if not files.certificate.exists() or not files.key.exists():
        return None
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"{files.certificate} is not a usable certificate ({error}); remove it to have it made anew"
        ) from error
    key = load_key(files.key)
    if certificate.public_key() != key.public_key():
        raise CertificateError(f"{files.key} is not the key of {files.certificate}; remove both to have them made anew")
    return KeyPair(certificate, key)


def _write_pair(files: PairFiles, pair: KeyPair) -> None:
    # Without its certificate a key is taken as missing: whenever this is interrupted, the pair is made anew.
    files.certificate.unlink(missing_ok=True)
    write_private(files.key, pair.key_pem)
    write_private(files.certificate, pair.certificate_pem)


def _expires_soon(pair: KeyPair, now: datetime) -> bool:
    return pair.certificate.not_valid_after_utc - now < RENEW_BEFORE


def _signed_by(pair: KeyPair, ca: KeyPair) -> bool:
    try:
        pair.certificate.verify_directly_issued_by(ca.certificate)
    except Exception:  # Any failure, of whichever kind, means that it must be issued again.
        return False
    return True


def _covers(pair: KeyPair, names: Sequence[str]) -> bool:
    try:
        extension = pair.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return False
    return set(extension.value) >= set(alternative_names(names))


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Certificates and keys to use instead of the cluster's own."""

    certificate: Path | None = None
    """The serving certificate, with its chain."""
    key: Path | None = None
    client_ca: Path | None = None
    """CAs whose certificates authenticate users, besides the cluster's own."""
    signing_key: Path | None = None
    """The private key that signs service account tokens."""


def use_key_files(files: CertificateFiles, given: KeyFiles, directory: Path) -> CertificateFiles:
    """Return the files with the given ones in their places. Raise CertificateError for half a pair or a bad CA.

    The cluster's own CA still authenticates users: the administrator of the kubeconfig has a certificate of it.
    """
    if (given.certificate is None) != (given.key is None):
        raise CertificateError(
            "a serving certificate needs its key: give both --tls-cert-file and --tls-private-key-file"
        )
    if given.certificate is not None and given.key is not None:
        _check_readable(given.certificate)
        _check_readable(given.key)
        files = replace(files, server=PairFiles(given.certificate, given.key), serving_ca=given.certificate)
    if given.signing_key is not None:
        files = replace(files, token_key=given.signing_key)
    if given.client_ca is not None:
        bundle = directory / "client-ca-bundle.crt"
        bundle.write_bytes(_read_certificates(given.client_ca) + b"\n" + files.ca.certificate.read_bytes())
        files = replace(files, client_ca_bundle=bundle)
    return files


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror})") from None


def _read_certificates(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        load_pem_x509_certificates(data)
    except (OSError, ValueError) as error:
        raise CertificateError(f"{path} is not a file of CA certificates ({error}); expected PEM") from None
    return data
