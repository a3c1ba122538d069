"""Tasks that run as long as an object exists and matches: one for each object and daemon handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pinnace.model.objects import Key, Object
from pinnace.process.tasks import contain
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.failures import Permanent, Retry
from pinnace.reconcile.finalizers import is_being_deleted
from pinnace.sdk.handlers.handlers import DaemonHandler
from pinnace.sdk.operator.object_calls import ObjectReconciler, ObjectWork
from pinnace.sdk.operator.runtime import ObjectCaches, OperatorRuntime

_log = logging.getLogger(__name__)


class DaemonTasks:
    """The tasks of one daemon handler. They run while the operator works: with leader election, while it leads."""

    def __init__(self, runtime: OperatorRuntime, handler: DaemonHandler, work: ObjectWork) -> None:
        self._handler = handler
        self._manager = runtime.manager
        self._caches = ObjectCaches(runtime, handler.kind, handler.options)
        self._finalizer = work.finalizer
        self.calls = ObjectReconciler(runtime, work)
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._finished: dict[Key, str] = {}
        """Objects whose task has returned, with their uid: it is not started again."""
        self._failures: dict[Key, int] = {}
        self._group: asyncio.TaskGroup | None = None
        self._enqueue: Callable[..., None] = lambda *_, **__: None

    def attach(self, controller: Controller) -> None:
        self.calls.controller = controller
        self._enqueue = controller.enqueue

    async def run(self) -> None:
        """Own the tasks, until cancelled: they are cancelled then."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for informer in self._caches.informers:
                    for key in informer.cache:
                        self._enqueue(key, "the operator works here now")
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            self._tasks.clear()
            self._finished.clear()

    async def reconcile(self, key: Key) -> None:
        """Start the task of an object that has none, or stop the task of one that is gone."""
        obj = self._caches.get(key)
        if obj is None or is_being_deleted(obj):
            await self.stop(key)
            return
        uid = obj["metadata"]["uid"]
        if self._group is None or key in self._tasks or self._finished.get(key) == uid:
            return
        obj = await self._finalizer.prepare(obj)
        self._tasks[key] = self._group.create_task(self._run(key, obj), name=f"{self._handler.name} {key}")

    async def stop(self, key: Key) -> None:
        """Cancel the task of an object, and return when it has ended."""
        self._finished.pop(key, None)
        self._failures.pop(key, None)
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if self._tasks.get(key) is task:
                del self._tasks[key]

    async def _run(self, key: Key, obj: Object) -> None:
        shards = self._manager.shards
        if shards is None:
            await self._call(key, obj)
            return
        with shards.working(obj["metadata"]["uid"]) as is_ours:
            if is_ours:
                await self._call(key, obj)
            else:
                self._tasks.pop(key, None)

    async def _call(self, key: Key, obj: Object) -> None:
        options = self._handler.options
        fields = {"object": str(key), "handler": self._handler.name}
        again = 0.0
        try:
            again = await contain(self.calls.call, self._handler, obj)
        except Retry as retry:
            again = retry.after or options.backoff.delay(1)
            _log.info("%s waits at %s, again in %.3f s: %s", self._handler.name, key, again, retry.reason, extra=fields)
        except Permanent as error:
            _log.error("%s cannot run for %s: %s", self._handler.name, key, error, extra=fields)
        except Exception as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            if options.retries is None or failures <= options.retries:
                again = options.backoff.delay(failures)
            _log.error("%s failed at %s, again in %.3f s", self._handler.name, key, again, exc_info=error, extra=fields)
        self._tasks.pop(key, None)
        if self._caches.get(key) is None:
            return
        if again:
            self._enqueue(key, "the daemon ended", after=again)
        else:
            self._finished[key] = obj["metadata"]["uid"]
