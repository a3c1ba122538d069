"""The controllers that call an operator's handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.typed import typed
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object, kind_of
from pinnace.reconcile.controller import Controller, Permanent, Result
from pinnace.reconcile.finalizers import ensure_finalizer, has_finalizer, is_being_deleted, remove_finalizer
from pinnace.reconcile.manager import Manager
from pinnace.sdk.handlers.calls import call
from pinnace.sdk.handlers.handlers import ReconcileHandler, TimerHandler
from pinnace.sdk.handlers.permissions import missing_permission
from pinnace.sdk.operator.change_reports import report_controller
from pinnace.sdk.operator.context import Context
from pinnace.sdk.operator.declarations import Declarations
from pinnace.sdk.operator.statuses import read_assigned_status, status_changes, status_of

Handler = Callable[..., Any]


def controllers_of(declarations: Declarations, manager: Manager) -> list[Controller]:
    """Return one controller for each handler, and one for each kind that has only an on_delete handler."""
    for index in declarations.indexes:
        manager.cache(kind_from(index.kind)).add_index(index.name, index.function)
    cleanups = {kind_from(one.kind): one for one in declarations.cleanups}
    names = _Names(declarations.name)
    controllers = []
    for handler in declarations.reconciles:
        # Only the first controller of a kind cleans up: two would remove the finalizer twice.
        cleanup = cleanups.pop(kind_from(handler.kind), None)
        work = _Work(
            kind=handler.kind,
            handler=handler.handler,
            cleanup=cleanup.handler if cleanup is not None else None,
            labels=handler.labels,
            fields=handler.fields,
        )
        reconcile = _Reconciler(declarations, manager, work).reconcile
        controllers.append(_reconcile_controller(names.choose(handler.kind), reconcile, handler))
    for cleanup in cleanups.values():
        work = _Work(kind=cleanup.kind, cleanup=cleanup.handler)
        controller = Controller(
            names.choose(cleanup.kind), _Reconciler(declarations, manager, work).reconcile, workers=4
        )
        controllers.append(controller.for_(kind_from(cleanup.kind), namespace=declarations.namespace))
    for timer in declarations.timers:
        controllers.append(_timer_controller(names.choose(timer.kind, suffix="timer"), declarations, manager, timer))
    for change in declarations.changes:
        name = names.choose(change.kind, suffix="changes")
        controllers.append(report_controller(name, manager, change, namespace=declarations.namespace))
    return controllers


def _reconcile_controller(name: str, reconcile: Any, handler: ReconcileHandler) -> Controller:
    controller = Controller(name, reconcile, workers=handler.workers, resync=handler.resync)
    controller.for_(kind_from(handler.kind), namespace=handler.namespace, labels=handler.labels, fields=handler.fields)
    for kind in handler.owns:
        controller.owns(kind_from(kind), namespace=handler.namespace)
    for kind, to_keys in handler.watches:
        controller.watches(kind_from(kind), to_keys, namespace=handler.namespace)
    return controller


def _timer_controller(name: str, declarations: Declarations, manager: Manager, timer: TimerHandler) -> Controller:
    work = _Work(kind=timer.kind, handler=timer.handler, labels=timer.labels, every=timer.seconds)
    return Controller(name, _Reconciler(declarations, manager, work).reconcile, workers=4).for_(
        kind_from(timer.kind),
        namespace=declarations.namespace,
        labels=timer.labels,
        when=lambda old, new: old is None,  # The first call; the timer requeues the object from then on.
    )


class _Names:
    """Chooses a unique name for each controller of an operator."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._taken: set[str] = set()

    def choose(self, kind: KindLike, *, suffix: str = "") -> str:
        name = "-".join(part for part in (self._operator, kind_from(kind).name.lower(), suffix) if part)
        number = 1
        while (unique := name if number == 1 else f"{name}-{number}") in self._taken:
            number += 1
        self._taken.add(unique)
        return unique


