"""The finalizer of a kind with an on_delete handler: added before any handler runs, removed when it is not needed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object, key_of
from pinnace.reconcile.finalizers import ensure_finalizer, has_finalizer, remove_finalizer
from pinnace.sdk.handlers.handlers import CleanupHandler
from pinnace.sdk.handlers.permissions import missing_permission
from pinnace.sdk.operator.runtime import ObjectCaches, OperatorRuntime

_NAMED = 5
_log = logging.getLogger(__name__)


def finalizer_name(operator: str, kind: Kind) -> str:
    return f"{kind.group}/{operator}" if kind.group else f"{operator}/finalizer"


class KindFinalizer:
    """The finalizer of one kind. Without an on_delete handler it is only taken back."""

    def __init__(self, runtime: OperatorRuntime, kind: Kind, cleanup: CleanupHandler | None) -> None:
        self.name = finalizer_name(runtime.declarations.name, kind)
        self._kind = kind
        self._runtime = runtime
        self._manager = runtime.manager
        self._client = runtime.manager.client
        self._namespaces = runtime.declarations.namespaces or ("",)
        self._cleanup = cleanup
        self._caches = ObjectCaches(runtime, kind, cleanup.options) if cleanup is not None else None
        self._is_selective = cleanup is not None and bool(cleanup.options.labels or cleanup.options.fields)

    def covers(self, key: Key) -> bool:
        """Return whether the on_delete handler is called for this object."""
        return self._caches is not None and key in self._caches

    async def prepare(self, obj: Object) -> Object:
        """Add the finalizer to an object that the on_delete handler covers, before its other handlers run."""
        if not self.covers(key_of(obj)):
            return obj
        return await ensure_finalizer(self._client, obj, self.name)

    async def release(self, obj: Object) -> None:
        await remove_finalizer(self._client, obj, self.name)

    async def release_left(self, key: Key) -> None:
        """Take the finalizer back from an object that has left the selector, if it still exists."""
        if not self._is_selective:
            return  # It is not in the cache because it is gone.
        obj = await self._client.get_or_none(self._kind, key.name, namespace=key.namespace)
        if obj is None or not self._runtime.is_ours(obj):
            return
        if has_finalizer(obj, self.name) and not self.covers(key):
            await self.release(obj)
            _log.info(
                "took back the finalizer %s of %s %s: it no longer matches",
                self.name,
                self._kind.name,
                key,
                extra={"object": str(key)},
            )

    async def release_unneeded(self) -> None:
        """Take the finalizer back, at the start, from objects that no on_delete handler covers. Log which."""
        released = []
        try:
            for obj in [obj async for obj in self._unneeded()]:
                await self.release(obj)
                released.append(key_of(obj))
        except (errors.ApiError, ConnectionLost, NoCredentials) as error:
            missing = missing_permission(error) if isinstance(error, errors.Forbidden) else None
            _log.warning("cannot take back the finalizer %s of %s: %s", self.name, self._kind.name, missing or error)
        if not released:
            return
        reason = "has no on_delete handler for them" if self._cleanup is None else "selects others in on_delete"
        names = ", ".join(str(key) for key in released[:_NAMED]) + (", ..." if len(released) > _NAMED else "")
        _log.info(
            "took back the finalizer %s of %d %s objects, because the operator now %s: %s",
            self.name,
            len(released),
            self._kind.name,
            reason,
            names,
        )

    async def _unneeded(self) -> AsyncIterator[Object]:
        if self._cleanup is None:
            mark = self.name.encode()
            for informer in self._manager.informers:
                if informer.scope.kind == self._kind and not informer.scope.metadata_only:
                    for snapshot in informer.cache.snapshots():
                        is_marked = mark in snapshot.body and has_finalizer(snapshot.object, self.name)
                        if is_marked and self._runtime.is_ours(snapshot.object):
                            yield snapshot.object
        elif self._is_selective:
            for namespace in self._namespaces:
                async for page in self._client.pages(self._kind, namespace=namespace, metadata_only=True):
                    for obj in page.items:
                        is_ours = self._runtime.is_ours(obj)
                        if is_ours and has_finalizer(obj, self.name) and not self.covers(key_of(obj)):
                            # A list of metadata names another kind.
                            yield {**obj, "apiVersion": self._kind.api_version, "kind": self._kind.name}
