"""Finalizers, which hold an object until its effects elsewhere are cleaned up."""

from __future__ import annotations

from typing import cast

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import AnyObject, Object, SameType, kind_of

_ATTEMPTS = 5


def is_being_deleted(obj: AnyObject) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def has_finalizer(obj: AnyObject, finalizer: str) -> bool:
    return finalizer in (obj["metadata"].get("finalizers") or ())


async def ensure_finalizer(client: Client, obj: SameType, finalizer: str) -> SameType:
    """Add a finalizer and return the object. Raise Conflict if it has changed: the next reconcile reads it again."""
    if has_finalizer(obj, finalizer):
        return obj
    written = await _write(client, obj, [*(obj["metadata"].get("finalizers") or ()), finalizer])
    return cast("SameType", written)


async def remove_finalizer(client: Client, obj: AnyObject, finalizer: str) -> None:
    """Remove a finalizer. An object that no longer exists is no error.

    After a conflict it is removed from the newer object, since the clean-up is done. Raise Conflict after five
    conflicts in a row.
    """
    latest: AnyObject | None = obj
    metadata = obj["metadata"]
    for attempt in range(1, _ATTEMPTS + 1):
        if latest is None or latest["metadata"]["uid"] != metadata["uid"] or not has_finalizer(latest, finalizer):
            return
        left = [name for name in latest["metadata"]["finalizers"] if name != finalizer]
        try:
            await _write(client, latest, left)
            return
        except errors.NotFound:
            return
        except errors.Conflict:
            if attempt == _ATTEMPTS:
                raise
        latest = await client.get_or_none(kind_of(obj), metadata["name"], namespace=metadata.get("namespace", ""))


async def _write(client: Client, obj: AnyObject, finalizers: list[str]) -> Object:
    metadata = obj["metadata"]
    # With the version: a merge patch replaces the whole list, and another manager's finalizer must not be lost.
    patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
    return await client.patch(kind_of(obj), metadata["name"], patch, namespace=metadata.get("namespace", ""))
