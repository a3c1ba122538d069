"""A Database: a StatefulSet with its headless Service and password, backed up through an HTTP API before it is removed.

    BACKUP_URL=http://127.0.0.1:9000 pinnace run examples/10-database/database.py --dev --nodes 1
    kubectl apply -f examples/10-database/orders.yaml
    kubectl scale database orders --replicas 3

It shows two versions with conversion, webhooks, `kubectl scale`, an index, a shared session, a finalizer that waits.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp

from pinnace.sdk import (
    Admission,
    Backoff,
    Caches,
    Conditions,
    Context,
    CustomResource,
    Field,
    Key,
    Model,
    Operator,
    Retry,
    Rule,
    Scale,
    Select,
    generation_changed,
)

GROUP = "data.example.com"
SECRETS = Select("v1/Secret", labels=f"app.kubernetes.io/managed-by={GROUP}", metadata_only=True)
"""Only the metadata of this operator's own Secrets is kept in memory, not every Secret of the cluster."""
STATEFUL_SET = "apps/v1/StatefulSet"
Object = dict[str, Any]


class SpecV1(Model):
    storage_gib: int = Field(default=1, ge=1, le=1024)
    replicas: int = Field(default=1, ge=0, le=9)


class Spec(Model, rules=[Rule("self.engine == oldSelf.engine", message="the engine of a database cannot change")]):
    engine: str = Field(default="postgres:17", description="The image, such as postgres:17.")
    storage: str = Field(default="1Gi", pattern=r"^[0-9]+Gi$", description="The size of each volume.")
    replicas: int = Field(default=1, ge=0, le=9)
    config_map: str = Field(default="", description="A ConfigMap with settings for the engine.")


class Status(Model):
    replicas: int = 0
    selector: str = ""
    storage: str = Field(default="", description="The size that was requested last.")
    conditions: Conditions = Field(default_factory=list)


class DatabaseV1(
    CustomResource[SpecV1, Status],
    group=GROUP,
    version="v1",
    kind="Database",
    storage=False,
    scale=Scale(selector=".status.selector"),
    deprecated="data.example.com/v1 Database is deprecated; use v2",
):
    """A database, with its storage as a number."""


class Database(
    CustomResource[Spec, Status],
    group=GROUP,
    version="v2",
    short_names=["db"],
    scale=Scale(selector=".status.selector"),
    columns=[".spec.engine", ".spec.storage", ".status.replicas"],
):
    """A database that runs in the cluster."""


class Backups:
    """The backup service, outside of the cluster."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def state(self, key: Key) -> str:
        """Begin the last backup of a database, or ask how it is going."""
        async with self._session.put(f"{self._url}/backups/{key.namespace}/{key.name}") as answer:
            answer.raise_for_status()
            return str((await answer.json())["state"])


operator = Operator("databases")


@operator.startup
async def open_backups() -> AsyncIterator[Backups]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Backups(session, os.environ.get("BACKUP_URL", "http://backups.backups.svc"))


@operator.index(Database)
def by_config_map(db: Database) -> Iterable[str]:
    return [f"{db.namespace}/{db.spec.config_map}"] if db.spec.config_map else []


def databases_of(config_map: Object, caches: Caches) -> set[Key]:
    metadata = config_map["metadata"]
    return caches.keys(Database, "by_config_map", f"{metadata['namespace']}/{metadata['name']}")


@operator.reconcile(
    Database,
    when=generation_changed,
    owns=[STATEFUL_SET, "v1/Service", SECRETS],
    watches={Select("v1/ConfigMap", metadata_only=True): databases_of},
    backoff=Backoff(first=1, longest=60),
)
async def reconcile(db: Database, ctx: Context) -> None:
    if await ctx.client.get_or_none("v1/Secret", db.name, namespace=db.namespace) is None:
        await ctx.apply(secret_of(db, secrets.token_urlsafe(24)))
    await ctx.apply(service_of(db))
    settings = await ctx.get("v1/ConfigMap", db.spec.config_map) if db.spec.config_map else None
    version = settings["metadata"]["resourceVersion"] if settings else ""
    stateful_set = await ctx.apply(stateful_set_of(db, version))
    ready = (stateful_set.get("status") or {}).get("readyReplicas", 0)
    db.status.replicas = (stateful_set.get("status") or {}).get("replicas", 0)
    db.status.selector = f"database={db.name}"
    is_ready = ready == db.spec.replicas
    ctx.condition(
        "Ready", is_ready, reason="AllReady" if is_ready else "Starting", message=f"{ready} replicas are ready"
    )


@operator.on_field(Database, "spec.storage")
async def resize(db: Database, ctx: Context, old: str | None, new: str) -> None:
    """Resize the volumes: a StatefulSet's volume claim templates cannot change."""
    db.status.storage = new
    if old is None:
        return
    for claim in await ctx.client.list(
        "v1/PersistentVolumeClaim", namespace=db.namespace, labels=f"database={db.name}"
    ):
        patch = {"spec": {"resources": {"requests": {"storage": new}}}}
        await ctx.client.patch("v1/PersistentVolumeClaim", claim["metadata"]["name"], patch, namespace=db.namespace)
    ctx.event("Resized", f"from {old} to {new}")


