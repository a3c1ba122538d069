"""A controller: the kinds that it watches, and the function that reconciles one object.

    async def reconcile(key: Key) -> Result | None:
        site = manager.cache("example.com/v1/Website").get(key)
        if site is not None:
            await manager.client.apply(deployment_of(site))

    controller = Controller("website", reconcile, workers=4)
    controller.for_("example.com/v1/Website").owns("apps/v1/Deployment")
    manager.add(controller)

`reconcile` receives a key, never an event: it reads the current state, and may be called at any time. There is never
more than one call at a time for one key. An error is recorded in an Event, counted, and retried with growing delays.
Each call is a task of its own; CancelledError that comes out of it is an error like others unless the controller stops.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike, KindName, kind_from
from pinnace.client.rates import RateLimiter
from pinnace.client.reading import Selection
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import Stored
from pinnace.model.objects import Key, Kind, Object, TypedObject
from pinnace.process.backoff import Backoff
from pinnace.process.exposition import Labels
from pinnace.process.tasks import Interrupted, contain
from pinnace.process.tracing import active_tracer, context_of_write, record_span, span
from pinnace.process.work_slices import Turns
from pinnace.reconcile import metrics as names
from pinnace.reconcile.events import EventRecorder
from pinnace.reconcile.failures import FailureReports, Permanent, Retry
from pinnace.reconcile.history import History, ObjectChange, Reason, Run
from pinnace.reconcile.informer import Informer, Informers, InformerScope
from pinnace.reconcile.metrics import Metrics, QueueMetrics
from pinnace.reconcile.owners import is_of_kind
from pinnace.reconcile.predicates import EncodedPredicate, Predicate
from pinnace.reconcile.queue import RETRIES, Closed, Exclusion, Queue, ReconcileLimits
from pinnace.reconcile.set_aside import SetAside
from pinnace.reconcile.worker_pool import WorkerPool, WorkersEnded

if TYPE_CHECKING:
    from pinnace.reconcile.shards import Shards

LOW = -100
"""The priority of initial lists and resyncs: changes that happen meanwhile come first."""
GRACE = 4.0
"""Seconds that a reconcile has to finish when its controller stops. A lost lease leaves no more than that."""

_RESYNC = "resync"
_MOST_REASONS = 20
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a reconcile: the delay after which it is called again even if nothing has changed."""

    requeue_after: float = 0.0


STILL_WAITING = Result()
"""Returned by a reconcile that has done nothing, because an earlier call has asked for a later one."""


Reconcile = Callable[[Key], Awaitable[Result | None]]
ToKeys = Callable[[TypedObject], Iterable[Key]]
"""Returns the keys to reconcile when this object changes."""


