"""The controllers that call an operator's handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import typed
from pinnace.model.objects import Key, Kind, Object, key_of
from pinnace.model.selectors import selector_text
from pinnace.reconcile.cache import IndexFunction
from pinnace.reconcile.controller import Controller, Reconcile
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.metrics import FUNCTION_ERRORS
from pinnace.reconcile.predicates import Predicate
from pinnace.sdk.handlers.calls import call_in_thread, parameter_count
from pinnace.sdk.handlers.handlers import ChangeHandler, CleanupHandler, Index, ObjectHandler, ReconcileHandler, ToKeys
from pinnace.sdk.handlers.options import CallOptions, Select
from pinnace.sdk.operator.daemons import DaemonTasks
from pinnace.sdk.operator.field_changes import FieldReconciler
from pinnace.sdk.operator.finalizing import KindFinalizer
from pinnace.sdk.operator.object_calls import ObjectReconciler, ObjectWork
from pinnace.sdk.operator.runtime import Caches, ObjectCaches, OperatorRuntime
from pinnace.sdk.operator.sources import sources_of

_MOST_SHOWN = 200
_log = logging.getLogger(__name__)


def add_controllers(runtime: OperatorRuntime) -> list[Controller]:
    """Add the controllers of an operator to its manager, with its daemons and sources; return them."""
    return _Assembly(runtime).build()


class _Assembly:
    """Builds one controller for each handler, and one for each kind that has only an on_delete handler."""

    def __init__(self, runtime: OperatorRuntime) -> None:
        self._runtime = runtime
        self._declarations = runtime.declarations
        self._manager = runtime.manager
        self._names = _Names(runtime.declarations.name)
        self._cleanups = {kind_from(cleanup.kind): cleanup for cleanup in self._effective_cleanups()}
        self._finalizers: dict[Kind, KindFinalizer] = {}
        self._daemons: dict[Kind, list[DaemonTasks]] = {}
        self._controllers: list[Controller] = []
        self._reported: set[str] = set()
        """The functions of the author that have failed."""

    def build(self) -> list[Controller]:
        declarations = self._declarations
        for index in declarations.indexes:
            function = self._index_function(index)
            for namespace in declarations.namespaces or ("",):
                self._manager.cache(kind_from(index.kind), namespace=namespace).add_index(index.name, function)
        for daemon in declarations.daemons:
            self._add_daemon(daemon)
        self._add_reconciles()
        for timer in declarations.timers:
            self._add(
                timer,
                "timer",
                self._reconciler(timer, every=timer.seconds),
                when=_is_first(self._tolerant(timer.options.when)),
            )
        for field in declarations.fields:
            work = ObjectWork(kind=field.kind, handler=field, finalizer=self._finalizer(field.kind))
            fields = FieldReconciler(self._runtime, field, work)
            fields.calls.controller = self._add(field, "field", fields.reconcile)
        for change in declarations.changes:
            name = self._names.choose(change.kind, suffix="changes")
            when = self._tolerant(change.options.when)
            self._controllers.append(self._manager.add(report_controller(name, self._runtime, change, when)))
        for source in sources_of(self._runtime, self._controllers):
            self._manager.add_part(f"source/{source.name}", source.run)
        for kind in self._kinds():
            finalizer = self._finalizer(kind)
            self._manager.add_part(f"finalizers/{kind.name}", finalizer.release_unneeded)
        return self._controllers

    def _effective_cleanups(self) -> Iterable[CleanupHandler]:
        """Return the on_delete handlers. One without a selector has that of the first reconcile of its kind."""
        for cleanup in self._declarations.cleanups:
            options = cleanup.options
            first = next(
                (
                    reconcile
                    for reconcile in self._declarations.reconciles
                    if kind_from(reconcile.kind) == kind_from(cleanup.kind)
                ),
                None,
            )
            if first is not None and not options.labels and not options.fields:
                options = replace(options, labels=first.options.labels, fields=first.options.fields)
            yield replace(cleanup, options=options)

    def _add_reconciles(self) -> None:
        waiting = dict(self._cleanups)
        for handler in self._declarations.reconciles:
            # The clean-up joins the first controller with its selector: two would remove the finalizer twice.
            cleanup = waiting.get(kind_from(handler.kind))
            if cleanup is not None and _selector(cleanup.options) == _selector(handler.options):
                del waiting[kind_from(handler.kind)]
            else:
                cleanup = None
            reconciler = self._reconciler(handler, cleanup=cleanup)
            when = self._tolerant(handler.options.when)
            if when is not None and cleanup is not None:
                when = partial(_or_deletion, when)
            controller = Controller(
                self._names.choose(handler.kind),
                reconciler.reconcile,
                workers=handler.options.workers,
                resync=handler.resync,
                limits=handler.options.limits,
                exclusion=self._runtime.exclusion(handler.kind),
            )
            self._watch(controller, handler, when)
            reconciler.controller = controller
            self._controllers.append(self._manager.add(controller))
        for cleanup in waiting.values():
            when = self._tolerant(cleanup.options.when)
            is_wanted = partial(_or_deletion, when) if when is not None else None
            self._add(cleanup, "", self._reconciler(None, cleanup=cleanup), when=is_wanted)

    def _watch(self, controller: Controller, handler: ReconcileHandler, when: Predicate | None) -> None:
        kind = kind_from(handler.kind)
        for selection in self._runtime.selections(handler.options):
            controller.for_(kind, when=when, **selection)
        for namespace in self._declarations.namespaces or ("",):
            for owned in handler.owns:
                controller.owns(kind_from(owned.kind), when=self._tolerant(owned.when), **_selection(owned, namespace))
            for watched, to_keys in handler.watches:
                mapper = self._mapper(to_keys, handler)
                when = self._tolerant(watched.when)
                controller.watches(kind_from(watched.kind), mapper, when=when, **_selection(watched, namespace))

    def _mapper(self, to_keys: ToKeys, handler: ReconcileHandler) -> Callable[[Object], Iterable[Key]]:
        """Return a mapping function that reports the failure of another, and names all objects near by then."""
        caches = (Caches(self._manager, self._declarations.namespaces),) if parameter_count(to_keys) >= 2 else ()
        own = ObjectCaches(self._runtime, handler.kind, handler.options)

        def find_keys(obj: Object) -> Iterable[Key]:
            try:
                return _checked(to_keys(obj, *caches))
            except (Exception, SystemExit) as error:
                self._report(to_keys, obj, error)
                return own.keys_near(key_of(obj).namespace)

        return find_keys

    def _tolerant(self, when: Predicate | None) -> Predicate | None:
        """Return a predicate that reports the failure of another, and lets the change through then."""
        if when is None:
            return None
        predicate = when

        def is_wanted(old: Object | None, new: Object | None) -> bool:
            try:
                return predicate(old, new)
            except (Exception, SystemExit) as error:
                self._report(predicate, new or old or {}, error)
                return True

        return is_wanted

    def _index_function(self, index: Index) -> IndexFunction[Object]:
        """Return an index function that reports the failure of another: the object is in the cache all the same."""

        def find_values(obj: Object) -> Iterable[str]:
            try:
                return _checked_values(index.function(obj))
            except (Exception, SystemExit) as error:
                self._report(index.name, obj, error)
                return ()

        return find_values

    def _report(self, function: Any, obj: Object, error: BaseException) -> None:
        """Log and count a function of the author that failed for an object, with a traceback the first time."""
        name = function if isinstance(function, str) else getattr(function, "__qualname__", repr(function))
        about = f"{obj.get('kind', 'object')} {key_of(obj)}" if obj else "no object"
        message = f"{type(error).__name__}: {error}"
        is_new = name not in self._reported
        self._reported.add(name)
        operator = self._declarations.name
        _log.error(
            "%s: the function %s failed for %s: %s", operator, name, about, message, exc_info=error if is_new else None
        )
        self._manager.metrics.count(FUNCTION_ERRORS, (("function", name),))

    def _add_daemon(self, daemon: Any) -> None:
        work = ObjectWork(kind=daemon.kind, handler=daemon, finalizer=self._finalizer(daemon.kind))
        daemons = DaemonTasks(self._runtime, daemon, work)
        # A daemon takes no turns: it would hold its object's other handlers for ever.
        controller = self._add(daemon, "daemon", daemons.reconcile, is_exclusive=False)
        daemons.attach(controller)
        self._manager.add_part(f"daemons/{controller.name}", daemons.run)
        self._daemons.setdefault(kind_from(daemon.kind), []).append(daemons)

    def _add(
        self,
        handler: ObjectHandler,
        suffix: str,
        reconcile: ObjectReconciler | Reconcile,
        *,
        when: Predicate | None = None,
        is_exclusive: bool = True,
    ) -> Controller:
        options = handler.options
        controller = Controller(
            self._names.choose(handler.kind, suffix=suffix),
            reconcile.reconcile if isinstance(reconcile, ObjectReconciler) else reconcile,
            workers=options.workers,
            limits=options.limits,
            exclusion=self._runtime.exclusion(handler.kind) if is_exclusive else None,
        )
        for selection in self._runtime.selections(options):
            controller.for_(kind_from(handler.kind), when=self._tolerant(when or options.when), **selection)
        if isinstance(reconcile, ObjectReconciler):
            reconcile.controller = controller
        self._controllers.append(self._manager.add(controller))
        return controller

    def _reconciler(
        self, handler: ObjectHandler | None, *, cleanup: CleanupHandler | None = None, every: float = 0.0
    ) -> ObjectReconciler:
        chosen = handler or cleanup
        assert chosen is not None
        work = ObjectWork(
            kind=chosen.kind,
            handler=handler,
            cleanup=cleanup,
            every=every,
            finalizer=self._finalizer(chosen.kind),
            on_delete=partial(_stop_all, self._daemons.get(kind_from(chosen.kind), [])),
        )
        return ObjectReconciler(self._runtime, work)

    def _finalizer(self, kind: KindLike) -> KindFinalizer:
        key = kind_from(kind)
        if key not in self._finalizers:
            self._finalizers[key] = KindFinalizer(self._runtime, key, self._cleanups.get(key))
        return self._finalizers[key]

    def _kinds(self) -> list[Kind]:
        declarations = self._declarations
        handlers: list[ObjectHandler] = [*declarations.reconciles, *declarations.timers, *declarations.cleanups]
        handlers += [*declarations.fields, *declarations.daemons]
        return list(dict.fromkeys(kind_from(handler.kind) for handler in handlers))


def _checked_values(values: Any) -> list[str]:
    """Return the values that an index function has returned. Raise TypeError for anything else."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        listed: list[Any] = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
        values = listed
    raise TypeError(f"it returned {_briefly(values)}: return a list of strings, [] for none")


