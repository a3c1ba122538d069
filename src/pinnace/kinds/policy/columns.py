"""The columns of disruption budgets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import AGE, NAME, integer, number_at, reach, string, text
from pinnace.model.objects import Object


def _or_not_applicable(field: str) -> Any:
    def value(budget: Object, now: datetime) -> str:
        found = reach(budget, "spec", field)
        return "N/A" if found is None else text(found)

    return value


POD_DISRUPTION_BUDGET = (
    NAME,
    string("Min Available", "The minimum number of pods that must be available.", _or_not_applicable("minAvailable")),
    string(
        "Max Unavailable", "The maximum number of pods that may be unavailable.", _or_not_applicable("maxUnavailable")
    ),
    integer(
        "Allowed Disruptions",
        "Calculated number of pods that may be disrupted at this time.",
        number_at("status.disruptionsAllowed"),
    ),
    AGE,
)
