"""Call one handler for one object: read the object, keep its finalizer, store its status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.typed import typed
from pinnace.model import errors
from pinnace.model.objects import Key, Object, key_of
from pinnace.process.clock import AlarmClock
from pinnace.reconcile.controller import STILL_WAITING, Controller, Result
from pinnace.reconcile.deadlines import deadline
from pinnace.reconcile.failures import Permanent, Retry, handler_of, set_handler
from pinnace.reconcile.finalizers import has_finalizer, is_being_deleted
from pinnace.reconcile.history import Reason, differences
from pinnace.sdk.handlers.calls import call_in_thread, is_async
from pinnace.sdk.handlers.handlers import CleanupHandler, ObjectHandler, ReconcileHandler
from pinnace.sdk.handlers.permissions import missing_permission
from pinnace.sdk.handlers.validation_messages import validation_message
from pinnace.sdk.operator.context import Context, Trigger
from pinnace.sdk.operator.finalizing import KindFinalizer
from pinnace.sdk.operator.logs import HANDLED, HandledObject, Log
from pinnace.sdk.operator.runtime import ObjectCaches, OperatorRuntime
from pinnace.sdk.operator.statuses import StatusChange, clear_waiting, set_waiting
from pinnace.sdk.resources.custom_resource import CustomResource

Handler = Callable[..., Any]
Stop = Callable[[Key], Any]

_TRIGGERS: dict[str, Trigger] = {"added": "created", "modified": "changed"}
_ORDER: tuple[Trigger, ...] = ("created", "resumed", "changed", "related", "resync")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWork:
    """The handlers of one controller, and the objects for which they are called."""

    kind: KindLike
    handler: ObjectHandler | None = None
    cleanup: CleanupHandler | None = None
    every: float = 0.0
    """Call the handler again after so many seconds; 0 is never."""
    finalizer: KindFinalizer
    on_delete: Stop | None = None
    """Called with the key before the clean-up."""


class ObjectReconciler:
    """Calls the handlers of one controller for one key."""

    def __init__(self, runtime: OperatorRuntime, work: ObjectWork) -> None:
        self._runtime = runtime
        self._declarations = runtime.declarations
        self._manager = runtime.manager
        self._work = work
        selecting = work.handler or work.cleanup
        assert selecting is not None
        self._caches = ObjectCaches(runtime, work.kind, selecting.options)
        self._waiting_handlers = runtime.waiting_of(work.kind)
        self._waiting: dict[Key, str] = {}
        """The version of the status that a call has stored before it failed or asked for a later call."""
        self._loops = WriteLoops(runtime.manager.client.clock)
        self._wrong_results: set[str] = set()
        """The handlers whose results have been reported."""
        self.controller: Controller | None = None
        """The controller that calls `reconcile`: it knows the causes."""

    async def reconcile(self, key: Key) -> Result | None:
        obj = self._caches.get(key)
        if obj is None:
            self._waiting_handlers.forget(key)
            self._loops.forget(key)
            if self._work.cleanup is not None:
                await self._work.finalizer.release_left(key)
            return None
        if self._is_waiting(key, obj):
            return STILL_WAITING
        try:
            return await self._reconcile(obj)
        except errors.Forbidden as denied:
            missing = missing_permission(denied, self._declarations.permissions())
            if missing is None:
                raise
            set_handler(missing, handler_of(denied))
            raise missing from denied

    def _is_waiting(self, key: Key, obj: Object) -> bool:
        """Return whether nothing has happened since a call that asked to be repeated later, except its own status."""
        is_own = self._waiting.get(key) == obj["metadata"]["resourceVersion"]
        return is_own and self.controller is not None and self.controller.queue.due_in(key) > 0

    async def _reconcile(self, obj: Object) -> Result | None:
        work = self._work
        if is_being_deleted(obj):
            return await self._clean_up(obj)
        obj = await work.finalizer.prepare(obj)
        if work.handler is None:
            return None
        after = await self.call(work.handler, obj) or work.every
        return Result(requeue_after=after) if after else None

    async def _clean_up(self, obj: Object) -> Result | None:
        work = self._work
        if work.cleanup is None or not has_finalizer(obj, work.finalizer.name):
            return None
        if work.on_delete is not None:
            await work.on_delete(key_of(obj))
        after = await self.call(work.cleanup, obj)
        if after:
            return Result(requeue_after=after)  # It has asked to be called again: the finalizer stays.
        await work.finalizer.release(self._caches.get(key_of(obj)) or obj)
        return None

    async def call(self, handler: ObjectHandler, obj: Object, *arguments: Any) -> float:
        """Call a handler, store the status that it leaves even if it fails, and return the delay of the next call."""
        try:
            return await self._call(handler, obj, *arguments)
        except Exception as error:
            set_handler(error, handler.name)
            raise

    async def _call(self, handler: ObjectHandler, obj: Object, *arguments: Any) -> float:
        instance = self._typed(obj)
        status = StatusChange(self._manager.client, self._declarations.name, obj, instance)
        untouched = _without_status(instance)
        key = key_of(obj)
        log = Log(logging.getLogger(self._declarations.name), {"object": str(key), "handler": handler.name})
        ctx = Context(self._runtime, obj, instance, log=log, trigger=self._trigger(key, obj))
        token = HANDLED.set(HandledObject(str(key), handler.name))
        try:
            result = await self._run(handler, ctx, instance, *arguments)
        except Exception as error:
            if isinstance(error, Retry):
                # The status that says why must not be the reason for a call before the time is over.
                self._waiting_handlers.add(key, handler.name, error.reason)
                set_waiting(instance, obj, error.reason, self._manager.client.clock)
            try:
                self._waiting[key] = await status.store()
            except errors.ApiError as unstored:
                log.warning("the status was not stored: %s", unstored)  # The handler's own error is the one to raise.
            raise
        finally:
            HANDLED.reset(token)
        waits_for = self._waiting_handlers.remove(key, handler.name)
        if waits_for is None:
            clear_waiting(instance)
        else:  # Another handler of the object still waits.
            set_waiting(instance, obj, waits_for, self._manager.client.clock)
        self._waiting.pop(key, None)
        self._loops.note(obj, await status.store(), status.changes, ctx)
        self._loops.note_applied(obj, self._reasons(key), ctx)
        if isinstance(handler, ReconcileHandler) and handler.prune:
            await ctx.prune(handler.owns)
        _check_untouched(handler, key, untouched, _without_status(instance))
        self._check_result(handler, result, log)
        return result.requeue_after if isinstance(result, Result) else ctx.requeue_after

    def _check_result(self, handler: ObjectHandler, result: Any, log: Log) -> None:
        """Log once that the result of a handler has no effect."""
        if result is None or isinstance(result, Result) or handler.name in self._wrong_results:
            return
        self._wrong_results.add(handler.name)
        log.warning(
            "%s returned a %s, which has no effect: write ctx.requeue(seconds) for another call, and set the status of "
            "the object to report something",
            handler.name,
            type(result).__name__,
        )

    def _reasons(self, key: Key) -> tuple[Reason, ...]:
        return self.controller.reasons(key) if self.controller is not None else ()

    async def _run(self, handler: ObjectHandler, ctx: Context, instance: Any, *arguments: Any) -> Any:
        timeout, clock = handler.options.timeout, self._manager.client.clock
        call = call_in_thread(self._runtime.threads, handler.handler, instance, ctx, *arguments)
        if not timeout:
            return await call
        if is_async(handler.handler):
            async with deadline(clock, timeout):
                return await call
        # A thread cannot be cancelled. The object's next turn must wait for it, as for any call.
        alarm = clock.call_later(timeout, ctx.expire)
        try:
            result = await call
        finally:
            alarm.cancel()
        if ctx.is_expired:
            raise TimeoutError(f"{handler.name} took longer than {timeout:g} s")
        return result

    def _trigger(self, key: Key, obj: Object) -> Trigger:
        if is_being_deleted(obj):
            return "deleted"
        triggers: set[Trigger] = set()
        for reason in self._reasons(key):
            if reason.kind is None:
                triggers.add("resync" if reason.what == "resync" else "requeued")
            elif reason.key == key and reason.kind == kind_from(self._work.kind):
                triggers.add("resumed" if reason.is_initial else _TRIGGERS.get(reason.what, "changed"))
            else:
                triggers.add("related")
        return next((trigger for trigger in _ORDER if trigger in triggers), "requeued")

    def _typed(self, obj: Object) -> Any:
        try:
            return typed(self._work.kind, obj)
        except ValueError as error:  # Pydantic's and msgspec's validation errors are ValueErrors.
            # The object was stored with another schema. A retry cannot succeed before the object changes.
            name = getattr(self._work.kind, "__name__", self._work.kind)
            message = f"the stored object does not fit the class {name}: {validation_message(error)}"
            raise Permanent(message) from None


def _without_status(instance: Any) -> Any:
    """Return a copy of everything that a handler must not change, for comparison."""
    if isinstance(instance, CustomResource):
        return instance.model_dump(exclude={"status"})
    if isinstance(instance, dict):
        return deepcopy({name: value for name, value in instance.items() if name != "status"})
    return None


def _check_untouched(handler: ObjectHandler, key: Key, before: Any, after: Any) -> None:
    """Raise Permanent if a handler has changed a field that is not stored."""
    if before == after:
        return
    changed = next(name for name in {**before, **after} if before.get(name) != after.get(name))
    raise Permanent(
        f"{handler.name} has changed {changed} of {key}, but only the status is stored: "
        f"write it with ctx.client.update or ctx.client.patch, or in @operator.mutate before it is stored"
    )


CALLS = 25
_NAMED = 3
SECONDS = 25.0
"""Report so many calls in a row within this time, once. Observations of the world change more slowly."""


@dataclass(slots=True)
class _Streak:
    cause: tuple[Any, ...]
    """The writes of the last call: the version of its object, or the objects that it applied."""
    since: float
    calls: int = 1
    is_reported: bool = False


@dataclass(frozen=True, slots=True)
class WriteLoops:
    """Counts the calls in a row that were caused by what the call before had written, and wrote it again."""

    clock: AlarmClock
    _statuses: dict[Key, _Streak] = field(default_factory=dict)
    _applied: dict[Key, _Streak] = field(default_factory=dict)

    def note(self, obj: Object, version: str, changes: Object, ctx: Context) -> None:
        """Note a call for `obj` that wrote its status, so that it has this `version`; an empty one is no write."""
        key = key_of(obj)
        streak = self._statuses.get(key)
        if not version:
            self._statuses.pop(key, None)
        elif streak is None or streak.cause != (obj["metadata"]["resourceVersion"],):
            self._statuses[key] = _Streak((version,), self.clock.monotonic())
        elif self._continues(streak, (version,)):
            self._report(
                ctx,
                f"every call changes the status ({', '.join(sorted(changes))}), and each change is the reason for the "
                f"next call: {self._count(streak)}. Store values that stay the same while nothing happens: no "
                "counters, no current time",
            )

    def note_applied(self, obj: Object, reasons: Sequence[Reason], ctx: Context) -> None:
        """Note a call for `obj` and the owned or watched objects that it has changed."""
        key = key_of(obj)
        changed = {(change.kind, change.key): change for change in ctx.changed if change.before is not None}
        streak = self._applied.get(key)
        causes = {(reason.kind, reason.key) for reason in reasons}
        if not changed:
            if streak is None or not causes.intersection(streak.cause):
                self._applied.pop(key, None)
            return  # A call may come between the write of another client and its event.
        again = [place for place in changed if streak is not None and place in streak.cause and place in causes]
        if streak is None or not again:
            self._applied[key] = _Streak(tuple(changed), self.clock.monotonic())
        elif self._continues(streak, tuple(changed)):
            change = changed[again[0]]
            fields = [at for at in differences(change.before, change.after) if not at.startswith(".status")]
            self._report(
                ctx,
                f"every call changes {', '.join(fields[:_NAMED]) or 'a field'} of {change.kind.name} {change.key}, and "
                f"each change is the reason for the next call: {self._count(streak)}. Apply values that stay the same "
                "while nothing happens, and leave fields to one writer: another client may write this one, too",
            )

    def forget(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._statuses.pop(key, None)
        self._applied.pop(key, None)

    def _continues(self, streak: _Streak, cause: tuple[Any, ...]) -> bool:
        """Count a call of a streak. Return whether there are enough now to report it, for the first time."""
        streak.cause = cause
        streak.calls += 1
        if streak.calls < CALLS or streak.is_reported:
            return False
        now = self.clock.monotonic()
        if now - streak.since > SECONDS:
            streak.calls, streak.since = 1, now
            return False
        streak.is_reported = True
        return True

    def _count(self, streak: _Streak) -> str:
        return f"{streak.calls} calls in {self.clock.monotonic() - streak.since:.1f} s"

    def _report(self, ctx: Context, message: str) -> None:
        ctx.log.warning("%s", message)
        ctx.event("EndlessLoop", message, type="Warning")
