"""The rows of flow schemas and priority levels."""

from __future__ import annotations

from functools import partial

from pinnace.kinds.flowcontrol import columns, conversion, validation
from pinnace.kinds.rows import GA, STATUS, Row, Version

GROUP = "flowcontrol.apiserver.k8s.io"
_v1beta1 = partial(Version, "v1beta1", deprecated="1.23", removed="1.26", replacement=f"{GROUP}/v1beta3")
_v1beta2 = partial(Version, "v1beta2", deprecated="1.26", removed="1.29", replacement=f"{GROUP}/v1beta3")
_v1beta3 = partial(Version, "v1beta3", deprecated="1.29", removed="1.32", replacement=f"{GROUP}/v1")

ROWS = (
    Row(
        group=GROUP,
        name="FlowSchema",
        plural="flowschemas",
        columns=columns.FLOW_SCHEMA,
        row_order=columns.flow_schema_order,
        namespaced=False,
        versions=(GA, _v1beta3(), _v1beta2(), _v1beta1()),
        subresources=(STATUS,),
        strategy=validation.FLOW_SCHEMA,
    ),
    Row(
        group=GROUP,
        name="PriorityLevelConfiguration",
        plural="prioritylevelconfigurations",
        columns=columns.PRIORITY_LEVEL_CONFIGURATION,
        namespaced=False,
        versions=(
            GA,
            _v1beta3(
                to_stored=conversion.zero_shares_to_v1,
                from_stored=conversion.zero_shares_from_v1,
            ),
            _v1beta2(
                to_stored=conversion.shares_to_nominal,
                from_stored=conversion.shares_from_nominal,
            ),
            _v1beta1(
                to_stored=conversion.shares_to_nominal,
                from_stored=conversion.shares_from_nominal,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.PRIORITY_LEVEL_CONFIGURATION,
    ),
)
