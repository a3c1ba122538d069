"""The rows of leases and lease candidates."""

from __future__ import annotations

from pinnace.kinds.coordination import columns, validation
from pinnace.kinds.rows import GA, Row, old, on_request

GROUP = "coordination.k8s.io"

ROWS = (
    Row(
        group=GROUP,
        name="LeaseCandidate",
        plural="leasecandidates",
        columns=columns.LEASE_CANDIDATE,
        versions=(
            on_request("v1beta1", deprecated="1.36", removed="1.39"),
            on_request("v1alpha2", deprecated="1.35", removed="1.38"),
            on_request("v1alpha1"),
        ),
        strategy=validation.LEASE_CANDIDATE,
    ),
    Row(
        group=GROUP,
        name="Lease",
        plural="leases",
        columns=columns.LEASE,
        versions=(GA, old("v1beta1", deprecated="1.19", removed="1.22", replacement="coordination.k8s.io/v1")),
        strategy=validation.LEASE,
    ),
)
