"""The row of pod disruption budgets."""

from __future__ import annotations

from pinnace.kinds.policy import columns, conversion, validation
from pinnace.kinds.rows import GA, STATUS, Row, old

ROWS = (
    Row(
        group="policy",
        name="PodDisruptionBudget",
        plural="poddisruptionbudgets",
        columns=columns.POD_DISRUPTION_BUDGET,
        short_names=("pdb",),
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.21",
                removed="1.25",
                replacement="policy/v1",
                to_stored=conversion.budget_to_v1,
                from_stored=conversion.budget_from_v1,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.POD_DISRUPTION_BUDGET,
    ),
)
