"""Keeps the status of definitions: accepted names, Established, and at the end the deletion of their objects."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from functools import partial
from typing import cast

from pinnace.client.client import Client
from pinnace.extensions.custom.kinds import CustomKinds, Naming
from pinnace.kinds.apiextensions.bundles import has_unusable_bundle
from pinnace.kinds.apiextensions.validation import CLEANUP, approval
from pinnace.kinds.apiextensions.versions import schema_of
from pinnace.model import errors
from pinnace.model.objects import Kind, Object
from pinnace.model.typed_objects import CustomResourceDefinition, CustomResourceDefinitionCondition
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.schema.crd.structural import StructuralCondition, non_structural_condition
from pinnace.serving.custom.definitions import DEFINITION

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
FAILURE_SECONDS = 30.0
_DELETED_AT_ONCE = 64


class DefinitionLifecycle:
    """Writes the status of definitions, one definition at a time, and removes the objects of those that leave."""

    def __init__(self, client: Client, kinds: CustomKinds, *, clock: Clock) -> None:
        self._client = client
        self._kinds = kinds
        self._clock = clock
        self._waiting: dict[str, None] = {}
        self._conflicts: dict[str, str] = {}
        self._woken = asyncio.Event()
        self._cleanups: dict[str, asyncio.Task[None]] = {}

    def wake(self, name: str) -> None:
        """Reconcile this definition soon."""
        self._waiting[name] = None
        self._woken.set()

    def names_freed(self, group: str) -> None:
        """Reconcile the definitions of this group whose names were taken: a name may be free now."""
        for name, of in self._conflicts.items():
            if of == group:
                self.wake(name)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._work()

    async def _work(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                name = next(iter(self._waiting))
                del self._waiting[name]
                try:
                    await self._reconcile(name)
                except errors.Conflict:
                    self.wake(name)
                except errors.ApiError as error:
                    log.warning("%s: %s; trying again", name, error.message)
                    self._client.clock.call_later(RETRY_SECONDS, partial(self.wake, name))
                except Exception:  # An odd definition must not keep the others waiting.
                    log.exception("the status of %s could not be computed; trying again", name)
                    self._client.clock.call_later(FAILURE_SECONDS, partial(self.wake, name))

    async def _reconcile(self, name: str) -> None:
        known = self._kinds.definition(name)
        if known is None:
            return
        obj = await self._client.get_or_none(CustomResourceDefinition, name)
        if obj is None:
            return
        if "deletionTimestamp" in obj["metadata"]:
            await self._finish(obj)
            return
        naming = self._kinds.naming(known)
        status = obj.get("status") or {}
        wanted = self._status(obj, naming)
        if wanted != {field: status.get(field) for field in wanted}:
            await self._write(obj, wanted)
            self.names_freed(known.group)
        if naming.is_settled:
            self._conflicts.pop(name, None)
        else:
            self._conflicts[name] = known.group

    def _status(self, obj: CustomResourceDefinition, naming: Naming) -> Object:
        conditions = _Conditions(obj, to_rfc3339(self._clock.now()))
        conditions.put(naming.condition())
        if naming.is_settled and not conditions.is_true("Established") and has_unusable_bundle(obj["spec"]):
            why = "The conversion webhook CABundle is invalid"
            conditions.put(_condition("Established", "False", "InvalidCABundle", why))
        elif naming.is_settled:
            conditions.put(
                _condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
            )
        elif not conditions.is_true("Established"):
            conditions.put(_condition("Established", "False", "NotAccepted", "not all names are accepted"))
        non_structural = _non_structural(obj)
        if non_structural is not None:
            conditions.put(_condition("NonStructuralSchema", *non_structural))
        else:
            conditions.drop("NonStructuralSchema")
        state, why = approval(obj)
        if state:
            is_approved = "True" if state == "ApprovedAnnotation" else "False"
            conditions.put(_condition("KubernetesAPIApprovalPolicyConformant", is_approved, state, why))
        return {"acceptedNames": naming.accepted.written(), "conditions": conditions.all}

    # The end.

    async def _finish(self, obj: CustomResourceDefinition) -> None:
        if CLEANUP not in (obj["metadata"].get("finalizers") or ()):
            return
        name = obj["metadata"]["name"]
        conditions = _Conditions(obj, to_rfc3339(self._clock.now()))
        resources = self._kinds.served(name)
        if resources and conditions.is_true("Established"):
            kind = resources[0].kind
            left = await self._client.page(kind, metadata_only=True)
            if left.items:
                message = "CustomResource deletion is in progress"
                conditions.put(_condition("Terminating", "True", "InstanceDeletionInProgress", message))
                if conditions.all != (obj.get("status") or {}).get("conditions"):
                    obj = await self._write(obj, {"conditions": conditions.all})
                await self._delete_all(kind, left.items)
                left = await self._client.page(kind, metadata_only=True)
            if left.items:
                self._await_gone(name, kind, left.version)
                return
            ending = _condition("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
        else:
            ending = _condition("Terminating", "False", "NeverEstablished", "resource was never established")
        conditions.put(ending)
        finalizers = [finalizer for finalizer in obj["metadata"]["finalizers"] if finalizer != CLEANUP]
        obj = await self._write(obj, {"conditions": conditions.all})
        patch = {"metadata": {"finalizers": finalizers, "resourceVersion": obj["metadata"]["resourceVersion"]}}
        await self._client.patch(DEFINITION, name, patch)

    def _await_gone(self, name: str, kind: Kind, version: str) -> None:
        """Reconcile again when an object that finalizers hold is gone: it may be the last."""
        if name in self._cleanups and not self._cleanups[name].done():
            return

        async def watch() -> None:
            with suppress(errors.ApiError, ConnectionError):
                async with aclosing(self._client.watch(kind, version=version, metadata_only=True)) as events:
                    async for event in events:
                        if event.type == "DELETED":
                            break
            self.wake(name)

        self._cleanups[name] = self._tasks.create_task(watch())

    async def _delete_all(self, kind: Kind, objects: list[Object]) -> None:
        """Delete the objects one by one: one that cannot be converted can still be deleted."""
        room = asyncio.Semaphore(_DELETED_AT_ONCE)

        async def delete(metadata: Object) -> None:
            async with room:
                try:
                    namespace = metadata.get("namespace", "")
                    await self._client.delete(kind, metadata["name"], namespace=namespace)
                except errors.NotFound:
                    pass  # It is gone, which is what was wanted.
                except errors.ApiError as error:
                    log.warning("%s %s could not be deleted: %s", kind.name, metadata["name"], error.message)

        await asyncio.gather(
            *(delete(obj["metadata"]) for obj in objects if "deletionTimestamp" not in obj["metadata"])
        )

    async def _write(self, obj: CustomResourceDefinition, status: Object) -> CustomResourceDefinition:
        metadata = obj["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        return await self._client.patch(CustomResourceDefinition, metadata["name"], patch, subresource="status")


def _non_structural(obj: CustomResourceDefinition) -> StructuralCondition | None:
    """Only definitions that keep unknown fields can have a schema that is not structural: others need no check."""
    if not obj["spec"].get("preserveUnknownFields"):
        return None
    versions = [(version["name"], schema_of(version)) for version in obj["spec"].get("versions") or ()]
    return non_structural_condition(versions, preserves_unknown=True)


class _Conditions:
    """The conditions of a definition; one that changes its status gets a new time."""

    def __init__(self, obj: CustomResourceDefinition, now: str) -> None:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        self.all: list[CustomResourceDefinitionCondition] = [condition.copy() for condition in conditions]
        self._now = now

    def is_true(self, type_: str) -> bool:
        return any(entry["type"] == type_ and entry["status"] == "True" for entry in self.all)

    def put(self, wanted: CustomResourceDefinitionCondition) -> None:
        for index, present in enumerate(self.all):
            if present["type"] == wanted["type"]:
                same = present["status"] == wanted["status"]
                moment = present.get("lastTransitionTime") if same else self._now
                self.all[index] = _with_time(wanted, cast("str", moment))
                if "observedGeneration" in present:
                    self.all[index]["observedGeneration"] = present["observedGeneration"]
                return
        self.all.append(_with_time(wanted, self._now))

    def drop(self, type_: str) -> None:
        self.all = [entry for entry in self.all if entry["type"] != type_]


def _with_time(condition: CustomResourceDefinitionCondition, moment: str) -> CustomResourceDefinitionCondition:
    return {"type": condition["type"], "status": condition["status"], "lastTransitionTime": moment, **condition}


def _condition(type_: str, status: str, reason: str, message: str) -> CustomResourceDefinitionCondition:
    return {"type": type_, "status": status, "reason": reason, "message": message}
