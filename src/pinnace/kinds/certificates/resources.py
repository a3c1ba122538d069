"""The rows of certificate signing requests, trust bundles and pod certificate requests."""

from __future__ import annotations

from pinnace.kinds.certificates import columns, conversion, pod_certificates, validation
from pinnace.kinds.rows import CHANGE, GA, STATUS, Row, old, on_request
from pinnace.kinds.selectable import fields

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
                to_stored=conversion.certificate_request_to_v1,
                reshape=conversion.old_certificate_request,
                strategy=validation.OLD_CERTIFICATE_SIGNING_REQUEST,
            ),
        ),
        subresources=(("approval", CHANGE), STATUS),
        selectable=fields("spec.signerName"),
        strategy=validation.CERTIFICATE_SIGNING_REQUEST,
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
        selectable=fields("spec.signerName"),
        strategy=validation.CLUSTER_TRUST_BUNDLE,
    ),
    Row(
        group=GROUP,
        name="PodCertificateRequest",
        plural="podcertificaterequests",
        columns=columns.POD_CERTIFICATE_REQUEST,
        versions=(GA, on_request("v1beta1", deprecated="1.38", removed="1.41"), on_request("v1alpha1")),
        subresources=(STATUS,),
        selectable=fields("spec.signerName", "spec.podName", "spec.nodeName"),
        strategy=pod_certificates.POD_CERTIFICATE_REQUEST,
    ),
)
