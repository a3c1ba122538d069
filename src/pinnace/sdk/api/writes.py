"""The write verbs: a pure old → new for each, then validation and admission, then the backend."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import orjson

from pinnace.model import errors
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Key, Object, key_of, new_uid
from pinnace.model.patches import apply, json_and_merge, managed_fields
from pinnace.sdk.api.callers import ANONYMOUS, Caller
from pinnace.sdk.api.collection import Collection, CollectionEntry
from pinnace.sdk.handlers.handlers import LocalAdmission
from pinnace.sdk.handlers.reviews import review_admission

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

_SERVER_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
"""The metadata fields that only the server sets."""
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write."""

    manager: str
    dry_run: bool = False
    force: bool = False
    validation: str = "Warn"
    """The treatment of unknown fields: Ignore, Warn or Strict."""
    caller: Caller = ANONYMOUS
    warnings: list[str] = field(default_factory=list)


Edit = Callable[[Object], Object]
"""Returns the new object for the old one, which it may change in place."""


class CollectionWriter:
    """The verbs that change objects of one kind."""

    def __init__(self, collection: Collection, admission: LocalAdmission, clock: Clock) -> None:
        self._collection = collection
        self._served = collection.served
        self._admission = admission
        self._clock = clock

    async def create(self, obj: Object, namespace: str, options: WriteOptions) -> Object:
        """Create an object. Raise AlreadyExists, Invalid or BadRequest."""
        self._decode(obj, options)
        metadata = obj["metadata"]
        if metadata.get("resourceVersion"):
            raise errors.BadRequest("resourceVersion should not be set on objects to be created")
        self._place(metadata, namespace)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(random.choices(_SUFFIX, k=5))
        self._initialize(obj)
        managed_fields.after_update(None, obj, self._served.ownership(""), manager=options.manager, now=self._now())
        return await self._add(obj, options)

    async def replace(self, obj: Object, key: Key, subresource: str, options: WriteOptions) -> Object:
        """Replace an object or its subresource. Raise NotFound, Conflict, Invalid or BadRequest."""
        name = self._object(obj)["metadata"].get("name")
        if name != key.name:
            raise errors.BadRequest(
                f"the name of the object ({name or ''}) does not match the name on the URL ({key.name})"
            )
        self._place(obj["metadata"], key.namespace)
        return await self._change(key, lambda old: obj, subresource, options)

    async def patch(self, body: Any, media_type: str, key: Key, subresource: str, options: WriteOptions) -> Object:
        """Patch or apply an object. Raise NotFound, Conflict, Invalid, BadRequest or UnsupportedMediaType."""
        if media_type == APPLY:
            return await self._apply(body, key, subresource, options)
        edits = {
            MERGE: lambda old: json_and_merge.merge_patch(old, body),
            JSON_PATCH: lambda old: json_and_merge.json_patch(old, body),
        }
        if media_type not in edits:
            raise errors.UnsupportedMediaType((JSON_PATCH, MERGE, APPLY))
        return await self._change(key, edits[media_type], subresource, options)

    async def delete(self, key: Key, asked: Object, options: WriteOptions) -> Object:
        """Return the object if a finalizer holds it, otherwise a Status. Raise NotFound or Conflict."""
        async with self._collection.writing(key):
            entry = await self._present(key)
            obj = entry.object
            metadata = obj["metadata"]
            self._check_preconditions(obj, asked.get("preconditions") or {})
            await self._admit("DELETE", None, obj, options, mutates=False)
            if not options.dry_run and not await self._is_held(obj, asked):
                await self._collection.delete(key)
            elif not options.dry_run:
                return (await self._present(key)).object
        resource = self._served.resource
        details = {"name": key.name, "group": resource.group, "kind": resource.plural, "uid": metadata["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    async def _is_held(self, obj: Object, asked: Object) -> bool:
        """Return whether finalizers hold the object; mark it as being deleted if they do."""
        metadata = obj["metadata"]
        holding = _PROPAGATION_FINALIZERS.get(str(asked.get("propagationPolicy") or ""))
        finalizers = list(dict.fromkeys([*(metadata.get("finalizers") or ()), *([holding] if holding else [])]))
        if not finalizers or not self._served.may_update:
            return False
        if "deletionTimestamp" in metadata and finalizers == metadata.get("finalizers"):
            return True
        metadata |= {"finalizers": finalizers, "deletionTimestamp": metadata.get("deletionTimestamp") or self._now()}
        metadata |= {"deletionGracePeriodSeconds": 0, "generation": metadata.get("generation", 0) + 1}
        kept = (await self._collection.update(obj)).object["metadata"]
        # A backend that does not store finalizers could never delete the object otherwise.
        return "deletionTimestamp" in kept and bool(kept.get("finalizers"))

    # Paths shared by verbs.

    async def _apply(self, body: Any, key: Key, subresource: str, options: WriteOptions) -> Object:
        applied = self._object(body)
        self._place(applied["metadata"], key.namespace)
        if applied["metadata"].setdefault("name", key.name) != key.name:
            raise errors.BadRequest("name in URL does not match name in provided object")
        ownership = self._served.ownership(subresource)

        def merge(live: Object | None) -> Object:
            manager, now = options.manager, self._now()
            return apply.apply(live, applied, ownership, manager=manager, now=now, force=options.force)

        if self._served.may_create and not subresource and await self._collection.get(key) is None:
            obj = merge(None)
            self._decode(obj, options)
            self._initialize(obj)
            return await self._add(obj, options)
        return await self._change(key, merge, subresource, options, is_applied=True)

    async def _add(self, obj: Object, options: WriteOptions) -> Object:
        obj = await self._admit("CREATE", obj, None, options, mutates=True)
        self._served.check(obj, None)
        await self._admit("CREATE", obj, None, options, mutates=False)
        key = key_of(obj)
        async with self._collection.writing(key):
            if await self._collection.get(key) is not None:
                resource = self._served.resource
                raise errors.AlreadyExists(group=resource.group, plural=resource.plural, name=key.name)
            return obj if options.dry_run else (await self._collection.create(obj)).object

    async def _change(
        self, key: Key, edit: Edit, subresource: str, options: WriteOptions, *, is_applied: bool = False
    ) -> Object:
        async with self._collection.writing(key):
            old = (await self._present(key)).object
            new = self._object(edit(deepcopy(old)))
            self._decode(new, options)
            new = self._successor(new, old, subresource)
            if not is_applied:
                ownership = self._served.ownership(subresource)
                managed_fields.after_update(old, new, ownership, manager=options.manager, now=self._now())
            managed_fields.keep_times(old, new)
            if not subresource:
                new = await self._admit("UPDATE", new, old, options, mutates=True)
            self._served.check(new, old)
            if not subresource:
                await self._admit("UPDATE", new, old, options, mutates=False)
            if options.dry_run or new == old:
                return new
            if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
                await self._collection.delete(key)
                return new
            return (await self._collection.update(new)).object

    # Steps of a write.

    async def _admit(
        self, operation: str, new: Object | None, old: Object | None, options: WriteOptions, *, mutates: bool
    ) -> Object:
        """Return the object as the operator's admission handlers changed it. Raise Forbidden if one denies it."""
        obj: Object = new if new is not None else old or {}
        for handler in self._admission.handlers_for(self._served.kind, operation, mutates=mutates):
            metadata, caller = obj["metadata"], options.caller
            request: Object = {"uid": new_uid(), "operation": operation, "dryRun": options.dry_run}
            request |= {"name": metadata.get("name", ""), "namespace": metadata.get("namespace", "")}
            request |= {"object": obj if new is not None else None, "oldObject": old}
            request["userInfo"] = {"username": caller.name, "groups": list(caller.groups), "uid": caller.uid}
            answer = (await review_admission(handler, {"request": request}))["response"]
            options.warnings.extend(answer.get("warnings") or ())
            if not answer["allowed"]:
                resource, name = self._served.resource, metadata.get("name", "")
                why = answer["status"]["message"]
                raise errors.Forbidden(why, group=resource.group, plural=resource.plural, name=name)
            if "patch" in answer:
                obj = json_and_merge.json_patch(obj, orjson.loads(base64.b64decode(answer["patch"])))
        return obj

    def _decode(self, obj: Object, options: WriteOptions) -> None:
        kind = self._served.kind
        given = (self._object(obj).get("apiVersion"), obj.get("kind"))
        if given != (kind.api_version, kind.name):
            raise errors.BadRequest(
                f"the object is of kind {given[1]} in {given[0]}; {kind.name} in {kind.api_version} is served here"
            )
        unknown = self._served.decode(obj)
        if options.validation == "Strict" and unknown:
            errs = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise errors.BadRequest(
                f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
                f"strict decoding error: {errs}"
            )
        if options.validation == "Warn":
            options.warnings.extend(f'unknown field "{path}"' for path in unknown)

    def _initialize(self, obj: Object) -> None:
        """Set the server's fields of a new object. A create does not set the status."""
        metadata = obj["metadata"]
        for name in (*_SERVER_FIELDS, "selfLink"):
            metadata.pop(name, None)
        metadata |= {"uid": new_uid(), "creationTimestamp": self._now(), "generation": 1}
        if self._served.resource.has_status:
            obj.pop("status", None)

    def _successor(self, new: Object, old: Object, subresource: str) -> Object:
        """Return the new object with the server's fields of the old one; for /status only the status is new.

        Raise Conflict if the client's resourceVersion or uid is not that of the old object.
        """
        before, now = old["metadata"], new["metadata"]
        self._check_preconditions(old, now)
        now.pop("selfLink", None)
        if subresource:
            kept = {**before, **{name: now[name] for name in ("managedFields",) if name in now}}
            return {**old, "metadata": kept, "status": new.get("status") or {}}
        for name in (*_SERVER_FIELDS, "resourceVersion"):
            now.pop(name, None)
        now |= {name: before[name] for name in (*_SERVER_FIELDS, "resourceVersion") if name in before}
        if self._served.resource.has_status:
            new.pop("status", None)
            new |= {"status": old["status"]} if "status" in old else {}
        if _desired(new) != _desired(old):
            now["generation"] = before.get("generation", 0) + 1
        return new

    def _check_preconditions(self, obj: Object, wanted: Object) -> None:
        """Raise Conflict if the client expects another resourceVersion or uid."""
        metadata, resource = obj["metadata"], self._served.resource
        about = {"group": resource.group, "plural": resource.plural, "name": metadata["name"]}
        uid, version = wanted.get("uid"), wanted.get("resourceVersion")
        if uid and uid != metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
            raise errors.Conflict(why, **about)
        if version and version != metadata["resourceVersion"]:
            raise errors.Conflict(errors.MODIFIED, **about)

    def _place(self, metadata: Object, namespace: str) -> None:
        """Set the namespace of the URL. Raise BadRequest if the object names another."""
        if not self._served.resource.namespaced:
            return
        if metadata.setdefault("namespace", namespace) != namespace:
            raise errors.BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request"
            )

    async def _present(self, key: Key) -> CollectionEntry:
        entry = await self._collection.get(key)
        if entry is None:
            resource = self._served.resource
            raise errors.NotFound(group=resource.group, plural=resource.plural, name=key.name)
        return entry

    def _object(self, value: Any) -> Object:
        if not isinstance(value, dict) or not isinstance(value.get("metadata") or {}, dict):
            raise errors.BadRequest(f"a {self._served.kind.name} is expected, which is a JSON object with metadata")
        if value.get("metadata") is None:
            value["metadata"] = {}
        return value

    def _now(self) -> str:
        return to_rfc3339(self._clock.now())


def _desired(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}
