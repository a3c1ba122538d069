"""Call a change handler with the old and new state of objects, by comparing the last reported state with the cache."""

from __future__ import annotations

from typing import Any

from pinnace.client.mapping import kind_from
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import typed
from pinnace.model.objects import Key
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.informer import Informer
from pinnace.sdk.handlers.calls import call_in_thread
from pinnace.sdk.handlers.handlers import ChangeHandler
from pinnace.sdk.operator.runtime import ObjectCaches, OperatorRuntime


def report_controller(name: str, runtime: OperatorRuntime, change: ChangeHandler) -> Controller:
    """Return a controller that reports every change, in order for each object, and repeats a report that fails."""
    informers = ObjectCaches(runtime, change.kind, change.options).informers
    reported: dict[Key, Snapshot] = {}

    def remember_from(informer: Informer) -> None:
        def remember(old: Snapshot | None, new: Snapshot | None) -> None:
            if new is not None and not informer.is_synced:
                reported[new.key] = new  # It existed before the operator started: that is no change.

        informer.on_change(remember)

    async def report(key: Key) -> None:
        found = (informer.cache.snapshot(key) for informer in informers)
        old, new = reported.get(key), next((one for one in found if one is not None), None)
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
        controller.for_(kind_from(change.kind), when=options.when, **selection)
    return controller


def _to_type(change: ChangeHandler, snapshot: Snapshot | None) -> Any:
    if snapshot is None:
        return None
    return typed(change.kind, snapshot.object)
