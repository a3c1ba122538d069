"""Which server answers for which group and version."""

from __future__ import annotations

from pinnace.kinds import older_schemas
from pinnace.kinds.admissionregistration import columns
from pinnace.kinds.apiregistration import validation
from pinnace.kinds.rows import GA, STATUS, Row, old
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

_HIGHEST_GROUP, _HIGHEST_VERSION = 20000, 1000


def _with_one_priority(schema: Schema) -> Schema:
    """The first versions had one `priority` where there are two today, and notes still write it."""
    return older_schemas.at(schema, "spec", older_schemas.with_fields(priority={"type": "integer", "format": "int64"}))


def _to_v1(service: Object) -> Object:
    spec = service.get("spec") or {}
    priority = spec.pop("priority", None)
    if priority is not None:
        spec.setdefault("groupPriorityMinimum", min(max(priority, 1), _HIGHEST_GROUP))
        spec.setdefault("versionPriority", min(max(priority, 1), _HIGHEST_VERSION))
    return service


def _as_it_is(service: Object) -> Object:
    return service


ROWS = (
    Row(
        group="apiregistration.k8s.io",
        name="APIService",
        plural="apiservices",
        columns=columns.API_SERVICE,
        namespaced=False,
        categories=("api-extensions",),
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.19",
                removed="1.22",
                replacement="apiregistration.k8s.io/v1",
                reshape=_with_one_priority,
                to_stored=_to_v1,
                from_stored=_as_it_is,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.API_SERVICE,
    ),
)
