"""The row of horizontal pod autoscalers."""

from __future__ import annotations

from pinnace.kinds.autoscaling import columns, conversion, validation
from pinnace.kinds.rows import STATUS, Row, Version, old

ROWS = (
    Row(
        group="autoscaling",
        name="HorizontalPodAutoscaler",
        plural="horizontalpodautoscalers",
        columns=columns.HORIZONTAL_POD_AUTOSCALER,
        short_names=("hpa",),
        categories=("all",),
        versions=(
            Version("v2"),
            Version("v1", to_stored=conversion.v1_to_v2, from_stored=conversion.v2_to_v1),
            # 1.25 still has this version; its shape is that of v2.
            old("v2beta2", deprecated="1.23", removed="1.26", replacement="autoscaling/v2"),
            old(
                "v2beta1",
                deprecated="1.22",
                removed="1.25",
                replacement="autoscaling/v2",
                to_stored=conversion.v2beta1_to_v2,
                from_stored=conversion.v2_to_v2beta1,
                reshape=conversion.v2beta1_shape,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.HORIZONTAL_POD_AUTOSCALER,
    ),
)
