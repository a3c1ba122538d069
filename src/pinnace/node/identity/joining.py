"""How a node comes to its own credentials: with a bootstrap token, or with a kubeconfig that may request them."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from pinnace.client.connect import connect
from pinnace.client.credentials import Fixed, Identity
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access, find_access
from pinnace.model.bootstrap_tokens import CLUSTER_INFO, KUBECONFIG, SIGNATURE, detached_signature
from pinnace.node.identity.certificates import (
    CLIENT_FILE,
    CertificateFile,
    NodeCertificate,
    load,
    request_client_certificate,
    save,
)
from pinnace.process.clock import SystemClock
from pinnace.process.private_files import write_private

_SIGNING_SECONDS = 10.0
_POLL_SECONDS = 0.2
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")


class JoinFailed(Exception):
    """The node cannot join the cluster. The message names the cause and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapToken:
    """The address of a cluster, a token of it, and what its certificate authority is known by."""

    server: str
    token: str
    ca: bytes = b""
    """The CA as PEM; without it the CA comes from kube-public/cluster-info, and must have one of the hashes."""
    ca_hashes: Sequence[str] = ()
    """sha256:HEX of the public key of the CA, as kubeadm prints it."""


async def access_of_token(bootstrap: BootstrapToken) -> Access:
    """Return the access of a bootstrap token to a cluster whose CA is verified. Raise JoinFailed or ConnectionLost."""
    match = _TOKEN.fullmatch(bootstrap.token)
    if match is None:
        raise JoinFailed("the token must have the form abcdef.0123456789abcdef; create one: pinnace token create")
    ca = bootstrap.ca
    if not ca:
        if not bootstrap.ca_hashes:
            raise JoinFailed(
                "a token needs --discovery-token-ca-cert-hash or --certificate-authority, so that the node knows its "
                "server; pinnace token create --print-join-command prints the hash"
            )
        ca = await _discover(bootstrap, token=match[1], secret=match[2])
    identity = Identity(authorization=f"Bearer {bootstrap.token}")
    return Access(server=bootstrap.server.rstrip("/"), ca=ca, credentials=Fixed(identity))


async def node_access(access: Access, node: str, directory: Path) -> Access:
    """Return the access of the node itself: with its certificate in the directory, requested if it has none.

    `access` is used for the request alone. Raise CertificateRefused, ApiError or ConnectionLost.
    """
    path = directory / CLIENT_FILE
    if not _is_usable(path, node, access.ca):
        async with connect(access, field_manager="kubelet") as client:
            save(path, await request_client_certificate(client, node))
    return replace(access, credentials=CertificateFile(path), headers=())


async def bootstrap_node(bootstrap: Path, kubeconfig: Path, node: str, directory: Path) -> Access:
    """Return the access of the node as kubelet finds it with --bootstrap-kubeconfig and --kubeconfig.

    The kubeconfig of the node is used if it is there and the certificate is still good. Otherwise the user of the
    bootstrap kubeconfig requests a certificate, and the kubeconfig of the node is written. It refers to the
    certificate's file, which is renewed. Raise as `node_access` does, or KubeconfigError.
    """
    if kubeconfig.exists() and (directory / CLIENT_FILE).exists():
        known = find_access(path=kubeconfig)
        if _is_usable(directory / CLIENT_FILE, node, known.ca):
            return await node_access(known, node, directory)
    access = await node_access(find_access(path=bootstrap), node, directory)
    pair = str(directory / CLIENT_FILE)
    cluster = {"server": access.server, "certificate-authority-data": b64encode(access.ca).decode()}
    context = {"cluster": "default", "user": "default"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": "default", "user": {"client-certificate": pair, "client-key": pair}}],
        "contexts": [{"name": "default", "context": context}],
        "current-context": "default",
    }
    kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    write_private(kubeconfig, yaml.safe_dump(content, sort_keys=False).encode())
    return access


def hash_of(ca: bytes) -> str:
    """The hash of the public key of a CA (PEM), as kubeadm prints it."""
    return _hash(x509.load_pem_x509_certificate(ca))


def _is_usable(path: Path, node: str, ca: bytes) -> bool:
    try:
        pair: NodeCertificate = load(path)
        return pair.is_usable(node, ca, SystemClock().now())
    except (OSError, ValueError):
        return False


async def _discover(bootstrap: BootstrapToken, *, token: str, secret: str) -> bytes:
    """Read the CA from the ConfigMap that the token has signed, over a connection that is not trusted yet."""
    data = await _signed_info(bootstrap.server.rstrip("/"), f"{SIGNATURE}{token}")
    content = str(data.get(KUBECONFIG) or "")
    signature = str(data.get(f"{SIGNATURE}{token}") or "")
    if not hmac.compare_digest(signature.encode(), detached_signature(content, token, secret).encode()):
        raise JoinFailed(f"the token {token} has not signed {CLUSTER_INFO}: it is wrong or has expired; create another")
    ca = _ca_of(content)
    hashes = {_hash(certificate) for certificate in x509.load_pem_x509_certificates(ca)}
    if not hashes & {digest.lower() for digest in bootstrap.ca_hashes}:
        raise JoinFailed(
            f"the CA of {bootstrap.server} has the hash {', '.join(sorted(hashes))}, which is not expected"
        )
    return ca


async def _signed_info(server: str, signature: str) -> dict[str, str]:
    """Return the data of cluster-info. Wait a little for the signature: the cluster signs after the token is made."""
    target = f"/api/v1/namespaces/{CLUSTER_INFO.namespace}/configmaps/{CLUSTER_INFO.name}"
    transport = HttpTransport(Access(server=server, insecure=True))
    clock = SystemClock()
    give_up = clock.monotonic() + _SIGNING_SECONDS
    try:
        while True:
            answer = await transport.request("GET", target, b"", {"accept": "application/json"})
            data: dict[str, str] = (msgspec.json.decode(answer.body).get("data") or {}) if answer.status == 200 else {}
            if signature in data or clock.monotonic() >= give_up:
                break
            await clock.sleep(_POLL_SECONDS)
    finally:
        await transport.close()
    if answer.status != 200:
        raise JoinFailed(
            f"{CLUSTER_INFO} of {server} cannot be read (status {answer.status}); pinnace token create makes it"
        )
    return data


def _ca_of(kubeconfig: str) -> bytes:
    try:
        cluster = yaml.load(kubeconfig, yaml.CSafeLoader)["clusters"][0]["cluster"]
        return b64decode(cluster["certificate-authority-data"])
    except (yaml.YAMLError, LookupError, TypeError, ValueError) as error:
        raise JoinFailed(f"{CLUSTER_INFO} has no certificate authority: {error}") from error


def _hash(certificate: x509.Certificate) -> str:
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{hashlib.sha256(key).hexdigest()}"
