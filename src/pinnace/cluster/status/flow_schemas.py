"""Writes into the status of each flow schema whether its priority level exists."""

from __future__ import annotations

from pinnace.cluster.cached_objects import CachedObjects
from pinnace.cluster.foundation import Foundation
from pinnace.cluster.status.writer import StatusWriter
from pinnace.kinds.flowcontrol.resources import GROUP
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Object

_DANGLING = "Dangling"


def flow_schema_status_writer(foundation: Foundation) -> StatusWriter:
    """Return the writer that checks a schema when it changes, and when a priority level is created or deleted."""
    schema_kind = foundation.stored_resource(GROUP, "flowschemas")
    level_kind = foundation.stored_resource(GROUP, "prioritylevelconfigurations")
    schemas = CachedObjects(foundation.fanout, schema_kind.prefix)
    levels = CachedObjects(foundation.fanout, level_kind.prefix)
    dangling_checks = _DanglingChecks(levels, foundation.clock)
    writer = StatusWriter(foundation.fanout, foundation.store, schema_kind, dangling_checks.status_of)

    def note_level(name: str) -> None:
        for key, schema in schemas.items():
            if _level_of(schema) == name:
                writer.note(key)

    schemas.on_change(writer.note)
    levels.on_change(note_level)
    return writer


class _DanglingChecks:
    def __init__(self, levels: CachedObjects, clock: Clock) -> None:
        self._levels = levels
        self._clock = clock

    def status_of(self, key: str, schema: Object) -> Object | None:
        level = _level_of(schema)
        said = dangling(level, exists=self._levels.get(level) is not None)
        status = schema.get("status") or {}
        others = []
        for condition in status.get("conditions") or ():
            if condition.get("type") != _DANGLING:
                others.append(condition)
            elif all(condition.get(field) == text for field, text in said.items()):
                return None
            elif condition.get("status") == said["status"]:
                said["lastTransitionTime"] = condition.get("lastTransitionTime")
        said.setdefault("lastTransitionTime", to_rfc3339(self._clock.now()))
        return {**status, "conditions": [*others, said]}


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
