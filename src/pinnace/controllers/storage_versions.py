"""Rewrites the stored objects of a resource in its storage version, for StorageVersionMigrations.

One migration of a resource runs at a time, the oldest first. A migration is a series of steps, each of which ends with
a write of its status: begin, take the version up to which objects are rewritten, rewrite them, end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from copy import deepcopy
from datetime import datetime

from pinnace.client.client import Client
from pinnace.client.mapping import ServedKind
from pinnace.client.transport import ConnectionLost
from pinnace.controllers.garbage.discovery import Discovery
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import GroupResource, StorageVersionMigration
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.conditions import condition, is_true, set_condition
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.failures import Retry
from pinnace.reconcile.manager import Manager
from pinnace.schema.golang.numbers import parse_int

NAME = "storage-version-migrator-controller"
_RUNNER = "migration-runner-controller"
"""The field manager of the condition of a definition, as in Kubernetes."""
_DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
_RUNNING, _SUCCEEDED, _FAILED = "Running", "Succeeded", "Failed"
_MIGRATING = "StorageMigrating"
_VERBS = ("update", "patch", "list")
_UNKNOWN_SECONDS = 60.0
"""How long a resource may be unknown: its definition may have been created a moment ago."""
_AT_ONCE = 32
_WAITING = "resource of migrations that have not ended"
_TRANSIENT = (
    *(errors.ServerTimeout, errors.TooManyRequests, errors.Unavailable, errors.InternalError, errors.Timeout),
    ConnectionLost,
)


class StorageVersionMigrations:
    """One reconcile is one step of a migration."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._migrations = manager.cache(StorageVersionMigration)
        self._migrations.add_index(
            _WAITING, lambda migration: () if _has_ended(migration) else [_resource_of(migration)]
        )
        self.controller = Controller("storage-version-migrator", self._reconcile, workers=5)
        self.controller.watches(StorageVersionMigration, self._concerned)

    def _concerned(self, migration: StorageVersionMigration) -> Iterable[Key]:
        """The migration itself, and the next one of its resource, which may begin when this one has ended."""
        yield Key("", migration["metadata"]["name"])
        following = self._next_of(_resource_of(migration))
        if following is not None:
            yield following

    def _next_of(self, resource: str) -> Key | None:
        """The migration of a resource that runs or comes next."""
        waiting = self._migrations.by_index(_WAITING, resource)
        first = min(waiting, key=_order, default=None)
        return None if first is None else Key("", first["metadata"]["name"])

    async def _reconcile(self, key: Key) -> None:
        known = self._migrations.get(key)
        if known is None:
            return
        migration = deepcopy(known)
        is_running = is_true(migration, _RUNNING)
        if _has_ended(migration):
            if is_running:
                await self._end(migration)
        elif not is_running:
            if self._next_of(_resource_of(migration)) == key:
                await self._begin(migration)
        elif not migration["status"].get("resourceVersion"):
            await self._take_version(migration)
        else:
            await self._migrate(migration)

    # The steps.

    async def _begin(self, migration: StorageVersionMigration) -> None:
        name = migration["metadata"]["name"]
        definition = await self._definition_of(migration)
        if definition is not None:
            await self._mark(definition, "True", "MigrationRunning", f"Migration {name} is running")
        self._set(migration, _RUNNING, "MigrationRunning", _progress_message())
        await self._client.update_status(migration)

    async def _take_version(self, migration: StorageVersionMigration) -> None:
        """Note the version up to which objects are rewritten. Later ones are stored in the storage version anyway."""
        served = await self._find(migration)
        if served is None:
            await self._fail(migration, "resource does not exist in discovery")
            return
        if not set(_VERBS) <= set(served.verbs):
            resource = f"{served.kind.group}/{served.kind.version}, Resource={served.plural}"
            verbs = " ".join(_VERBS)
            message = f'resource "{resource}" does not support discovery operations: [{verbs}]'
            await self._fail(migration, message)
            return
        page = await self._client.page(served.kind, limit=1, metadata_only=True)
        if not page.version.isdecimal():
            message = f"latest resourceVersion for {served.plural} is not valid: {page.version[:40]!r} is no number"
            await self._fail(migration, message)
            return
        migration["status"]["resourceVersion"] = page.version
        await self._client.update_status(migration)

    async def _migrate(self, migration: StorageVersionMigration) -> None:
        """Rewrite all objects up to the version in the status: a later one was stored when it changed."""
        served = await self._find(migration)
        if served is None:
            await self._fail(migration, "migration encountered unhandled error: unable to obtain GVR from discovery")
            return
        version = migration["status"]["resourceVersion"]
        last = parse_int(version)
        if last is None:
            await self._fail(migration, f"resourceVersion of the status is not valid: {version[:40]!r} is no number")
            return
        total = done = 0
        async for page in self._client.pages(served.kind, metadata_only=True):
            total = total or len(page.items) + page.remaining
            old = [obj for obj in page.items if int(obj["metadata"]["resourceVersion"]) <= last]
            failures = await self._rewrite_all(served, old)
            done += len(page.items) - len(failures)
            if failures:
                await self._report(migration, failures, left=total - done, total=total)
                return
        self._set(migration, _RUNNING, "MigrationRunning", _progress_message(total=total))
        self._set(migration, _SUCCEEDED, "StorageVersionMigrationSucceeded", "Migration completed")
        await self._client.update_status(migration)

    async def _report(
        self, migration: StorageVersionMigration, failures: list[Exception], *, left: int, total: int
    ) -> None:
        """End the migration with the first failure, or try again later if each may pass."""
        lasting = next((failure for failure in failures if not isinstance(failure, _TRANSIENT)), None)
        if lasting is None:
            first = failures[0]
            self._set(migration, _RUNNING, "MigrationRunning", _progress_message(left=left, total=total, error=first))
            await self._client.update_status(migration)
            raise Retry(after=float(getattr(first, "retry_after", 0)), reason=str(first))
        self._set(migration, _RUNNING, "MigrationRunning", _progress_message(left=left, total=total))
        await self._fail(
            migration, f"{left}/{total} not yet migrated. migration encountered unhandled error: {lasting}"
        )

    async def _end(self, migration: StorageVersionMigration) -> None:
        definition = await self._definition_of(migration)
        if definition is not None:
            await self._end_for(definition, is_success=is_true(migration, _SUCCEEDED))
        set_condition(
            migration,
            _RUNNING,
            False,
            reason="MigrationCompleted",
            message="Migration completed",
            clock=self._client.clock,
        )
        await self._client.update_status(migration)

    async def _end_for(self, definition: Object, *, is_success: bool) -> None:
        """Say in a definition that the migration has ended, and that only the storage version is stored now.

        A definition that has changed meanwhile may have another storage version: its stored versions stay.
        """
        if not is_success:
            await self._mark(definition, "False", "MigrationFailed", "The migration has failed")
            return
        known = condition(definition, _MIGRATING) or {}
        if known.get("observedGeneration") != definition["metadata"].get("generation"):
            message = "but the stored versions have not been updated due to a generation mismatch"
            await self._mark(definition, "False", "MigrationSucceeded", f"The migration has succeeded {message}")
            return
        stored = [version["name"] for version in definition["spec"]["versions"] if version.get("storage")]
        message = "The migration has succeeded and the stored versions have been updated"
        await self._mark(definition, "False", "MigrationSucceeded", message, storedVersions=stored)

    # Requests that the steps share.

    async def _find(self, migration: StorageVersionMigration) -> ServedKind | None:
        """Return the resource in its preferred version; None if it is not served. Raise Retry while it is new."""
        wanted: GroupResource = migration["spec"]["resource"]
        group, plural = wanted.get("group", ""), wanted["resource"]
        with contextlib.suppress(errors.NoSuchPath, errors.NotFound):
            discovered = await Discovery(self._client).reread(group)
            for served in discovered.kinds:
                if (served.kind.group, served.plural) == (group, plural):
                    return served
            if discovered.failures:
                raise Retry(reason=next(iter(discovered.failures.values())))
        created = datetime.fromisoformat(migration["metadata"]["creationTimestamp"])
        if (self._client.clock.now() - created).total_seconds() < _UNKNOWN_SECONDS:
            raise Retry(reason=f"{_resource_of(migration)} is not served")
        return None

    async def _definition_of(self, migration: StorageVersionMigration) -> Object | None:
        resource = migration["spec"]["resource"]
        if not resource.get("group"):
            return None
        return await self._client.get_or_none(_DEFINITION, _resource_of(migration))

    async def _mark(self, definition: Object, status: str, reason: str, message: str, **more: object) -> None:
        """Apply the condition StorageMigrating, and more of the status, unless the definition has changed."""
        metadata = definition["metadata"]
        migrating = {
            "type": _MIGRATING,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": to_rfc3339(self._client.clock.now()),
            "observedGeneration": metadata.get("generation", 0),
        }
        await self._client.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": metadata["name"], "resourceVersion": metadata["resourceVersion"]},
                "status": {"conditions": [migrating], **more},
            },
            subresource="status",
            field_manager=_RUNNER,
            force=True,
        )

    async def _rewrite_all(self, served: ServedKind, objects: list[Object]) -> list[Exception]:
        """Rewrite objects, and return the errors of those that are still stored as they were."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def rewrite(obj: Object) -> Exception | None:
            async with room:
                try:
                    await self._rewrite(served, obj)
                except (errors.ApiError, ConnectionLost) as error:
                    return error
                return None

        results = await asyncio.gather(*map(rewrite, objects))
        return [error for error in results if error is not None]

    async def _rewrite(self, served: ServedKind, obj: Object) -> None:
        """Send a patch that changes nothing: the server stores the object again where it is stored otherwise."""
        metadata = obj["metadata"]
        patch = {
            "apiVersion": served.kind.api_version,
            "kind": served.kind.name,
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
        }
        # Another version has been stored since, or none is.
        with contextlib.suppress(errors.Conflict, errors.NotFound):
            await self._client.patch(
                served.kind, metadata["name"], patch, namespace=metadata.get("namespace", ""), field_manager=NAME
            )

    async def _fail(self, migration: StorageVersionMigration, message: str) -> None:
        self._set(migration, _FAILED, "StorageVersionMigrationFailed", message)
        await self._client.update_status(migration)

    def _set(self, migration: StorageVersionMigration, type: str, reason: str, message: str) -> None:
        set_condition(migration, type, True, reason=reason, message=message, clock=self._client.clock)


def _has_ended(migration: StorageVersionMigration) -> bool:
    return is_true(migration, _SUCCEEDED) or is_true(migration, _FAILED)


def _order(migration: StorageVersionMigration) -> tuple[bool, str, str]:
    """One that runs comes first, then the oldest."""
    metadata = migration["metadata"]
    return not is_true(migration, _RUNNING), metadata.get("creationTimestamp", ""), metadata["name"]


def _resource_of(migration: StorageVersionMigration) -> str:
    """Return the name of a resource as a definition has it: websites.example.com, or pods. in the core group."""
    resource = migration["spec"]["resource"]
    return f"{resource['resource']}.{resource.get('group', '')}"


def _progress_message(*, left: int = 0, total: int = 0, error: Exception | None = None) -> str:
    message = "The migration is running"
    if left:
        message += f", {left}/{total} objects not yet migrated"
    elif total:
        message += f", {total} objects verified migrated"
    return f"{message}; transient error: {error}" if error is not None else message
