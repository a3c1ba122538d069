"""The columns of storage version migrations."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import NAME, reach, string, text
from pinnace.model.objects import Object
from pinnace.model.resources import Column


def _migrated(migration: Object, now: datetime) -> str:
    resource = reach(migration, "spec", "resource") or {}
    name, group = text(resource.get("resource")), resource.get("group")
    return f"{name}.{group}" if group else name


def _migration_status(migration: Object, now: datetime) -> str:
    status = "Unknown"
    for found in reach(migration, "status", "conditions") or ():
        if found.get("status") == "True" and found.get("type") in ("Running", "Failed", "Succeeded"):
            status = found["type"]
    return status


STORAGE_VERSION_MIGRATION = (
    Column("Name", "string", NAME.description, NAME.value),
    string("Resource", "GroupResource to migrate", _migrated),
    string("Status", "Status of the migration", _migration_status),
)
