"""The row of endpoint slices."""

from __future__ import annotations

from pinnace.kinds.discovery import columns, conversion, validation
from pinnace.kinds.rows import GA, Row, old

ROWS = (
    Row(
        group="discovery.k8s.io",
        name="EndpointSlice",
        plural="endpointslices",
        columns=columns.ENDPOINT_SLICE,
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.21",
                removed="1.25",
                replacement="discovery.k8s.io/v1",
                to_stored=conversion.slice_to_v1,
                from_stored=conversion.slice_from_v1,
                reshape=conversion.old_endpoint_slice,
            ),
        ),
        strategy=validation.ENDPOINT_SLICE,
    ),
)
