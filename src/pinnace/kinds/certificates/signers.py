"""Requirements of Kubernetes' built-in signers on certificate signing requests. Pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pinnace.kinds.certificates.parsing import decoded, parse_request, pem_blocks
from pinnace.model.objects import AnyObject, Object
from pinnace.model.typed_objects import CertificateSigningRequestSpec

if TYPE_CHECKING:
    from cryptography import x509

REQUESTS = "certificates.k8s.io/v1/CertificateSigningRequest"
CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN = "kubernetes.io/legacy-unknown"
SIGNERS = (CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN)

LONGEST = timedelta(days=365)
SHORTEST = timedelta(minutes=10)

_NODES, _NODE = "system:nodes", "system:node:"
_COMMON_NAME, _ORGANIZATION, _ALTERNATIVES = "2.5.4.3", "2.5.4.10", "2.5.29.17"
_SIGNATURE, _ENCIPHERMENT = "digital signature", "key encipherment"
_KINDS = {
    "DNSName": "DNS",
    "RFC822Name": "Email",
    "IPAddress": "IP",
    "UniformResourceIdentifier": "URI",
}


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """The parts of a request that the signers check."""

    common_name: str
    organizations: tuple[str, ...]
    alternatives: frozenset[str]
    """The types of subject alternative names: DNS, Email, IP, URI."""
    der: bytes


def parse_signing_request(request: AnyObject) -> SigningRequest:
    """Parse a CertificateSigningRequest. Raise ValueError if it is invalid."""
    block = next(pem_blocks(decoded((request.get("spec") or {}).get("request") or "")), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    parsed = parse_request(block.der)
    names = [(part.oid.dotted_string, str(part.value)) for part in parsed.subject]
    common = [value for oid, value in names if oid == _COMMON_NAME]
    return SigningRequest(
        common[-1] if common else "",
        tuple(value for oid, value in names if oid == _ORGANIZATION),
        frozenset(_kinds_of_names(parsed)),
        block.der,
    )


def denial(signer: str, request: SigningRequest, usages: Sequence[str]) -> str:
    """Return why a signer does not sign the request, in Kubernetes' words; empty if it does."""
    if signer == CLIENT:
        return _client_denial(usages)
    if signer == KUBELET_CLIENT:
        return _kubelet_client_denial(request, frozenset(usages))
    if signer == KUBELET_SERVING:
        return _kubelet_serving_denial(request, frozenset(usages))
    return ""  # The legacy signer has no requirements.


def probable_signer(spec: Object) -> str:
    """Return the signer of a v1beta1 request without one: a kubelet signer if its requirements are met, else the legacy
    signer."""
    try:
        request, usages = parse_signing_request({"spec": spec}), [str(usage) for usage in spec.get("usages") or ()]
    except (ValueError, TypeError):
        return LEGACY_UNKNOWN
    fitting = (signer for signer in (KUBELET_CLIENT, KUBELET_SERVING) if not denial(signer, request, usages))
    return next(fitting, LEGACY_UNKNOWN)


def lifetime_of(spec: CertificateSigningRequestSpec) -> timedelta:
    """Return the lifetime of the certificate: as requested, within bounds."""
    seconds = spec.get("expirationSeconds")
    return LONGEST if seconds is None else max(SHORTEST, min(LONGEST, timedelta(seconds=seconds)))


def has_condition(request: AnyObject, *types: str) -> bool:
    """Return whether one of these conditions is true."""
    conditions = (request.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") in types and condition.get("status", "True") in ("", "True") for condition in conditions
    )


def is_issued(request: AnyObject) -> bool:
    return bool((request.get("status") or {}).get("certificate"))


def _kinds_of_names(parsed: x509.CertificateSigningRequest) -> list[str]:
    extensions = (extension for extension in parsed.extensions if extension.oid.dotted_string == _ALTERNATIVES)
    names: Any = next((extension.value for extension in extensions), ())
    return [_KINDS[type(name).__name__] for name in names if type(name).__name__ in _KINDS]


def _client_denial(usages: Sequence[str]) -> str:
    for usage in usages:
        if usage not in (_SIGNATURE, _ENCIPHERMENT, "client auth"):
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"


def _kubelet_client_denial(request: SigningRequest, usages: frozenset[str]) -> str:
    if request.organizations != (_NODES,):
        return "subject organization is not system:nodes"
    for kind in ("DNS", "Email", "IP", "URI"):
        if kind in request.alternatives:
            return f"{kind} subjectAltNames are not allowed"
    if not request.common_name.startswith(_NODE):
        return "subject common name does not begin with system:node:"
    return _usage_denial(usages, "client auth")


def _kubelet_serving_denial(request: SigningRequest, usages: frozenset[str]) -> str:
    if request.organizations != (_NODES,):
        return "subject organization is not system:nodes"
    if request.alternatives.isdisjoint(("DNS", "IP")):
        return "DNS or IP subjectAltName is required"
    for kind in ("Email", "URI"):
        if kind in request.alternatives:
            return f"{kind} subjectAltNames are not allowed"
    if refused := _usage_denial(usages, "server auth"):
        return refused
    return "" if request.common_name.startswith(_NODE) else "subject common name does not begin with system:node:"


def _usage_denial(usages: frozenset[str], purpose: str) -> str:
    """Return why the usages are wrong. Key encipherment is for RSA keys: others may leave it out."""
    full = frozenset((_SIGNATURE, _ENCIPHERMENT, purpose))
    return "" if usages in (full, full - {_ENCIPHERMENT}) else f"usages did not match [{' '.join(sorted(full))}]"
