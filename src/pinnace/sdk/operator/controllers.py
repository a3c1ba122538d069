"""The controllers that call an operator's handlers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.model.objects import Key, Kind, Object
from pinnace.reconcile.controller import Controller, Reconcile
from pinnace.reconcile.predicates import Predicate
from pinnace.sdk.handlers.calls import parameter_count
from pinnace.sdk.handlers.handlers import CleanupHandler, ObjectHandler, ReconcileHandler, ToKeys
from pinnace.sdk.handlers.options import CallOptions, Select
from pinnace.sdk.operator.caches import Caches
from pinnace.sdk.operator.change_reports import report_controller
from pinnace.sdk.operator.daemons import DaemonTasks
from pinnace.sdk.operator.field_changes import FieldReconciler
from pinnace.sdk.operator.finalizing import KindFinalizer
from pinnace.sdk.operator.object_calls import ObjectReconciler, ObjectWork
from pinnace.sdk.operator.runtime import OperatorRuntime
from pinnace.sdk.operator.sources import sources_of


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
        self._cleanups = {kind_from(one.kind): one for one in self._effective_cleanups()}
        self._finalizers: dict[Kind, KindFinalizer] = {}
        self._daemons: dict[Kind, list[DaemonTasks]] = {}
        self._controllers: list[Controller] = []

    def build(self) -> list[Controller]:
        declarations = self._declarations
        for index in declarations.indexes:
            for namespace in declarations.namespaces or ("",):
                self._manager.cache(kind_from(index.kind), namespace=namespace).add_index(index.name, index.function)
        for daemon in declarations.daemons:
            self._add_daemon(daemon)
        self._add_reconciles()
        for timer in declarations.timers:
            self._add(timer, "timer", self._reconciler(timer, every=timer.seconds), when=_is_first(timer.options.when))
        for field in declarations.fields:
            work = ObjectWork(kind=field.kind, handler=field, finalizer=self._finalizer(field.kind))
            fields = FieldReconciler(self._runtime, field, work)
            fields.calls.controller = self._add(field, "field", fields.reconcile)
        for change in declarations.changes:
            name = self._names.choose(change.kind, suffix="changes")
            self._controllers.append(self._manager.add(report_controller(name, self._runtime, change)))
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
            first = next((one for one in self._declarations.reconciles if _same(one.kind, cleanup.kind)), None)
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
            when = handler.options.when
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
            when = cleanup.options.when
            is_wanted = partial(_or_deletion, when) if when is not None else None
            self._add(cleanup, "", self._reconciler(None, cleanup=cleanup), when=is_wanted)

    def _watch(self, controller: Controller, handler: ReconcileHandler, when: Predicate | None) -> None:
        kind = kind_from(handler.kind)
        for selection in self._runtime.selections(handler.options):
            controller.for_(kind, when=when, **selection)
        for namespace in self._declarations.namespaces or ("",):
            for owned in handler.owns:
                controller.owns(kind_from(owned.kind), when=owned.when, **_selection(owned, namespace))
            for watched, to_keys in handler.watches:
                mapper = self._mapper(to_keys)
                controller.watches(kind_from(watched.kind), mapper, when=watched.when, **_selection(watched, namespace))

    def _mapper(self, to_keys: ToKeys) -> Any:
        if parameter_count(to_keys) < 2:
            return to_keys
        caches = Caches(self._manager, self._declarations.namespaces)

        def find_keys(obj: Object) -> Iterable[Key]:
            return to_keys(obj, caches)

        return find_keys

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
            controller.for_(kind_from(handler.kind), when=when or options.when, **selection)
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
        found = kind_from(kind)
        if found not in self._finalizers:
            self._finalizers[found] = KindFinalizer(self._runtime, found, self._cleanups.get(found))
        return self._finalizers[found]

    def _kinds(self) -> list[Kind]:
        declarations = self._declarations
        handlers: list[ObjectHandler] = [*declarations.reconciles, *declarations.timers, *declarations.cleanups]
        handlers += [*declarations.fields, *declarations.daemons]
        return list(dict.fromkeys(kind_from(one.kind) for one in handlers))


async def _stop_all(daemons: list[DaemonTasks], key: Key) -> None:
    for one in daemons:
        await one.stop(key)


def _selection(select: Select, namespace: str) -> Any:
    return {
        "namespace": namespace,
        "labels": select.labels,
        "fields": select.fields,
        "metadata_only": select.metadata_only,
    }


def _selector(options: CallOptions) -> tuple[str, str]:
    return (options.labels, options.fields)


def _same(one: KindLike, other: KindLike) -> bool:
    return kind_from(one) == kind_from(other)


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