operator.needs("v1/PersistentVolumeClaim", "list", "patch")
operator.needs("v1/ConfigMap", "get")


@operator.on_delete(Database, timeout=30)
async def back_up(db: Database, ctx: Context) -> None:
    """Keep the database until its last backup is done."""
    state = await ctx.shared[Backups].state(db.key)
    if state != "done":
        raise Retry(after=10, reason=f"the last backup is {state}", event="BackingUp")
    ctx.log.info("backed up")


@operator.validate(Database)
async def only_grow(db: Database, admission: Admission) -> str | None:
    old: Database | None = admission.old
    if old is not None and int(db.spec.storage[:-2]) < int(old.spec.storage[:-2]):
        return f"storage can only grow: it is {old.spec.storage}"
    return None


@operator.mutate(Database)
async def pin_the_engine(db: Database) -> None:
    if ":" not in db.spec.engine:
        db.spec.engine = f"{db.spec.engine}:17"


@operator.convert(DatabaseV1, Database)
def upgrade(old: DatabaseV1) -> Database:
    spec = Spec(storage=f"{old.spec.storage_gib}Gi", replicas=old.spec.replicas)
    if "engine" in old.metadata.annotations:
        spec.engine = old.metadata.annotations["engine"]
    return Database(spec=spec, status=old.status)


@operator.convert(Database, DatabaseV1)
def downgrade(new: Database) -> DatabaseV1:
    old = DatabaseV1(spec=SpecV1(storage_gib=int(new.spec.storage[:-2]), replicas=new.spec.replicas), status=new.status)
    old.metadata.annotations = {**new.metadata.annotations, "engine": new.spec.engine}  # It survives the way back.
    return old


def secret_of(db: Database, password: str) -> Object:
    labels = {"app.kubernetes.io/managed-by": GROUP}
    metadata = {"name": db.name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": password}}


def service_of(db: Database) -> Object:
    spec = {"clusterIP": "None", "selector": {"database": db.name}, "ports": [{"name": "sql", "port": 5432}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": db.name}, "spec": spec}


def stateful_set_of(db: Database, settings_version: str) -> Object:
    labels = {"database": db.name}
    password = {"secretKeyRef": {"name": db.name, "key": "password"}}
    container = {
        "name": "database",
        "image": db.spec.engine,
        "env": [{"name": "POSTGRES_PASSWORD", "valueFrom": password}],
        "ports": [{"name": "sql", "containerPort": 5432}],
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql/data"}],
    }
    claim = {
        "metadata": {"name": "data", "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": db.status.storage or db.spec.storage}},
        },
    }
    template = {
        "metadata": {"labels": labels, "annotations": {"settings": settings_version}},
        "spec": {"containers": [container]},
    }
    spec = {
        "replicas": db.spec.replicas,
        "serviceName": db.name,
        "selector": {"matchLabels": labels},
        "template": template,
        "volumeClaimTemplates": [claim],
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": db.name}, "spec": spec}
