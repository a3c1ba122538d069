"""Call a handler with the old and new value of a field, also for changes made while the operator did not run."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import orjson

from pinnace.client.mapping import kind_from
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Result
from pinnace.reconcile.failures import Permanent
from pinnace.reconcile.finalizers import is_being_deleted
from pinnace.sdk.handlers.handlers import FieldHandler
from pinnace.sdk.operator.object_calls import ObjectReconciler, ObjectWork
from pinnace.sdk.operator.runtime import ObjectCaches, OperatorRuntime

_LARGEST = 64 * 1024
_LONGEST_NAME = 63


class FieldReconciler:
    """Compares a field with the value that was handled last, which an annotation of the object holds."""

    def __init__(self, runtime: OperatorRuntime, handler: FieldHandler, work: ObjectWork) -> None:
        self._client = runtime.manager.client
        self._handler = handler
        self._annotation = annotation_of(runtime.declarations.name, handler)
        self._caches = ObjectCaches(runtime, handler.kind, handler.options)
        self._finalizer = work.finalizer
        self.calls = ObjectReconciler(runtime, work)

    async def reconcile(self, key: Key) -> Result | None:
        obj = self._caches.get(key)
        if obj is None or is_being_deleted(obj):
            return None
        handled = (obj["metadata"].get("annotations") or {}).get(self._annotation)
        old = orjson.loads(handled) if handled is not None else None
        new = value_at(obj, self._handler.path)
        if handled is not None and old == new:
            return None
        text = orjson.dumps(new).decode()
        if len(text) > _LARGEST:
            raise Permanent(
                f"{'.'.join(self._handler.path)} of {key} is larger than {_LARGEST} bytes; "
                "declare @operator.on_field for a smaller part of it"
            )
        obj = await self._finalizer.prepare(obj)
        after = await self.calls.call(self._handler, obj, old, new)
        if after:
            return Result(requeue_after=after)  # It has asked to be called again with this change.
        await self._note(obj, text)
        return None

    async def _note(self, obj: Object, text: str) -> None:
        metadata = obj["metadata"]
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {self._annotation: text}}}
        try:
            await self._client.patch(
                kind_from(self._handler.kind), metadata["name"], patch, namespace=metadata.get("namespace", "")
            )
        except errors.NotFound:
            return  # It was removed while the handler worked.


def annotation_of(operator: str, handler: FieldHandler) -> str:
    """Return the annotation that holds the last handled value: operator/spec.storage-resize."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{'.'.join(handler.path)}-{handler.name.strip('_')}")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:50]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{operator}/{name}"


def value_at(obj: Object, path: tuple[str, ...]) -> Any:
    """Return the value of a field; None if it is missing."""
    value: Any = obj
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value
