"""The rows of certificate signing requests, trust bundles and pod certificate requests: columns, versions.

In v1beta1 the signer and the usages of a request were optional.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from pinnace.kinds import older_schemas
from pinnace.kinds.cells import AGE, NAME, NONE, at, format_duration, labels_at, nonempty_at, reach, string
from pinnace.kinds.certificates import pod_certificates, validation
from pinnace.kinds.certificates.signers import probable_signer
from pinnace.kinds.rows import CHANGE, GA, STATUS, Row, fields, old, on_request
from pinnace.model.objects import AnyObject, Object
from pinnace.model.typed_objects import CertificateSigningRequest, PodCertificateRequest
from pinnace.schema.shape import Schema

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


def _requested_duration(request: CertificateSigningRequest, now: datetime) -> str:
    seconds = reach(request, "spec", "expirationSeconds")
    return NONE if seconds is None else format_duration(seconds)


def request_state(request: AnyObject, now: datetime | None = None) -> str:
    """Return the state of a certificate signing request."""
    types = {condition.get("type") for condition in reach(request, "status", "conditions") or ()}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    if "Failed" in types:
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


def _pod_request_state(request: PodCertificateRequest, now: datetime) -> str:
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


def old_certificate_request(schema: Schema) -> Schema:
    schema = older_schemas.at(schema, "spec", older_schemas.optional("signerName", "usages"))
    return older_schemas.at(schema, "status.conditions.[]", older_schemas.optional("status"))


def certificate_request_to_v1(request: Object) -> Object:
    spec = request.get("spec")
    if isinstance(spec, dict):
        if spec.get("usages") is None:
            spec["usages"] = ["digital signature", "key encipherment"]
        if spec.get("signerName") is None:
            spec["signerName"] = probable_signer(spec)
    for condition in (request.get("status") or {}).get("conditions") or ():
        condition.setdefault("status", "True")
    return request


GROUP = "certificates.k8s.io"

_row = partial(Row, group=GROUP)

ROWS = (
    _row(
        name="CertificateSigningRequest",
        plural="certificatesigningrequests",
        columns=CERTIFICATE_SIGNING_REQUEST,
        short_names=("csr",),
        namespaced=False,
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.19",
                removed="1.22",
                replacement="certificates.k8s.io/v1",
                to_stored=certificate_request_to_v1,
                reshape=old_certificate_request,
                strategy=validation.OLD_CERTIFICATE_SIGNING_REQUEST,
            ),
        ),
        subresources=(("approval", CHANGE), STATUS),
        selectable=fields("spec.signerName"),
        strategy=validation.CERTIFICATE_SIGNING_REQUEST,
    ),
    _row(
        name="ClusterTrustBundle",
        plural="clustertrustbundles",
        columns=CLUSTER_TRUST_BUNDLE,
        namespaced=False,
        versions=(
            GA,
            on_request("v1beta1", deprecated="1.37", removed="1.40"),
            on_request("v1alpha1", deprecated="1.34", removed="1.37"),
        ),
        selectable=fields("spec.signerName"),
        strategy=validation.CLUSTER_TRUST_BUNDLE,
        gate="ClusterTrustBundle",
    ),
    _row(
        name="PodCertificateRequest",
        plural="podcertificaterequests",
        columns=POD_CERTIFICATE_REQUEST,
        versions=(GA, on_request("v1beta1", deprecated="1.38", removed="1.41"), on_request("v1alpha1")),
        subresources=(STATUS,),
        selectable=fields("spec.signerName", "spec.podName", "spec.nodeName"),
        strategy=pod_certificates.POD_CERTIFICATE_REQUEST,
        gate="PodCertificateRequest",
    ),
)
