"""Bootstrap tokens: the names of their objects, and the signature by which a machine that joins trusts the cluster."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode

from pinnace.model.objects import Key

TYPE = "bootstrap.kubernetes.io/token"
NAMESPACE, PREFIX = "kube-system", "bootstrap-token-"
CLUSTER_INFO = Key("kube-public", "cluster-info")
KUBECONFIG = "kubeconfig"
SIGNATURE = "jws-kubeconfig-"


def detached_signature(content: str, token: str, secret: str) -> str:
    """Return the JWS of a text, signed by a token, without the text itself (RFC 7515, appendix F)."""
    header = _base64(json.dumps({"alg": "HS256", "kid": token}, separators=(",", ":")).encode())
    signed = b"%b.%b" % (header, _base64(content.encode()))
    signature = _base64(hmac.new(secret.encode(), signed, hashlib.sha256).digest())
    return f"{header.decode()}..{signature.decode()}"


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
