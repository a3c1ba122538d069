"""API services as v1beta1 wrote them: with one priority instead of two."""

from __future__ import annotations

from pinnace.kinds import older_schemas
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

_HIGHEST_GROUP, _HIGHEST_VERSION = 20000, 1000


def with_one_priority(schema: Schema) -> Schema:
    """Return the v1beta1 schema: early versions had one `priority`, and old manifests still use it."""
    return older_schemas.at(schema, "spec", older_schemas.with_fields(priority={"type": "integer", "format": "int64"}))


def api_service_to_v1(service: Object) -> Object:
    spec = service.get("spec") or {}
    priority = spec.pop("priority", None)
    if priority is not None:
        spec.setdefault("groupPriorityMinimum", min(max(priority, 1), _HIGHEST_GROUP))
        spec.setdefault("versionPriority", min(max(priority, 1), _HIGHEST_VERSION))
    return service


def api_service_from_v1(service: Object) -> Object:
    return service
