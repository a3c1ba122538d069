"""The row of API services."""

from __future__ import annotations

from pinnace.kinds.apiregistration import columns, conversion, validation
from pinnace.kinds.rows import GA, STATUS, Row, old

ROWS = (
    Row(
        group="apiregistration.k8s.io",
        name="APIService",
        plural="apiservices",
        columns=columns.API_SERVICE,
        namespaced=False,
        categories=("api-extensions",),
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.19",
                removed="1.22",
                replacement="apiregistration.k8s.io/v1",
                reshape=conversion.with_one_priority,
                to_stored=conversion.api_service_to_v1,
                from_stored=conversion.api_service_from_v1,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.API_SERVICE,
    ),
)
