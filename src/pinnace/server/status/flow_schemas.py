"""Writes into the status of each flow schema whether its priority level exists."""

from __future__ import annotations

from functools import partial

from pinnace.admission.plugins.resource_quota import ResourceQuota
from pinnace.kinds.flowcontrol import GROUP
from pinnace.model.objects import Object
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.server.foundation import CachedObjects, Foundation
from pinnace.server.status.writer import StatusWriter

_DANGLING = "Dangling"


def flow_schema_status_writer(foundation: Foundation) -> StatusWriter:
    """Return the writer that checks a schema when it changes, and when a priority level is created or deleted."""
    schema_kind = foundation.stored_resource(GROUP, "flowschemas")
    level_kind = foundation.stored_resource(GROUP, "prioritylevelconfigurations")
    schemas = CachedObjects(foundation.fanout, schema_kind.prefix)
    levels = CachedObjects(foundation.fanout, level_kind.prefix)
    status_of = partial(_status_of, levels, foundation.clock)
    writer = StatusWriter(foundation.fanout, foundation.store, schema_kind, status_of)

    def note_level(name: str) -> None:
        for key, schema in schemas.items():
            if _level_of(schema) == name:
                writer.note(key)

    schemas.on_change(writer.note)
    levels.on_change(note_level)
    return writer


def _status_of(levels: CachedObjects, clock: Clock, key: str, schema: Object) -> Object | None:
    """Return the status with the Dangling condition of now; None if it has that already."""
    level = _level_of(schema)
    wanted = dangling(level, exists=levels.get(level) is not None)
    status = schema.get("status") or {}
    others = []
    for condition in status.get("conditions") or ():
        if condition.get("type") != _DANGLING:
            others.append(condition)
        elif all(condition.get(field) == text for field, text in wanted.items()):
            return None
        elif condition.get("status") == wanted["status"]:
            wanted["lastTransitionTime"] = condition.get("lastTransitionTime")
    wanted.setdefault("lastTransitionTime", to_rfc3339(clock.now()))
    return {**status, "conditions": [*others, wanted]}


def dangling(level: str, *, exists: bool) -> Object:
    """Return the Dangling condition without its lastTransitionTime."""
    named = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    if exists:
        return {"type": _DANGLING, "status": "False", "reason": "Found", "message": f"{named} and it exists"}
    return {
        "type": _DANGLING,
        "status": "True",
        "reason": "NotFound",
        "message": f"{named} but there is no such object",
    }


def _level_of(schema: Object) -> str:
    return str(((schema.get("spec") or {}).get("priorityLevelConfiguration") or {}).get("name", ""))


def quota_status_writer(foundation: Foundation, quotas: ResourceQuota) -> StatusWriter:
    """Return the writer that raises usage. It never lowers it: the quota controller counts what is freed."""
    resource = foundation.stored_resource("", "resourcequotas")
    writer = StatusWriter(foundation.fanout, foundation.store, resource, quotas.raise_status)
    quotas.on_raise(writer.note)
    return writer