def _briefly(value: Any) -> str:
    """Return what a function has returned, as text of limited length."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _checked(keys: Any) -> list[Key]:
    """Return the keys that a function has returned. Raise TypeError for anything else."""
    if isinstance(keys, Iterable) and not isinstance(keys, str | bytes | Key):
        listed = list(keys)
        if all(isinstance(key, tuple) and len(key) == 2 for key in listed):
            return [Key(*key) for key in listed]
        keys = listed
    raise TypeError(f"it returned {_briefly(keys)}: return a list of Key(namespace, name)")


async def _stop_all(daemons: list[DaemonTasks], key: Key) -> None:
    for daemon in daemons:
        await daemon.stop(key)


def _selection(select: Select, namespace: str) -> Any:
    return {
        "namespace": namespace,
        "labels": selector_text(select.labels),
        "fields": select.fields,
        "metadata_only": select.metadata_only,
    }


def _selector(options: CallOptions) -> tuple[str, str]:
    return (options.labels, options.fields)


def _is_first(when: Predicate | None) -> Predicate:
    """Return the predicate of a timer: only the first call; the timer requeues the object from then on."""

    def is_first(old: Object | None, new: Object | None) -> bool:
        return old is None and (when is None or when(old, new))

    return is_first


def _or_deletion(when: Predicate, old: Object | None, new: Object | None) -> bool:
    """Let the start of a deletion through, whatever the predicate says: the clean-up waits for it."""
    is_deleted = new is not None and "deletionTimestamp" in new["metadata"]
    if is_deleted and (old is None or "deletionTimestamp" not in old["metadata"]):
        return True
    return when(old, new)


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


def report_controller(name: str, runtime: OperatorRuntime, change: ChangeHandler, when: Predicate | None) -> Controller:
    """Return a controller that reports every change, in order for each object, and repeats a report that fails."""
    informers = ObjectCaches(runtime, change.kind, change.options).informers
    reported: dict[Key, Snapshot] = {}

    def remember_from(informer: Informer) -> None:
        def remember(old: Snapshot | None, new: Snapshot | None) -> None:
            if new is not None and informer.is_initial(new):
                reported[new.key] = new  # It existed before the operator started: that is no change.
            elif new is None and old is not None and informer.has_left(old):
                reported.pop(old.key, None)  # Another process reports its changes now.

        informer.on_change(remember)

    async def report(key: Key) -> None:
        snapshots = (informer.cache.snapshot(key) for informer in informers)
        old, new = reported.get(key), next((snapshot for snapshot in snapshots if snapshot is not None), None)
        if (old and old.version) == (new and new.version):
            return
        await call_in_thread(runtime.threads, change.handler, _to_type(change, old), _to_type(change, new))
        if new is None:
            reported.pop(key, None)
        else:
            reported[key] = new

    for informer in informers:
        remember_from(informer)
    options = change.options
    controller = Controller(name, report, workers=1, limits=options.limits, exclusion=runtime.exclusion(change.kind))
    for selection in runtime.selections(options):
        controller.for_(kind_from(change.kind), when=when, **selection)
    return controller


def _to_type(change: ChangeHandler, snapshot: Snapshot | None) -> Any:
    if snapshot is None:
        return None
    return typed(change.kind, snapshot.object)
