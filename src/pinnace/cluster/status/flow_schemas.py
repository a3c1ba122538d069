"""Tells in the status of each flow schema whether the priority level exists that it sends requests to."""

from __future__ import annotations

from pinnace.cluster.cached_objects import CachedObjects
from pinnace.cluster.status.writer import StatusWriter
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.server.cache.fanout import Fanout
from pinnace.store import store as stores

_DANGLING = "Dangling"


class FlowSchemaStatuses:
    """Each schema is looked at when it changes, and when a level comes or goes."""

    def __init__(
        self, fanout: Fanout, store: stores.Store, clock: Clock, *, schema_kind: Resource, level_kind: Resource
    ) -> None:
        self._clock = clock
        self._schemas = CachedObjects(fanout, schema_kind.prefix)
        self._levels = CachedObjects(fanout, level_kind.prefix)
        self._writer = StatusWriter(fanout, store, schema_kind, self._status)
        self._schemas.on_change(self._writer.note)
        self._levels.on_change(self._note_level)

    def _note_level(self, name: str) -> None:
        for key, schema in self._schemas.items():
            if _level_of(schema) == name:
                self._writer.note(key)

    def _status(self, key: str, schema: Object) -> Object | None:
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
    """The condition, but for when it came to be."""
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
