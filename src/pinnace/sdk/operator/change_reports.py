"""Tells a function what has become of objects, by comparing what it was told last with what is there now."""

from __future__ import annotations

from typing import Any

from pinnace.client.mapping import kind_from
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import typed
from pinnace.model.objects import Key
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.sdk.operator.calls import called
from pinnace.sdk.operator.declarations import Report


def report_controller(name: str, manager: Manager, report: Report, *, namespace: str) -> Controller:
    """A controller that tells of every change, in order for each object, and again if telling fails."""
    kind = kind_from(report.kind)
    informer = manager.informer(kind, namespace=namespace, labels=report.labels)
    told: dict[Key, Snapshot] = {}

    def remember(old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None and not informer.is_synced:
            told[new.key] = new  # It was there before we came: that is no news.

    async def tell(key: Key) -> None:
        old, new = told.get(key), informer.cache.snapshot(key)
        if (old and old.version) == (new and new.version):
            return
        await called(report.handler, _shown(report, old), _shown(report, new))
        if new is None:
            told.pop(key, None)
        else:
            told[key] = new

    informer.on_change(remember)
    return Controller(name, tell, workers=1).for_(kind, namespace=namespace, labels=report.labels)


def _shown(report: Report, snapshot: Snapshot | None) -> Any:
    if snapshot is None:
        return None
    return typed(report.kind, snapshot.object)
