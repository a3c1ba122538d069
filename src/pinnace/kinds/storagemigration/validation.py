"""Defaults and validation of storage version migrations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import in_wire_order, validate_condition, validate_immutable
from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, FieldError, invalid, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy

_MIGRATION_SPEC = GoStruct("Resource", Resource=GoStruct("group='' resource=''"), inline=("Resource",))


def _default_migration(migration: Object) -> None:
    migration.setdefault("spec", {}).setdefault("resource", {}).setdefault("group", "")
    migration.setdefault("status", {})


def _validate_migration(migration: Object, old: Object | None) -> Iterator[FieldError]:
    spec = migration.get("spec", {})
    resource = spec.get("resource", {})
    if not resource.get("resource"):
        yield required("spec.resource.resource", "resource is required to be set")
    elif errs := names.dns1035_label(resource["resource"]):
        yield invalid("spec.resource.resource", resource["resource"], ",".join(errs))
    if resource.get("group") and (errs := names.dns_subdomain(resource["group"])):
        yield invalid("spec.resource.group", resource["group"], ",".join(errs))
    if old is not None:
        yield from validate_immutable(spec, old.get("spec", {}), "spec", shown=_MIGRATION_SPEC.view)


def _validate_migration_status(migration: Object, old: Object | None) -> Iterator[FieldError]:
    status, before = migration.get("status", {}), (old or {}).get("status", {})
    conditions = status.get("conditions") or []
    yield from validate_condition(conditions, "status.conditions")
    if before.get("resourceVersion") and before["resourceVersion"] != status.get("resourceVersion"):
        yield invalid("status.resourceVersion", status.get("resourceVersion", ""), IMMUTABLE)
    shown = [in_wire_order(condition) for condition in conditions]
    outcomes, outcomes_before = _outcomes(status), _outcomes(before)
    if {"Succeeded", "Failed"} <= outcomes:
        detail = "Both success and failed conditions cannot be true at the same time"
        yield invalid("status.conditions", shown, detail)
    for type_, told in (("Succeeded", "Success"), ("Failed", "Failed")):
        if type_ in outcomes_before and type_ not in outcomes:
            yield invalid("status.conditions", shown, f"{told} condition cannot be set to false once it is true")


def _outcomes(status: Mapping[str, Any]) -> set[str]:
    return {item.get("type", "") for item in status.get("conditions") or [] if item.get("status") == "True"}


STORAGE_VERSION_MIGRATION = Strategy(
    default=_default_migration,
    validate=_validate_migration,
    validate_status=_validate_migration_status,
    may_update_unconditionally=False,
)
