"""Call a change handler with the old and new state of objects, by comparing the last reported state with the cache."""

from __future__ import annotations

from typing import Any

from pinnace.client.mapping import kind_from
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import typed
from pinnace.model.objects import Key
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.sdk.handlers.calls import call
from pinnace.sdk.handlers.handlers import ChangeHandler


def report_controller(name: str, manager: Manager, change: ChangeHandler, *, namespace: str) -> Controller:
    """Return a controller that reports every change, in order for each object, and repeats a report that fails."""
    kind = kind_from(change.kind)
    informer = manager.informer(kind, namespace=namespace, labels=change.labels)
    reported: dict[Key, Snapshot] = {}

    def remember(old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None and not informer.is_synced:
            reported[new.key] = new  # It existed before the operator started: that is no change.

    async def report(key: Key) -> None:
        old, new = reported.get(key), informer.cache.snapshot(key)
        if (old and old.version) == (new and new.version):
            return
        await call(change.handler, _to_type(change, old), _to_type(change, new))
        if new is None:
            reported.pop(key, None)
        else:
            reported[key] = new

    informer.on_change(remember)
    return Controller(name, report, workers=1).for_(kind, namespace=namespace, labels=change.labels)


def _to_type(change: ChangeHandler, snapshot: Snapshot | None) -> Any:
    if snapshot is None:
        return None
    return typed(change.kind, snapshot.object)
