"""A controller: what it watches, and the function that brings one object to how it should be.

    async def reconcile(key: Key) -> Result | None:
        site = manager.cache("example.com/v1/Website").get(key)
        if site is not None:
            await manager.client.apply(deployment_of(site))

    controller = Controller("website", reconcile, workers=4)
    controller.for_("example.com/v1/Website").owns("apps/v1/Deployment")
    manager.add(controller)

`reconcile` is given a key, never an event: it looks at how things are now, and may be called at any time. For one
key it is never called twice at once. What it raises is shown in an Event, counted, and tried again, later each time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, Self, Unpack

from pinnace.client.client import Client
from pinnace.client.mapping import KindName, kind_from
from pinnace.client.refusals import is_of_leaving_namespace
from pinnace.client.retries import Backoff
from pinnace.client.snapshots import Snapshot
from pinnace.model import errors
from pinnace.model.exposition import Labels
from pinnace.model.objects import Key, Kind, Object
from pinnace.reconcile import metrics as names
from pinnace.reconcile.events import EventRecorder
from pinnace.reconcile.history import Change, History, Reason, Run
from pinnace.reconcile.informer import Informer, Informers, Scope, Selection
from pinnace.reconcile.metrics import Metrics, QueueMetrics
from pinnace.reconcile.owners import is_of_kind
from pinnace.reconcile.predicates import Predicate
from pinnace.reconcile.queue import RETRIES, Closed, Queue
from pinnace.reconcile.tracing import span

LOW = -100
"""The priority of what is looked at only because everything is: what happens meanwhile comes first."""
GRACE = 5.0
"""Seconds that a reconcile has to finish when its controller stops. A lost lease leaves no more than that."""

_REMEMBERED = 100
"""Namespaces of which it has been told that they are being deleted."""
_OUTCOMES = ("success", "requeue_after", "error")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a reconcile may return: when to look again, although nothing has changed."""

    requeue_after: float = 0.0


class Permanent(Exception):
    """Raised by a reconcile that will fail for as long as the object is as it is: it is not tried again."""


class Reported(Exception):
    """Raised by a reconcile that failed and has recorded its own Event or condition: tried again without another."""


Reconcile = Callable[[Key], Awaitable[Result | None]]
ToKeys = Callable[[Object], Iterable[Key]]
"""Which of the controller's own objects are concerned when this one changes."""


class Surroundings(Protocol):
    """What a controller needs of its manager."""

    @property
    def client(self) -> Client: ...

    @property
    def informers(self) -> Informers: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def recorder(self) -> EventRecorder: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """Objects that the controller looks at, and whom their changes concern."""

    scope: Scope
    when: Predicate | None
    concerns: Callable[[Snapshot], Iterable[Key]]