class _ObjectLog(logging.LoggerAdapter[logging.Logger]):
    """Prefixes each message with the object's key."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        return f"{(self.extra or {}).get('object')}: {msg}", kwargs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The handlers of one controller, and the objects for which they are called."""

    kind: KindLike
    handler: Handler | None = None
    cleanup: Handler | None = None
    labels: str = ""
    fields: str = ""
    every: float = 0.0
    """Call the handler again after so many seconds; 0 is never."""


class _Reconciler:
    """Calls one handler for one key: reads the object, keeps the finalizer, stores the status."""

    def __init__(self, declarations: Declarations, manager: Manager, work: _Work) -> None:
        self._declarations = declarations
        self._operator = declarations.name
        self._manager = manager
        self._work = work
        kind = kind_from(work.kind)
        # Every handler of the kind waits for the finalizer: the clean-up covers the effects of all of them.
        self._needs_finalizer = any(kind_from(known.kind) == kind for known in declarations.cleanups)
        self._finalizer = _finalizer(declarations.name, kind)
        self._cache = manager.cache(kind, namespace=declarations.namespace, labels=work.labels, fields=work.fields)

    async def reconcile(self, key: Key) -> Result | None:
        obj = self._cache.get(key)
        if obj is None:
            return None
        try:
            return await self._reconcile(obj)
        except errors.Forbidden as denied:
            missing = missing_permission(denied, self._declarations.permissions())
            if missing is None:
                raise
            raise missing from denied

    async def _reconcile(self, obj: Object) -> Result | None:
        client, work = self._manager.client, self._work
        if is_being_deleted(obj):
            if work.cleanup is not None and has_finalizer(obj, self._finalizer):
                await self._call(work.cleanup, obj)
                latest = self._cache.get(Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])) or obj
                await remove_finalizer(client, latest, self._finalizer)
            return None
        if self._needs_finalizer:
            obj = await ensure_finalizer(client, obj, self._finalizer)
        if work.handler is None:
            return None
        after = await self._call(work.handler, obj) or work.every
        return Result(requeue_after=after) if after else None

    async def _call(self, handler: Handler, obj: Object) -> float:
        """Call a handler, store the status that it leaves even if it fails, and return the delay of the next call."""
        typed = self._to_type(obj)
        # The handler changes a plain object in place: copy the stored status before the call.
        stored, before = status_of(obj), status_of(typed)
        key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        log = _ObjectLog(logging.getLogger(self._operator), {"object": str(key)})
        ctx = Context(self._manager, obj, typed, operator=self._operator, log=log)
        try:
            result = await call(handler, typed, ctx)
        except Exception:
            try:
                await self._store_status(obj, typed, stored, before)
            except errors.ApiError as error:
                log.warning("the status was not stored: %s", error)  # The handler's own error is the one to raise.
            raise
        await self._store_status(obj, typed, stored, before)
        if isinstance(result, Result):
            return result.requeue_after
        return ctx.requeue_after

    def _to_type(self, obj: Object) -> Any:
        try:
            return typed(self._work.kind, obj)
        except ValueError as error:  # Pydantic's and msgspec's validation errors are ValueErrors.
            # The object was stored with another schema. A retry cannot succeed before the object changes.
            name = getattr(self._work.kind, "__name__", self._work.kind)
            raise Permanent(f"the stored object does not fit the class {name}: {error}") from None

    async def _store_status(self, obj: Object, typed: Any, stored: Object, before: Object) -> None:
        changes = status_changes(stored, before, status_of(typed), read_assigned_status(typed))
        if not changes:
            return
        metadata = obj["metadata"]
        # With the uid, so that the status is not stored on another object that has taken the name.
        patch = {"metadata": {"uid": metadata["uid"]}, "status": changes}
        try:
            await self._manager.client.patch(
                kind_of(obj),
                metadata["name"],
                patch,
                namespace=metadata.get("namespace", ""),
                subresource="status",
                field_manager=self._operator,
            )
        except errors.NotFound:
            return  # The object was removed while the handler worked.


def _finalizer(operator: str, kind: Kind) -> str:
    return f"{kind.group}/{operator}" if kind.group else f"{operator}/finalizer"
