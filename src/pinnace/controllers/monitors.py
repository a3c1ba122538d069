"""Follows every object that can be deleted, of kinds that come and go too: one watch of metadata for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.discovery import discover
from pinnace.model.objects import Key, Kind
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.manager import Manager

DEFINITIONS = "apiextensions.k8s.io/v1/CustomResourceDefinition"
SERVICES = "apiregistration.k8s.io/v1/APIService"
RETRY_SECONDS = 30.0
"""How soon to ask again for what could not be discovered: nobody tells when an aggregated server is back."""

Handler = Callable[[Kind, Snapshot | None, Snapshot | None], None]
"""Told of each change: the kind, old and new, as an informer tells it."""

_ALL = Key("", "kinds")
_IGNORED = {("", "Event"), ("events.k8s.io", "Event")}
"""They come in masses, nobody owns anything by them, and they expire by themselves."""


class Monitors:
    """An informer for each kind that can be listed, watched and deleted."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._informers: dict[Kind, Informer] = {}
        self._handlers: list[Handler] = []
        self._on_kinds: list[Callable[[set[Kind]], None]] = []
        self.controller = Controller("monitors", self._reconcile)
        for kind in (DEFINITIONS, SERVICES):
            self.controller.watches(kind, lambda obj: (_ALL,), metadata_only=True)
        manager.add(self.controller)
        self.controller.enqueue(_ALL, "start")

    def informer(self, kind: Kind) -> Informer | None:
        """The informer of a kind that is followed."""
        return self._informers.get(kind)

    def __iter__(self) -> Iterator[Informer]:
        return iter(list(self._informers.values()))

    def on_change(self, handler: Handler) -> None:
        """Tell `handler` of every object, now and later. To be said before the manager runs."""
        self._handlers.append(handler)

    def on_kinds(self, listener: Callable[[set[Kind]], None]) -> None:
        """Tell `listener` when kinds have come or gone, and which have gone."""
        self._on_kinds.append(listener)

    async def _reconcile(self, key: Key) -> Result | None:
        discovered = await discover(self._manager.client)
        wanted = {
            served.kind
            for served in discovered.with_verbs("delete", "list", "watch")
            if (served.kind.group, served.kind.name) not in _IGNORED
        }
        silent = {where for where in discovered.failures}
        gone = {kind for kind in self._informers if kind not in wanted and kind.api_version not in silent}
        new = wanted - self._informers.keys()
        for kind in gone:
            self._manager.informers.drop(self._informers.pop(kind))
        for kind in new:
            self._follow(kind)
        if new or gone:
            for listener in self._on_kinds:
                listener(gone)
        return Result(requeue_after=RETRY_SECONDS) if discovered.failures else None

    def _follow(self, kind: Kind) -> None:
        informer = self._informers[kind] = self._manager.informer(kind, metadata_only=True)

        def changed(old: Snapshot | None, new: Snapshot | None) -> None:
            for handler in self._handlers:
                handler(kind, old, new)

        informer.on_change(changed)
