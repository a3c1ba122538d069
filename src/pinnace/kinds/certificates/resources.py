"""Requests for certificates, and whom to trust."""

from __future__ import annotations

from pinnace.kinds import selectable
from pinnace.kinds.certificates import validation as certificate_rules
from pinnace.kinds.policy import conversion as conversions
from pinnace.kinds.rbac import columns
from pinnace.kinds.rbac import validation as access_rules
from pinnace.kinds.rows import CHANGE, GA, STATUS, Row, old, on_request

GROUP = "certificates.k8s.io"

ROWS = (
    Row(
        group=GROUP,
        name="CertificateSigningRequest",
        plural="certificatesigningrequests",
        columns=columns.CERTIFICATE_SIGNING_REQUEST,
        short_names=("csr",),
        namespaced=False,
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.19",
                removed="1.22",
                replacement="certificates.k8s.io/v1",
                to_stored=conversions.certificate_request_to_v1,
                reshape=conversions.old_certificate_request,
                strategy=certificate_rules.OLD_CERTIFICATE_SIGNING_REQUEST,
            ),
        ),
        subresources=(("approval", CHANGE), STATUS),
        selectable=selectable.SIGNER,
        strategy=access_rules.CERTIFICATE_SIGNING_REQUEST,
    ),
    Row(
        group=GROUP,
        name="ClusterTrustBundle",
        plural="clustertrustbundles",
        columns=columns.CLUSTER_TRUST_BUNDLE,
        namespaced=False,
        versions=(
            GA,
            on_request("v1beta1", deprecated="1.37", removed="1.40"),
            on_request("v1alpha1", deprecated="1.34", removed="1.37"),
        ),
        selectable=selectable.SIGNER,
        strategy=access_rules.CLUSTER_TRUST_BUNDLE,
    ),
    Row(
        group=GROUP,
        name="PodCertificateRequest",
        plural="podcertificaterequests",
        columns=columns.POD_CERTIFICATE_REQUEST,
        versions=(GA, on_request("v1beta1", deprecated="1.38", removed="1.41"), on_request("v1alpha1")),
        subresources=(STATUS,),
        selectable=selectable.POD_CERTIFICATE,
        strategy=access_rules.POD_CERTIFICATE_REQUEST,
    ),
)