@dataclass(frozen=True, slots=True)
class ManagerServices:
    """The parts of a manager that its controllers share."""

    client: Client
    informers: Informers
    metrics: Metrics
    recorder: EventRecorder
    aside: SetAside


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """Objects that the controller watches, and the keys to reconcile when they change."""

    scope: InformerScope
    when: EncodedPredicate | None
    concerns: Callable[[Snapshot], Iterable[Key]]
    is_own: bool = False
    """Whether these are the objects that are reconciled."""


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
        limits: ReconcileLimits | None = None,
        exclusion: Exclusion[Key] | None = None,
    ) -> None:
        """Every `resync` seconds all objects are reconciled even if nothing has changed; 0 for never.

        `limits` replaces `backoff`. Controllers with the same `exclusion` never work on one object at the same time.
        """
        self.name = name
        self.workers = workers
        self.grace = GRACE
        self.has_failed = False
        """Whether its workers have ended repeatedly since it was started."""
        self._reconcile = reconcile
        self._limits = limits or ReconcileLimits(backoff=backoff)
        self._exclusion = exclusion
        self._limiter: RateLimiter | None = None
        self._resync = resync
        self._watched: list[_Watched] = []
        self._own_kind: Kind | None = None
        self._own: list[Informer] = []
        self._current: dict[Key, tuple[Reason, ...]] = {}
        self._unfinished: dict[Key, tuple[Reason, ...]] = {}
        """The reasons of reconciles that failed and will be repeated."""
        self._delayed: set[Key] = set()
        """Objects that wait for the rate limit."""
        self.history = History()
        self._queue: Queue[Key] | None = None
        self._early: list[tuple[Key, float, int]] = []
        """Keys that were enqueued before the controller had a queue, each with its delay and priority."""
        self._services: ManagerServices | None = None
        self._reports: FailureReports | None = None
        self._labels: Labels = (("controller", name),)

    # Watched kinds

    def for_(
        self,
        kind: KindLike,
        *,
        when: Predicate | None = None,
        when_encoded: EncodedPredicate | None = None,
        **selection: Unpack[Selection],
    ) -> Self:
        """Reconcile this kind: a change of an object enqueues its own key. `when` selects the changes that count.

        `when_encoded` does that for objects that are not decoded.
        """
        self._own_kind = kind_from(kind)
        scope = InformerScope(self._own_kind, **selection)
        return self._watch(scope, when_encoded or _decoding(when), lambda snapshot: (snapshot.key,), is_own=True)

    def owns(self, kind: KindLike, *, when: Predicate | None = None, **selection: Unpack[Selection]) -> Self:
        """Watch a kind that the reconciled one owns: a change enqueues the key of the controlling owner."""
        return self._watch(InformerScope(kind_from(kind), **selection), _decoding(when), self._controllers_of)

    @overload
    def watches(
        self,
        kind: type[Stored],
        to_keys: ToKeys[Stored],
        *,
        when: Predicate | None = None,
        **selection: Unpack[Selection],
    ) -> Self: ...
    @overload
    def watches(
        self, kind: KindName, to_keys: ToKeys, *, when: Predicate | None = None, **selection: Unpack[Selection]
    ) -> Self: ...
    def watches(
        self, kind: KindLike, to_keys: ToKeys[Any], *, when: Predicate | None = None, **selection: Unpack[Selection]
    ) -> Self:
        """Watch any other kind: `to_keys` returns the keys to reconcile when one of its objects changes.

        It is called for the old and the new object: both may refer to objects that need a reconcile.
        """
        scope = InformerScope(kind_from(kind), **selection)
        return self._watch(scope, _decoding(when), lambda snapshot: to_keys(snapshot.object))

    @overload
    def watches_encoded(
        self, kind: type[Stored], to_keys: Callable[[Snapshot[Stored]], Iterable[Key]], **selection: Unpack[Selection]
    ) -> Self: ...
    @overload
    def watches_encoded(
        self, kind: KindName, to_keys: Callable[[Snapshot], Iterable[Key]], **selection: Unpack[Selection]
    ) -> Self: ...
    def watches_encoded(
        self, kind: KindLike, to_keys: Callable[[Snapshot[Any]], Iterable[Key]], **selection: Unpack[Selection]
    ) -> Self:
        """Like `watches`, for kinds that change often: `to_keys` reads the encoded object, with `derive` at best."""
        return self._watch(InformerScope(kind_from(kind), **selection), None, to_keys)

    def _watch(
        self,
        scope: InformerScope,
        when: EncodedPredicate | None,
        concerns: Callable[[Snapshot], Iterable[Key]],
        *,
        is_own: bool = False,
    ) -> Self:
        if self._services is not None:
            raise RuntimeError(f"declare all kinds that {self.name} watches before it is added to a manager")
        self._watched.append(_Watched(scope=scope, when=when, concerns=concerns, is_own=is_own))
        return self

    def _controllers_of(self, snapshot: Snapshot) -> Iterable[Key]:
        if self._own_kind is None or not self._own or self._own[0].namespaced is None:
            return  # The owners are not listed yet: each will enqueue its own key.
        for owner in snapshot.metadata.get("ownerReferences") or ():
            if owner.get("controller") and is_of_kind(owner, self._own_kind) and self._is_ours(owner["uid"]):
                yield Key(snapshot.key.namespace if self._own[0].namespaced else "", owner["name"])

    def _is_ours(self, uid: str) -> bool:
        shards = self._services.informers.shards if self._services is not None else None
        return shards is None or shards.holds(uid)

    # The queue

    def enqueue(self, key: Key, reason: str | Reason, *, after: float = 0.0, priority: int = 0) -> None:
        """Reconcile an object, now or later; `pinnace why` shows the `reason`.

        Keys may be enqueued before the controller is added to a manager: they wait until then.
        """
        self.history.expect(key, reason if isinstance(reason, Reason) else Reason(reason))
        if self._queue is None:
            self._early.append((key, after, priority))
        else:
            self._queue.add_after(key, after, priority=priority)

    def why(self, key: Key) -> list[Run]:
        """Return the last reconciles of an object with their reasons, the newest first."""
        return list(self.history.of(key))

    def reasons(self, key: Key) -> tuple[Reason, ...]:
        """Return the reasons of the reconcile of an object that runs now, and of its failed attempts before."""
        return (*self._unfinished.get(key, ()), *self._current.get(key, ()))

    def latest(self) -> Iterator[Run]:
        """Return the last reconciles of all objects, the newest first."""
        return self.history.latest()

    def busy(self) -> list[str]:
        """Return a line for each of the first objects that are due or being reconciled, and for those seen most."""
        lines = []
        for key in self.queue.busy[:_MOST_NAMED]:
            reasons = self.reasons(key) or self.history.waiting(key)
            because = f", because {'; '.join(str(reason) for reason in reasons[:3])}" if reasons else ""
            runs = self.why(key)
            failed = f"; the last call failed: {runs[0].error}" if runs and runs[0].error else ""
            state = "is being reconciled" if key in self._current else "is due"
            lines.append(f"{self.name}: {key} {state} after {len(runs)} calls{because}{failed}")
        return lines

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

    def attach(self, services: ManagerServices) -> None:
        """Subscribe to the informers; called by the manager."""
        self._services = services
        self._reconcile = services.aside.guard(self.name, self._reconcile)
        self._reports = FailureReports(self.name, self._own, services.recorder)
        metrics = services.metrics
        queue: Queue[Key] = Queue(
            clock=services.client.clock,
            backoff=self._limits.backoff,
            metrics=QueueMetrics(metrics, self.name),
            exclusion=self._exclusion,
        )
        self._queue = queue
        if self._limits.rate is not None:
            self._limiter = RateLimiter(self._limits.rate, services.client.clock)
        for key, after, priority in self._early:
            queue.add_after(key, after, priority=priority)
        self._early.clear()
        for watched in self._watched:
            informer = services.informers.own(watched.scope) if watched.is_own else services.informers.of(watched.scope)
            if watched.is_own:
                self._own.append(informer)
            self._listen(informer, watched)
        self._reconcile = self._in_shards(services.informers.shards, self._reconcile)
        _register_metrics(metrics, self.name, queue, workers=self.workers)

    def _in_shards(self, shards: Shards | None, reconcile: Reconcile) -> Reconcile:
        """Return a function that reconciles objects of the shards of this process alone."""
        if shards is None:
            return reconcile

        async def guarded(key: Key) -> Result | None:
            snapshots = (informer.cache.snapshot(key) for informer in self._own)
            snapshot = next((snapshot for snapshot in snapshots if snapshot is not None), None)
            if snapshot is None:
                return await reconcile(key)  # It is gone, or with another process: only forget it.
            with shards.working(snapshot.metadata["uid"]) as is_ours:
                return await reconcile(key) if is_ours else None

        return guarded

    def _listen(self, informer: Informer, watched: _Watched) -> None:
        def changed(old: Snapshot | None, new: Snapshot | None) -> None:
            latest = new or old
            assert latest is not None
            has_left = new is None and informer.has_left(latest)
            if watched.when is not None and not has_left and not watched.when(old, new):
                return
            concerned = [key for snapshot in (new, old) if snapshot is not None for key in watched.concerns(snapshot)]
            if not concerned:
                return
            what = "deleted" if new is None else "modified" if old is not None else "added"
            change = ObjectChange(old, new) if old is not None and new is not None else None
            is_initial = informer.is_initial(latest)
            reason = Reason(what, informer.scope.kind, latest.key, latest.version, change, is_initial)
            priority = LOW if is_initial else 0
            for key in dict.fromkeys(concerned):
                self.enqueue(key, reason, priority=priority)

        informer.on_change(changed)

    async def run(self) -> None:
        """Reconcile until cancelled; calls that have begun may finish within GRACE seconds."""
        self.queue.open()
        assert self._services is not None
        runs = {str(number): self._work for number in range(self.workers)}
        if self._resync:
            runs[_RESYNC] = self._resync_regularly
        workers = WorkerPool(self.name, runs, self._services.client.clock, ended=self._count_end)
        self.has_failed = False
        try:
            await workers.run()
        except WorkersEnded:
            self.has_failed = True
            raise
        finally:
            self.queue.close()
            await workers.finish(self.grace, at_once=_RESYNC)

    def _count_end(self) -> None:
        assert self._services is not None
        self._services.metrics.count(names.WORKER_ENDS, self._labels)

    async def _work(self) -> None:
        queue, turns = self.queue, Turns()
        while True:
            await turns.pause()  # A reconcile that finds everything in memory never waits: others must get their turn.
            try:
                key = await queue.take()
            except Closed:
                return
            try:
                await self._reconcile_once(key)
            except BaseException:
                if not queue.is_closed:  # This worker ends without being stopped: another one takes its key.
                    queue.retry(key)
                raise
            finally:
                queue.done(key)

    async def _reconcile_once(self, key: Key) -> None:
        if self._limiter is not None and self._must_wait(key, self._limiter):
            return
        assert self._services is not None
        clock, metrics = self._services.client.clock, self._services.metrics
        reasons = self._current[key] = self.history.take(key)
        began, start = clock.now(), clock.monotonic()
        failure = ""
        try:
            # A task of its own: whatever the call does to its task or raises, this worker goes on.
            if active_tracer() is None:
                result = await contain(self._reconcile, key)
            else:
                waited = self.queue.waited(key)
                result = await contain(_trace_reconcile, self.name, key, reasons, waited, self._reconcile)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            outcome = self._failed(key, error, failure)
        else:
            outcome = self._succeeded(key, result)
        finally:
            del self._current[key]
        seconds = clock.monotonic() - start
        metrics.count(names.RECONCILES, (*self._labels, ("result", outcome)))
        metrics.observe(names.RECONCILE_SECONDS, self._labels, seconds)
        waited, again = self.queue.waited(key), self.queue.due_in(key)
        self.history.add(Run(key, began, seconds, reasons, outcome, failure, waited, again))

    def _must_wait(self, key: Key, limiter: RateLimiter) -> bool:
        """Delay an object that exceeds the rate. The delay includes its token, so it is not delayed again."""
        if key in self._delayed:
            self._delayed.remove(key)
            return False
        wait = limiter.reserve()
        if wait:
            self._delayed.add(key)
            self.queue.add_after(key, wait)
        return bool(wait)

    def _succeeded(self, key: Key, result: Result | None) -> str:
        if result is STILL_WAITING:
            self._expect_again(key)
            return "success"
        self._forget(key)
        if result is None or result.requeue_after <= 0:
            return "success"
        self.enqueue(key, "requeue", after=result.requeue_after)
        return "requeue_after"

    def _failed(self, key: Key, error: Exception, failure: str) -> str:
        assert self._services is not None and self._reports is not None
        if isinstance(error, Retry):
            return self._postponed(key, error)
        metrics = self._services.metrics
        metrics.count(names.ERRORS, self._labels)
        if isinstance(error, Interrupted):
            metrics.count(names.PANICS, self._labels)
        limit = self._limits.retries
        is_over = limit is not None and self.queue.failures(key) >= limit
        if isinstance(error, Permanent) or is_over:
            metrics.count(names.TERMINAL_ERRORS, self._labels)
            self._forget(key)
            message = str(error) if isinstance(error, Permanent) else f"gave up after {limit} retries: {failure}"
            self._reports.report_end(key, error, message)
            return "error"
        self._expect_again(key)
        before = next(self.history.of(key), None)
        is_new = before is None or before.error != failure
        self._reports.report_retry(key, error, failure, seconds=self.queue.retry(key), is_new=is_new)
        return "error"

    def _forget(self, key: Key) -> None:
        self.queue.forget(key)
        self._unfinished.pop(key, None)

    def _postponed(self, key: Key, retry: Retry) -> str:
        """Reconcile an object later, because its reconcile has asked for it."""
        assert self._reports is not None
        self._expect_again(key)
        if retry.after > 0:
            self.queue.forget(key)
            self.queue.add_after(key, retry.after)
        seconds = retry.after if retry.after > 0 else self.queue.retry(key)
        self._reports.report_delay(key, retry, seconds=seconds)
        return "requeue_after"

    def _expect_again(self, key: Key) -> None:
        """Keep the reasons of a reconcile that is repeated, so that its last attempt still knows them."""
        self._unfinished[key] = self.reasons(key)[:_MOST_REASONS]
        self.history.expect(key, Reason("retry"))

    async def _resync_regularly(self) -> None:
        assert self._services is not None
        while True:
            # A random tenth more, so that several controllers do not resync at once.
            await self._services.client.clock.sleep(self._resync * (1 + random.random() / 10))
            for informer in self._own:
                for key in informer.cache:
                    self.enqueue(key, "resync", priority=LOW)


