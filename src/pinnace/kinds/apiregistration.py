"""Which server answers for which group and version."""

from __future__ import annotations

from pinnace.kinds import extension_columns, extension_rules
from pinnace.kinds.rows import GA, STATUS, Row, old

ROWS = (
    Row(
        group="apiregistration.k8s.io",
        name="APIService",
        plural="apiservices",
        columns=extension_columns.API_SERVICE,
        namespaced=False,
        categories=("api-extensions",),
        versions=(GA, old("v1beta1", deprecated="1.19", removed="1.22", replacement="apiregistration.k8s.io/v1")),
        subresources=(STATUS,),
        strategy=extension_rules.API_SERVICE,
    ),
)
