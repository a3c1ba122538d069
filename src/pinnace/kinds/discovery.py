"""Where the pods behind a service are."""

from __future__ import annotations

from pinnace.kinds import network_columns, network_rules
from pinnace.kinds import network_conversions as conversions
from pinnace.kinds.rows import GA, Row, old

ROWS = (
    Row(
        group="discovery.k8s.io",
        name="EndpointSlice",
        plural="endpointslices",
        columns=network_columns.ENDPOINT_SLICE,
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
        strategy=network_rules.ENDPOINT_SLICE,
    ),
)
