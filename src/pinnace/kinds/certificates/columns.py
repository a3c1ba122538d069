"""The columns of certificate requests and trust bundles."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, NONE, at, format_duration, labels_at, nonempty_at, reach, string
from pinnace.model.objects import Object

_CERTIFICATES = "io.k8s.api.certificates.v1"
_SIGNER = """\
Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will be \
defaulted:
 1. If it's a kubelet client certificate, it is assigned
    "kubernetes.io/kube-apiserver-client-kubelet".
 2. If it's a kubelet serving certificate, it is assigned
    "kubernetes.io/kubelet-serving".
 3. Otherwise, it is assigned "kubernetes.io/legacy-unknown".
Distribution of trust for signers happens out of band. You can select on this field using `spec.signerName`."""


def _requested_duration(request: Object, now: datetime) -> str:
    seconds = reach(request, "spec", "expirationSeconds")
    return NONE if seconds is None else format_duration(seconds)


def request_state(request: Object, now: datetime | None = None) -> str:
    """Return the state of a certificate signing request."""
    found = {condition.get("type") for condition in reach(request, "status", "conditions") or ()}
    state = "Denied" if "Denied" in found else "Approved" if "Approved" in found else "Pending"
    if "Failed" in found:
        state += ",Failed"
    return f"{state},Issued" if reach(request, "status", "certificate") else state


_REQUEST = f"{_CERTIFICATES}.CertificateSigningRequest"
CERTIFICATE_SIGNING_REQUEST = (
    NAME,
    AGE,
    string("SignerName", _SIGNER, nonempty_at("spec.signerName", NONE)),
    string("Requestor", "Base64-encoded PKCS#10 CSR data", at("spec.username")),
    string("RequestedDuration", f"{_REQUEST}Spec.expirationSeconds", _requested_duration),
    string("Condition", "Conditions applied to the request, such as approval or denial.", request_state),
)
CLUSTER_TRUST_BUNDLE = (
    NAME,
    string(
        "SignerName",
        "io.k8s.api.certificates.v1beta1.ClusterTrustBundleSpec.signerName",
        nonempty_at("spec.signerName", NONE),
    ),
)


def _pod_request_state(request: Object, now: datetime) -> str:
    state = "Pending"
    for condition in reach(request, "status", "conditions") or ():
        if condition.get("type") in ("Issued", "Denied", "Failed"):
            state = condition["type"]
    return state


_POD_REQUEST = "io.k8s.api.certificates.v1beta1.PodCertificateRequestSpec"
POD_CERTIFICATE_REQUEST = (
    NAME,
    string("PodName", f"{_POD_REQUEST}.podName", at("spec.podName")),
    string("ServiceAccountName", f"{_POD_REQUEST}.serviceAccountName", at("spec.serviceAccountName")),
    string("NodeName", f"{_POD_REQUEST}.nodeName", at("spec.nodeName")),
    string("SignerName", f"{_POD_REQUEST}.signerName", at("spec.signerName")),
    string("State", "Is the request Pending, Issued, Denied, or Failed?", _pod_request_state),
    string(
        "UnverifiedUserAnnotations",
        f"{_POD_REQUEST}.unverifiedUserAnnotations",
        labels_at("spec.unverifiedUserAnnotations"),
    ),
)
