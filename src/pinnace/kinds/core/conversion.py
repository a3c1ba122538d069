"""Events of events.k8s.io and of core are the same objects with different field names."""

from __future__ import annotations

from pinnace.kinds import older_schemas
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
NEW_NAMES = {core: new for new, core in CORE_NAMES.items()}


def to_core(event: Object) -> Object:
    core = {CORE_NAMES.get(name, name): value for name, value in event.items()}
    # A core event always has these.
    core.setdefault("involvedObject", {})
    core.setdefault("reportingComponent", "")
    core.setdefault("reportingInstance", "")
    core.setdefault("source", {})
    core.setdefault("firstTimestamp", None)
    core.setdefault("lastTimestamp", None)
    core.setdefault("eventTime", None)
    return core


def from_core(event: Object) -> Object:
    new = {NEW_NAMES.get(name, name): value for name, value in event.items()}
    new.setdefault("eventTime", None)
    for name in ("reportingController", "reportingInstance"):
        if not new.get(name):
            new.pop(name, None)
    return new


def new_shape(schema: Schema) -> Schema:
    """Return the schema of a beta event, from the core one."""
    for new, core in CORE_NAMES.items():
        schema = older_schemas.at(schema, "", older_schemas.renamed(new, core))
    return older_schemas.at(schema, "", older_schemas.optional("regarding"))
