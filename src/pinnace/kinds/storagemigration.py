"""storagemigration.k8s.io: StorageVersionMigrations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pinnace.kinds.cells import NAME, reach, string, text
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.rows import GA, STATUS, Row, on_request
from pinnace.kinds.validation.fields import in_wire_order, validate_condition, validate_immutable
from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, FieldError, invalid, required
from pinnace.model.objects import NOTHING, Object
from pinnace.model.resources import Column, Strategy
from pinnace.model.typed_objects import StorageVersionMigration, StorageVersionMigrationStatus


def _migrated(migration: StorageVersionMigration, now: datetime) -> str:
    resource = reach(migration, "spec", "resource") or NOTHING
    name, group = text(resource.get("resource")), resource.get("group")
    return f"{name}.{group}" if group else name


def _migration_status(migration: StorageVersionMigration, now: datetime) -> str:
    status = "Unknown"
    for condition in reach(migration, "status", "conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Running", "Failed", "Succeeded"):
            status = condition["type"]
    return status


_MIGRATION_SPEC = GoStruct("Resource", Resource=GoStruct("group='' resource=''"), inline=("Resource",))


def _default_migration(migration: Object) -> None:
    migration.setdefault("spec", {}).setdefault("resource", {}).setdefault("group", "")
    migration.setdefault("status", {})


def _validate_migration(
    migration: StorageVersionMigration, old: StorageVersionMigration | None
) -> Iterator[FieldError]:
    spec = migration.get("spec", {})
    resource = spec.get("resource", {})
    if not resource.get("resource"):
        yield required("spec.resource.resource", "resource is required to be set")
    elif errs := names.dns1035_label(resource["resource"]):
        yield invalid("spec.resource.resource", resource["resource"], ",".join(errs))
    if resource.get("group") and (errs := names.dns_subdomain(resource["group"])):
        yield invalid("spec.resource.group", resource["group"], ",".join(errs))
    if old is not None:
        yield from validate_immutable(spec, old.get("spec", {}), "spec", view_of=_MIGRATION_SPEC.view)


def _validate_migration_status(
    migration: StorageVersionMigration, old: StorageVersionMigration | None
) -> Iterator[FieldError]:
    status, before = migration.get("status", {}), (old or NOTHING).get("status", NOTHING)
    conditions = status.get("conditions") or []
    yield from validate_condition(conditions, "status.conditions")
    if before.get("resourceVersion") and before["resourceVersion"] != status.get("resourceVersion"):
        yield invalid("status.resourceVersion", status.get("resourceVersion", ""), IMMUTABLE)
    view = [in_wire_order(condition) for condition in conditions]
    outcomes, outcomes_before = _outcomes(status), _outcomes(before)
    if {"Succeeded", "Failed"} <= outcomes:
        detail = "Both success and failed conditions cannot be true at the same time"
        yield invalid("status.conditions", view, detail)
    for type_, name in (("Succeeded", "Success"), ("Failed", "Failed")):
        if type_ in outcomes_before and type_ not in outcomes:
            yield invalid("status.conditions", view, f"{name} condition cannot be set to false once it is true")


def _outcomes(status: StorageVersionMigrationStatus) -> set[str]:
    return {item.get("type", "") for item in status.get("conditions") or [] if item.get("status") == "True"}


ROWS = (
    Row(
        group="storagemigration.k8s.io",
        name="StorageVersionMigration",
        plural="storageversionmigrations",
        columns=(
            Column("Name", "string", NAME.description, NAME.value),
            string("Resource", "GroupResource to migrate", _migrated),
            string("Status", "Status of the migration", _migration_status),
        ),
        namespaced=False,
        versions=(GA, on_request("v1beta1", deprecated="1.38", removed="1.41"), on_request("v1alpha1")),
        subresources=(STATUS,),
        strategy=Strategy(
            default=_default_migration,
            validate=_validate_migration,
            validate_status=_validate_migration_status,
            may_update_unconditionally=False,
        ),
        gate="StorageVersionMigrator",
    ),
)
