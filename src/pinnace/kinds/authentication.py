"""authentication.k8s.io: reviews of a caller's identity, which are answered at once and never stored."""

from __future__ import annotations

from pinnace.kinds.rows import ASK, GA, Row, on_request

GROUP = "authentication.k8s.io"

ROWS = (
    Row(
        group=GROUP,
        name="SelfSubjectReview",
        plural="selfsubjectreviews",
        namespaced=False,
        versions=(
            GA,
            on_request("v1beta1", deprecated="1.30", removed="1.33"),
            on_request("v1alpha1", deprecated="1.29", removed="1.32"),
        ),
        verbs=ASK,
    ),
    Row(group=GROUP, name="TokenReview", plural="tokenreviews", namespaced=False, versions=(GA,), verbs=ASK),
)