def _decoding(when: Predicate | None) -> EncodedPredicate | None:
    """Return a predicate that decodes the objects for `when`."""
    return (lambda old, new: when(_decode(old), _decode(new))) if when is not None else None


def _decode(snapshot: Snapshot | None) -> Object | None:
    return snapshot.object if snapshot is not None else None


_OUTCOMES = ("success", "requeue_after", "error")


def _register_metrics(metrics: Metrics, name: str, queue: Queue[Key], *, workers: int) -> None:
    """Create the counters of a controller at zero, and the gauges of its queue and workers."""
    labels = (("controller", name),)
    both = (("name", name), *labels)
    for outcome in _OUTCOMES:
        metrics.count(names.RECONCILES, (*labels, ("result", outcome)), by=0)
    for counter in (names.ERRORS, names.TERMINAL_ERRORS, names.PANICS, names.WORKER_ENDS):
        metrics.count(counter, labels, by=0)
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
        lambda: [(labels, queue.working)],
    )
    metrics.gauge(
        "controller_runtime_max_concurrent_reconciles",
        "Maximum number of concurrent reconciles per controller",
        lambda: [(labels, workers)],
    )


Answer = TypeVar("Answer")


async def _trace_reconcile(
    controller: str, key: Key, reasons: Sequence[Reason], waited: float, reconcile: Callable[[Key], Awaitable[Answer]]
) -> Answer:
    """Call `reconcile` within a span. `waited` is how long the key was in the queue, in seconds.

    If the write behind the first change was made in this process, all of them are part of its trace.
    """
    causes = [reason for reason in reasons if reason.kind is not None and not reason.is_initial]
    contexts = [context for reason in causes if (context := context_of_write(reason.version)) is not None]
    parent, links = (contexts[0], contexts[1:]) if contexts else (None, [])
    for cause in causes[:1]:
        place: dict[str, str | int] = {"object": str(cause.key), "event": cause.what, "resourceVersion": cause.version}
        name = cause.kind.name if cause.kind is not None else ""
        parent = record_span(f"watch {name}", place, began=waited, ended=waited, parent=parent) or parent
    attributes: dict[str, str | int] = {"controller": controller, "namespace": key.namespace, "object": key.name}
    record_span(f"queue {controller}", attributes, began=waited, parent=parent)
    with span(f"reconcile {controller}", parent=parent, links=links, **attributes):
        return await reconcile(key)