class Controller:
    """Reconciles the objects of one kind, several at a time."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 1,
        backoff: Backoff = RETRIES,
        resync: float = 0.0,
    ) -> None:
        """`resync` is how often, in seconds, every object is looked at although nothing has changed; 0 for never."""
        self.name = name
        self.workers = workers
        self._reconcile = reconcile
        self._backoff = backoff
        self._resync = resync
        self._watched: list[_Watched] = []
        self._own_kind: Kind | None = None
        self._own: Informer | None = None
        self._history = History()
        self._leaving: dict[str, None] = {}
        self._queue: Queue[Key] | None = None
        self._surroundings: Surroundings | None = None
        self._labels: Labels = (("controller", name),)

    # What to watch

    def for_(self, kind: KindName, *, when: Predicate | None = None, **selection: Unpack[Selection]) -> Self:
        """The kind that is reconciled: a change of an object means its own key. `when` says which changes count."""
        self._own_kind = kind_from(kind)
        return self._watch(Scope(self._own_kind, **selection), when, lambda snapshot: (snapshot.key,))

    def owns(self, kind: KindName, *, when: Predicate | None = None, **selection: Unpack[Selection]) -> Self:
        """A kind that is made for the reconciled one: a change means the key of the owner that controls it."""
        return self._watch(Scope(kind_from(kind), **selection), when, self._controllers_of)

    def watches(
        self, kind: KindName, to_keys: ToKeys, *, when: Predicate | None = None, **selection: Unpack[Selection]
    ) -> Self:
        """Any other kind: `to_keys` says whom a change of one of its objects concerns.

        It is asked of the old object and of the new one: who was concerned until now wants to know, too.
        """
        return self._watch(Scope(kind_from(kind), **selection), when, lambda snapshot: to_keys(snapshot.object))

    def watches_encoded(
        self, kind: KindName, to_keys: Callable[[Snapshot], Iterable[Key]], **selection: Unpack[Selection]
    ) -> Self:
        """Like `watches`, for kinds that change often: `to_keys` reads the encoded object, with `derive` at best."""
        return self._watch(Scope(kind_from(kind), **selection), None, to_keys)

    def _watch(self, scope: Scope, when: Predicate | None, concerns: Callable[[Snapshot], Iterable[Key]]) -> Self:
        if self._surroundings is not None:
            raise RuntimeError(f"say all that {self.name} watches before it is added to a manager")
        self._watched.append(_Watched(scope=scope, when=when, concerns=concerns))
        return self

    def _controllers_of(self, snapshot: Snapshot) -> Iterable[Key]:
        if self._own_kind is None or self._own is None or self._own.namespaced is None:
            return  # The owners are not known yet: they come, each with its own key.
        for owner in snapshot.metadata.get("ownerReferences") or ():
            if owner.get("controller") and is_of_kind(owner, self._own_kind):
                yield Key(snapshot.key.namespace if self._own.namespaced else "", owner["name"])

    # What to do

    def enqueue(self, key: Key, reason: str | Reason, *, after: float = 0.0, priority: int = 0) -> None:
        """Look at an object, now or later; `reason` is for those who ask why."""
        self._history.expect(key, reason if isinstance(reason, Reason) else Reason(reason))
        self.queue.add_after(key, after, priority=priority)

    def why(self, key: Key) -> list[Run]:
        """The last reconciles of an object with what made them happen, the newest first."""
        return list(self._history.of(key))

    def latest(self) -> Iterator[Run]:
        """The last reconciles of all objects, the newest first."""
        return self._history.latest()

    @property
    def kind(self) -> Kind | None:
        """The kind that is reconciled."""
        return self._own_kind

    @property
    def queue(self) -> Queue[Key]:
        if self._queue is None:
            raise RuntimeError(f"the controller {self.name} must be added to a manager first")
        return self._queue

    # Running

    def attach(self, surroundings: Surroundings) -> None:
        """Begin to listen; called by the manager that it is added to."""
        self._surroundings = surroundings
        metrics = surroundings.metrics
        queue: Queue[Key] = Queue(
            clock=surroundings.client.clock, backoff=self._backoff, observer=QueueMetrics(metrics, self.name)
        )
        self._queue = queue
        for watched in self._watched:
            informer = surroundings.informers.of(watched.scope)
            if watched.scope.kind == self._own_kind and self._own is None:
                self._own = informer
            self._listen(informer, watched)
        for outcome in _OUTCOMES:
            metrics.count(names.RECONCILES, (*self._labels, ("result", outcome)), by=0)
        for counter in (names.ERRORS, names.TERMINAL_ERRORS):
            metrics.count(counter, self._labels, by=0)
        both = (("name", self.name), ("controller", self.name))
        metrics.gauge("workqueue_depth", "Current depth of workqueue", lambda: [(both, queue.depth)])
        metrics.gauge(
            "workqueue_unfinished_work_seconds",
            "How long in seconds the items that are being worked on have been so, together",
            lambda: [(both, sum(queue.unfinished_seconds()))],
        )
        metrics.gauge(
            "workqueue_longest_running_processor_seconds",
            "How long in seconds the longest running worker has been working",
            lambda: [(both, max(queue.unfinished_seconds(), default=0.0))],
        )
        metrics.gauge(
            "controller_runtime_active_workers",
            "Number of currently used workers per controller",
            lambda: [(self._labels, queue.working)],
        )
        metrics.gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            lambda: [(self._labels, self.workers)],
        )

    def _listen(self, informer: Informer, watched: _Watched) -> None:
        def changed(old: Snapshot | None, new: Snapshot | None) -> None:
            latest = new or old
            assert latest is not None
            if watched.when is not None and not watched.when(_decoded(old), _decoded(new)):
                return
            concerned = [key for snapshot in (new, old) if snapshot is not None for key in watched.concerns(snapshot)]
            if not concerned:
                return
            what = "deleted" if new is None else "added" if old is None else "modified"
            change = Change(old, new) if old is not None and new is not None else None
            reason = Reason(what, informer.scope.kind, latest.key, latest.version, change)
            priority = 0 if informer.is_synced else LOW
            for key in dict.fromkeys(concerned):
                self.enqueue(key, reason, priority=priority)

        informer.on_change(changed)

    async def run(self) -> None:
        """Reconcile until cancelled; what has been begun by then is finished, if it does not take too long."""
        self.queue.open()
        async with asyncio.TaskGroup() as background:
            workers = [asyncio.create_task(self._work(), name=f"{self.name} {n}") for n in range(self.workers)]
            resync = background.create_task(self._resync_regularly())
            try:
                await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            finally:
                resync.cancel()
                self.queue.close()
                await self._finish(workers)

    async def _finish(self, workers: list[asyncio.Task[None]]) -> None:
        """Wait for those who work, then stop them. A worker that broke says so here."""
        _, late = await asyncio.wait(workers, timeout=GRACE)
        for worker in late:
            worker.cancel()
        for ended in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _work(self) -> None:
        queue = self.queue
        while True:
            try:
                key = await queue.take()
            except Closed:
                return
            try:
                await self._reconcile_once(key)
            finally:
                queue.done(key)

    async def _reconcile_once(self, key: Key) -> None:
        assert self._surroundings is not None
        clock, metrics = self._surroundings.client.clock, self._surroundings.metrics
        reasons = self._history.take(key)
        began, start = clock.now(), clock.monotonic()
        failure = ""
        try:
            with span(f"reconcile {self.name}", controller=self.name, namespace=key.namespace, object=key.name):
                result = await self._reconcile(key)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            outcome = self._failed(key, error, failure)
        else:
            outcome = self._succeeded(key, result)
        seconds = clock.monotonic() - start
        metrics.count(names.RECONCILES, (*self._labels, ("result", outcome)))
        metrics.observe(names.RECONCILE_SECONDS, self._labels, seconds)
        waited, again = self.queue.waited(key), self.queue.due_in(key)
        self._history.add(Run(key, began, seconds, reasons, outcome, failure, waited, again))

    def _succeeded(self, key: Key, result: Result | None) -> str:
        self.queue.forget(key)
        if result is None or result.requeue_after <= 0:
            return "success"
        self.enqueue(key, "requeue", after=result.requeue_after)
        return "requeue_after"

    def _failed(self, key: Key, error: Exception, failure: str) -> str:
        assert self._surroundings is not None
        metrics = self._surroundings.metrics
        metrics.count(names.ERRORS, self._labels)
        if isinstance(error, Permanent):
            metrics.count(names.TERMINAL_ERRORS, self._labels)
            self.queue.forget(key)
            _log.error("%s cannot reconcile %s: %s", self.name, key, error)
            self._tell(key, str(error))
            return "error"
        self._history.expect(key, Reason("retry"))
        seconds = self.queue.retry(key)
        if isinstance(error, errors.Conflict) and not isinstance(error, errors.ApplyConflict):
            # Somebody else has written meanwhile. That is no error: look again.
            _log.debug("%s met a conflict at %s, again in %.3f s: %s", self.name, key, seconds, error)
        elif isinstance(error, Reported):
            _log.info("%s failed at %s, again in %.3f s: %s", self.name, key, seconds, error)
        elif is_of_leaving_namespace(error):
            # The object goes next, and with it the reason to try again. An Event would be refused as well.
            is_told = key.namespace in self._leaving
            self._leaving[key.namespace] = None
            if len(self._leaving) > _REMEMBERED:
                del self._leaving[next(iter(self._leaving))]
            level = logging.DEBUG if is_told else logging.INFO
            _log.log(level, "%s makes nothing more at %s: %s", self.name, key, error)
        else:
            before = next(self._history.of(key), None)
            if before is None or before.error != failure:
                _log.error("%s failed at %s, again in %.3f s", self.name, key, seconds, exc_info=error)
            else:  # Where it fails has been told.
                _log.error("%s failed at %s, again in %.3f s: %s", self.name, key, seconds, failure)
            self._tell(key, failure)
        return "error"

    def _tell(self, key: Key, message: str) -> None:
        """Say it where the user of the object looks."""
        assert self._surroundings is not None
        found = self._own.cache.snapshot(key) if self._own is not None else None
        if found is None or self._own is None:
            return
        kind = self._own.scope.kind
        about = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": found.metadata}
        self._surroundings.recorder.record(about, "Warning", "ReconcileFailed", message)

    async def _resync_regularly(self) -> None:
        assert self._surroundings is not None
        if not self._resync or self._own is None:
            return
        while True:
            # A tenth of chance: several controllers must not all do it at once.
            await self._surroundings.client.clock.sleep(self._resync * (1 + random.random() / 10))
            for key in self._own.cache:
                self.enqueue(key, "resync", priority=LOW)


def _decoded(snapshot: Snapshot | None) -> Object | None:
    return snapshot.object if snapshot is not None else None
