"""Where the pods behind a service are."""

from __future__ import annotations

from pinnace.kinds.networking import columns, validation
from pinnace.kinds.networking import conversion as conversions
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
                to_stored=conversions.slice_to_v1,
                from_stored=conversions.slice_from_v1,
                reshape=conversions.old_endpoint_slice,
            ),
        ),
        strategy=validation.ENDPOINT_SLICE,
    ),
)
