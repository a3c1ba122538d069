"""How much of an application may be taken away at once."""

from __future__ import annotations

from pinnace.kinds import policy_conversions as conversions
from pinnace.kinds import scaling_rules, workload_columns
from pinnace.kinds.rows import GA, STATUS, Row, old

ROWS = (
    Row(
        group="policy",
        name="PodDisruptionBudget",
        plural="poddisruptionbudgets",
        columns=workload_columns.POD_DISRUPTION_BUDGET,
        short_names=("pdb",),
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.21",
                removed="1.25",
                replacement="policy/v1",
                to_stored=conversions.budget_to_v1,
                from_stored=conversions.budget_from_v1,
            ),
        ),
        subresources=(STATUS,),
        strategy=scaling_rules.POD_DISRUPTION_BUDGET,
    ),
)
