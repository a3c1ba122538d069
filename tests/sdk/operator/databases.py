"""A custom kind with conditions, and small objects for the tests of handlers."""

from __future__ import annotations

from typing import Any

from pinnace.sdk import (
    Conditions,
    CustomResource,
    Field,
    Key,
    Model,
)

WEBSITE = "extensions.example.com/v1/Website"
BLOG = Key("default", "blog")
Object = dict[str, Any]


class DatabaseSpec(Model):
    storage: str = "1Gi"


class DatabaseStatus(Model):
    conditions: Conditions = Field(default_factory=list)


class Database(CustomResource[DatabaseSpec, DatabaseStatus], group="data.example.com", version="v1"):
    """A database with conditions."""


def database(name: str = "db") -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "data.example.com/v1", "kind": "Database", "metadata": metadata, "spec": {}}


def config_map(name: str, **labels: str) -> Object:
    metadata: Object = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def conditions_of(obj: Object) -> dict[str, str]:
    return {condition["type"]: condition["message"] for condition in (obj.get("status") or {}).get("conditions", ())}
