"""Watches every object that can be deleted, also of kinds that are added later: one watch of metadata for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.garbage.discovery import Discovery
from pinnace.controllers.metric_names import GARBAGE_SYNC_ERRORS, ControllerMetrics
from pinnace.model.objects import AnyObject, Key, Kind
from pinnace.model.typed_objects import APIService, CustomResourceDefinition
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.manager import Manager

RETRY_SECONDS = 30.0
"""How soon to retry a failed discovery: there is no event when an aggregated server is back."""
LAST_EVENTS_SECONDS = 1.0
"""How long to follow a kind that is not served any more: the deletion of its last objects may still be on its way."""

Handler = Callable[[Kind, Snapshot | None, Snapshot | None], None]
"""Called with the kind, the old and the new snapshot of each change."""

_ALL = Key("", "*")
"""Every group; any other key is the name of one."""
_IGNORED = {("", "Event"), ("events.k8s.io", "Event")}
"""Events are numerous, never own anything, and expire by themselves."""


class Monitors:
    """An informer for each kind that can be listed, watched and deleted."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._discovery = Discovery(manager.client)
        self._metrics = ControllerMetrics(manager.metrics, GARBAGE_SYNC_ERRORS)
        self._is_begun = False
        self._informers: dict[Kind, Informer] = {}
        self._leave: dict[Kind, Callable[[], None]] = {}
        self._leaving: dict[Kind, float] = {}
        """The kinds that are not served any more, and until when they are followed."""
        self._by_plural: dict[tuple[str, str], Kind] = {}
        self._handlers: list[Handler] = []
        self._on_kinds: list[Callable[[set[Kind]], None]] = []
        self.controller = Controller("monitors", self._reconcile)
        for kind in (CustomResourceDefinition, APIService):
            self.controller.watches(kind, self._group_of, metadata_only=True)
        self.controller.enqueue(_ALL, "start")

    def informer(self, kind: Kind) -> Informer | None:
        """Return the informer of a kind that is watched."""
        return self._informers.get(kind)

    def find(self, group: str, plural: str) -> Kind | None:
        """Return the kind of a resource whose objects are watched."""
        return self._by_plural.get((group, plural))

    def __iter__(self) -> Iterator[Informer]:
        return iter(list(self._informers.values()))

    def on_change(self, handler: Handler) -> None:
        """Call `handler` for every object, now and later. Call this before the manager runs."""
        self._handlers.append(handler)

    def on_kinds(self, listener: Callable[[set[Kind]], None]) -> None:
        """Call `listener` when kinds were added or removed, with those that were removed."""
        self._on_kinds.append(listener)

    async def _reconcile(self, key: Key) -> None:
        self._is_begun = True
        try:
            discovered = await self._discovery.reread(None if key == _ALL else key.name)
        except Exception:
            self._metrics.count(GARBAGE_SYNC_ERRORS)
            raise
        if discovered.failures:
            self._metrics.count(GARBAGE_SYNC_ERRORS)
        followed = [
            served
            for served in discovered.with_verbs("delete", "list", "watch")
            if (served.kind.group, served.kind.name) not in _IGNORED
        ]
        wanted = {served.kind for served in followed}
        silent = {where for where in discovered.failures}
        unserved = {kind for kind in self._informers if kind not in wanted and kind.api_version not in silent}
        names = {(kind.group, kind.name) for kind in wanted}  # Another version of a kind takes its place at once.
        now = self._manager.client.clock.monotonic()
        self._leaving = {kind: self._leaving.get(kind, now + LAST_EVENTS_SECONDS) for kind in unserved}
        gone = {kind for kind, end in self._leaving.items() if now >= end or (kind.group, kind.name) in names}
        for kind in unserved - gone:
            self.controller.enqueue(Key("", kind.group), "last events", after=LAST_EVENTS_SECONDS)
        new = wanted - self._informers.keys()
        for kind in gone:
            self._unfollow(kind)
        for kind in new:
            self._follow(kind)
        self._by_plural = {
            place: kind for place, kind in self._by_plural.items() if kind in self._informers and kind not in wanted
        } | {(served.kind.group, served.plural): served.kind for served in followed}
        if new or gone:
            for listener in self._on_kinds:
                listener(gone)
        for where in discovered.failures:
            group = Key("", where.rpartition("/")[0])
            if key in (_ALL, group):
                self.controller.enqueue(group, "unreachable", after=RETRY_SECONDS)

    def _follow(self, kind: Kind) -> None:
        # Controllers that need whole objects of a kind have declared it before: its watch serves here too.
        informer = self._informers[kind] = self._manager.informers.of_metadata(kind)

        def changed(old: Snapshot | None, new: Snapshot | None) -> None:
            for handler in self._handlers:
                handler(kind, old, new)

        self._leave[kind] = informer.on_change(changed)

    def _unfollow(self, kind: Kind) -> None:
        informer = self._informers.pop(kind)
        self._leave.pop(kind)()
        if informer.scope.metadata_only:  # Others have their own use for one of whole objects.
            self._manager.informers.drop(informer)

    def _group_of(self, obj: AnyObject) -> tuple[Key, ...]:
        """Return the group of a definition (plural.group) or of an APIService (version.group)."""
        # The first discovery reads all groups at once.
        return (Key("", obj["metadata"]["name"].partition(".")[2]),) if self._is_begun else (_ALL,)
