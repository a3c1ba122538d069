"""The columns of flow schemas and priority levels."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import AGE, NAME, NONE, at, condition, number_at, reach, string, text
from pinnace.model.objects import Object

_FLOW = "io.k8s.api.flowcontrol.v1"


def _missing_level(schema: Object, now: datetime) -> str:
    found = condition(schema, "Dangling")
    return "?" if found is None else text(found.get("status"))


def flow_schema_order(schema: Object) -> tuple[int, str]:
    """Sort by precedence, the order in which the server tries flow schemas."""
    return reach(schema, "spec", "matchingPrecedence") or 0, schema["metadata"]["name"]


FLOW_SCHEMA = (
    NAME,
    string(
        "PriorityLevel",
        f"{_FLOW}.PriorityLevelConfigurationReference.name",
        at("spec.priorityLevelConfiguration.name"),
    ),
    string("MatchingPrecedence", f"{_FLOW}.FlowSchemaSpec.matchingPrecedence", number_at("spec.matchingPrecedence")),
    string(
        "DistinguisherMethod", f"{_FLOW}.FlowSchemaSpec.distinguisherMethod", at("spec.distinguisherMethod.type", NONE)
    ),
    AGE,
    string("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", _missing_level),
)


def _limited_field(*steps: str) -> Any:
    def value(level: Object, now: datetime) -> Any:
        holder = reach(level, "spec", "limited", *steps[:-1])
        return NONE if holder is None else holder.get(steps[-1], 0)

    return value


PRIORITY_LEVEL_CONFIGURATION = (
    NAME,
    string("Type", f"{_FLOW}.PriorityLevelConfigurationSpec.type", at("spec.type")),
    string(
        "NominalConcurrencyShares",
        f"{_FLOW}.LimitedPriorityLevelConfiguration.nominalConcurrencyShares",
        _limited_field("nominalConcurrencyShares"),
    ),
    string("Queues", f"{_FLOW}.QueuingConfiguration.queues", _limited_field("limitResponse", "queuing", "queues")),
    string(
        "HandSize", f"{_FLOW}.QueuingConfiguration.handSize", _limited_field("limitResponse", "queuing", "handSize")
    ),
    string(
        "QueueLengthLimit",
        f"{_FLOW}.QueuingConfiguration.queueLengthLimit",
        _limited_field("limitResponse", "queuing", "queueLengthLimit"),
    ),
    AGE,
)
