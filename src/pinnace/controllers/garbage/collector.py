"""The garbage collector: deletes the dependents of deleted owners, and nothing else.

There are three policies. In the background, an object is deleted once none of its owners is left. In the foreground, a
deleted owner waits (with a finalizer) until the dependents that block it are gone. With orphaning, its dependents lose
their owner reference first. Each decision is made on the server's present state, and each deletion has the uid and the
version of that state as preconditions; an owner that is merely not cached is never taken for gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from pinnace.client.client import Client, Propagation
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.garbage.monitors import Monitors
from pinnace.controllers.garbage.object_metadata import (
    CollectorMetadata,
    CollectorReference,
    ManyReferences,
    read_metadata,
    read_uid,
)
from pinnace.controllers.garbage.owner_graph import FOREGROUND, ORPHAN, Node, Owner, OwnerGraph, Place, is_at
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.typed_objects import ObjectMeta
from pinnace.process.work_slices import Turns
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.history import History
from pinnace.reconcile.manager import Manager

MOST_RUNS = 100
"""The last runs that are kept. Many owners may be looked up, and each that was not seen before has a run."""
MOST_KINDS = 1000
"""The kinds of owners that are kept."""
WORKERS = 8
ATTEMPTS = 5
"""How often an edit is repeated because another client wrote the object first."""
UNSEEN_SECONDS = 30.0
"""How soon to read an owner again that exists but is not watched: its deletion causes no event."""

_log = logging.getLogger(__name__)


class Fate(Enum):
    """The state of one owner, which decides about the deletion of its dependents."""

    SOLID = "the owner lives"
    DANGLING = "the owner is gone"
    WAITING = "the owner waits for its dependents to go"


class _Unresolvable(Exception):
    """A cluster-scoped object names an owner of a namespaced kind: its namespace is unknown."""


@dataclass(slots=True)
class _Owners:
    """The owners of one object by their state."""

    living: list[Owner] = field(default_factory=list)
    """The solid ones, and those that wait."""
    waiting: list[str] = field(default_factory=list)
    dangling: list[str] = field(default_factory=list)

    @property
    def has_solid(self) -> bool:
        return len(self.living) > len(self.waiting)

    def add(self, others: _Owners) -> None:
        self.living += others.living
        self.waiting += others.waiting
        self.dangling += others.dangling


@dataclass(slots=True)
class _Lookup:
    """An object with many owners, of which some were looked up."""

    references: ManyReferences
    owners: _Owners = field(default_factory=_Owners)
    is_outdated: bool = False
    """One of its owners has changed since the lookup began, perhaps one that was looked up as living."""


class GarbageCollector:
    """Keeps the graph of owners and acts on it. Reads through `monitors`, writes through `client`."""

    def __init__(self, manager: Manager, client: Client, monitors: Monitors) -> None:
        self._manager = manager
        self._client = client
        self._monitors = monitors
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._unserved: set[str] = set()
        self._lookups: dict[str, _Lookup] = {}
        """The objects with many owners whose owners are being looked up."""
        self._digests: dict[str, bytes] = {}
        """The references of objects with many owners that were or are being looked up."""
        self.graph = OwnerGraph(look=self._look_again, misplaced=self._tell_misplaced)
        self.controller = Controller("garbage-collector", self._reconcile, workers=WORKERS)
        self.controller.history = History(most_runs=MOST_RUNS)
        monitors.on_change(self._changed)
        monitors.on_kinds(self._kinds_changed)

    # Events

    def _changed(self, kind: Kind, old: Snapshot | None, new: Snapshot | None) -> None:
        latest = new or old
        assert latest is not None
        metadata, many = read_metadata(latest.body)
        place = Place(kind, latest.key, metadata.uid)
        if new is not None:
            if old is not None and (before := read_uid(old.body)) != metadata.uid:
                self._remove(Place(kind, latest.key, before))  # Deleted and created again between two events.
            self._observe(place, metadata, many)
        elif latest.version:
            self._remove(place)
        else:
            self._forget_lookup(metadata.uid)
            self.graph.mark_unknown(metadata.uid)  # The kind is no longer served, but its objects still exist.

    def _observe(self, place: Place, metadata: CollectorMetadata, many: ManyReferences | None) -> None:
        """Record an object in the graph. Of many owners only those that live: they are looked up a part at a time."""
        if many is None:
            self._forget_lookup(place.uid)
            owners = tuple(self._owners(metadata.ownerReferences or ()))
        else:
            known = self.graph.get(place.uid)
            owners = known.owners if known is not None else ()
        is_deleted = metadata.deletionTimestamp is not None
        self.graph.observe(place, owners, is_deleted=is_deleted, finalizers=metadata.finalizers or ())
        if many is not None and self._digests.get(place.uid) != many.digest:
            self._begin_lookup(place.uid, many)

    def _remove(self, place: Place) -> None:
        self._forget_lookup(place.uid)
        self.graph.remove(place)

    def _begin_lookup(self, uid: str, many: ManyReferences) -> None:
        self._digests[uid] = many.digest
        self._lookups[uid] = _Lookup(many)
        self._look(uid)

    def _forget_lookup(self, uid: str) -> None:
        if self._digests:
            self._lookups.pop(uid, None)
            self._digests.pop(uid, None)

    def _kinds_changed(self, gone: set[Kind]) -> None:
        if gone:
            for uid in [node.place.uid for node in self.graph if node.place.kind in gone]:
                self.graph.mark_unknown(uid)
        unserved, self._unserved = self._unserved, set()
        for uid in unserved:
            self._look(uid)

    def _look(self, uid: str) -> None:
        self.controller.enqueue(Key("", uid), "owners")

    def _look_again(self, uid: str) -> None:
        """Check an object after a change of an owner. A lookup that runs may have passed that owner."""
        lookup = self._lookups.get(uid)
        if lookup is not None:
            lookup.is_outdated = True
        self._look(uid)

    def _owners(self, references: Iterable[CollectorReference]) -> Iterator[Owner]:
        for ref in references:
            yield Owner(self._kind(ref.apiVersion, ref.kind), ref.name, ref.uid, ref.blockOwnerDeletion is True)

    def _kind(self, api_version: str, name: str) -> Kind:
        """Return one shared Kind: a thousand dependents must not keep a thousand copies."""
        kind = self._kinds.get((api_version, name))
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:  # References may name kinds that do not exist.
                self._kinds.clear()
            kind = self._kinds[api_version, name] = Kind.parse(api_version, name)
        return kind

    def _tell_misplaced(self, dependent: Node, owner: Owner) -> None:
        place = dependent.place
        named = Place(owner.kind, Key(place.key.namespace, owner.name), owner.uid)
        about = {
            "apiVersion": place.kind.api_version,
            "kind": place.kind.name,
            "metadata": {"name": place.key.name, "namespace": place.key.namespace, "uid": place.uid},
        }
        message = f'ownerRef {named} does not exist in namespace "{place.key.namespace}"'
        self._manager.recorder.record(about, "Warning", "OwnerRefInvalidNamespace", message)

    # Reconciling

    async def _reconcile(self, key: Key) -> Result | None:
        node = self.graph.get(key.name)
        if node is None:
            return None
        try:
            if not node.is_observed:
                return await self._verify(node)
            lookup = self._lookups.get(key.name)
            if lookup is not None and not lookup.references.is_complete:
                await self._look_up_part(node, lookup)
                self._look(key.name)  # After the objects that wait: the next part, or the decision.
            elif node.finalizer == ORPHAN:
                await self._orphan_dependents(node)
            elif node.finalizer == FOREGROUND:
                await self._await_dependents(node)
            elif not node.is_deleted:
                await self._collect(node)
        except errors.NoSuchPath:
            self._unserved.add(key.name)  # Retried when the kinds change.
            self._lookups.pop(key.name, None)
        except _Unresolvable:
            self._lookups.pop(key.name, None)
            _log.info("%s is cluster-wide and names an owner in a namespace: it is left alone", node.place)
        except errors.NotFound:
            pass  # It is gone already; the watch delivers the deletion.
        return None

    async def _verify(self, node: Node) -> Result | None:
        """Find out whether an owner exists that has not been seen."""
        place = await self._locate(node.place, node.place.key.namespace)
        obj = await self._read(place)
        if obj is None:
            self.graph.mark_absent(place)
            return None
        return Result(requeue_after=UNSEEN_SECONDS)

    async def _look_up_part(self, node: Node, lookup: _Lookup) -> None:
        """Look up some more of many owners, and record those that live in the graph."""
        before, owners = tuple(lookup.owners.living), list(self._owners(lookup.references.part()))
        for owner in owners:
            known = self.graph.get(owner.uid)
            if known is not None and known.is_observed and not is_at(owner, node.place.key.namespace, known.place):
                self._tell_misplaced(node, owner)
                break
        lookup.owners.add(await self._classify(node.place, owners))
        lookup.references.finish_part()
        if lookup.references.is_complete or node.owners == before:
            # Until the new references are known, an object that has changed keeps the owners that it had.
            self.graph.change_owners(node, tuple(lookup.owners.living))

    async def _orphan_dependents(self, node: Node) -> None:
        """Remove the owner reference from all dependents, then the finalizer from the owner."""
        turns = Turns()
        for dependent in await self._live_dependents(node.place):
            await turns.pause()
            with suppress(errors.NotFound):  # A dependent that is gone meanwhile needs no change.
                await self._drop_owners(dependent, {node.place.uid})
        await self._remove_finalizer(node.place, ORPHAN)

    async def _await_dependents(self, node: Node) -> None:
        """Remove the finalizer of the owner once no dependent blocks it; until then, delete the dependents that do."""
        blocking = node.blocking()
        if not blocking:
            await self._remove_finalizer(node.place, FOREGROUND)
        for dependent in blocking:
            if dependent.finalizer != FOREGROUND:
                self._look(dependent.place.uid)
            elif dependent.waits_for(node) and (snapshot := self._snapshot(dependent.place)) is not None:
                # Both are deleted in the foreground and wait for each other: only the collector can break this cycle.
                await self._unblock_owners(dependent.place, snapshot)

    async def _collect(self, node: Node) -> None:
        """Delete an object that has owner references if none of its owners is left."""
        place = node.place
        snapshot = self._snapshot(place)
        if snapshot is None:
            return
        metadata, many = read_metadata(snapshot.body)
        if metadata.uid != place.uid or metadata.deletionTimestamp is not None:
            return
        owners = await self._owners_of(place, metadata, many)
        if owners is None:
            return
        if owners.has_solid:
            if owners.dangling or owners.waiting:
                # The owner would wait for ever for an object that stays.
                await self._drop_owners(place, {*owners.dangling, *owners.waiting})
            return
        finalizers = metadata.finalizers or ()
        propagation: Propagation = "Background"
        version = metadata.resourceVersion
        if owners.waiting and node.dependents:
            propagation = "Foreground"
            if any(dependent.finalizer == FOREGROUND for dependent in node.dependents.values()):
                # Its dependent waits as well, perhaps for this object: break the cycle here.
                version = await self._unblock_owners(place, snapshot)
        elif ORPHAN in finalizers:
            propagation = "Orphan"
        elif FOREGROUND in finalizers:
            propagation = "Foreground"
        await self._client.delete(
            place.kind,
            place.key.name,
            namespace=place.key.namespace,
            propagation=propagation,
            uid=place.uid,
            version=version,
        )

    async def _owners_of(
        self, place: Place, metadata: CollectorMetadata, many: ManyReferences | None
    ) -> _Owners | None:
        """Return the owners of an object by their state; None if it has none, or if many must be looked up first."""
        if many is None:
            references = metadata.ownerReferences
            return await self._classify(place, self._owners(references)) if references else None
        lookup = self._lookups.pop(place.uid, None)
        if lookup is None or lookup.references.digest != many.digest:
            self._begin_lookup(place.uid, many)
            return None
        if lookup.is_outdated:
            self._look(place.uid)  # After what the owners that are gone cause: look up the rest again.
        return lookup.owners

    async def _classify(self, place: Place, owners: Iterable[Owner]) -> _Owners:
        classes, turns = _Owners(), Turns()
        for owner in owners:
            await turns.pause()
            fate = await self._fate(place, owner)
            if fate is Fate.DANGLING:
                classes.dangling.append(owner.uid)
                continue
            classes.living.append(owner)
            if fate is Fate.WAITING:
                classes.waiting.append(owner.uid)
        return classes

    async def _fate(self, place: Place, owner: Owner) -> Fate:
        """Return the state of an owner. The graph may say that it lives; anything else is read from the server."""
        namespace = place.key.namespace
        named = Place(owner.kind, Key(namespace, owner.name), owner.uid)
        if self.graph.is_known_absent(named):
            return Fate.DANGLING
        known = self.graph.get(owner.uid)
        if known is not None and known.is_observed and not known.is_deleted and is_at(owner, namespace, known.place):
            return Fate.SOLID
        located = await self._locate(named, namespace)
        obj = await self._read(located)
        if obj is None:
            self.graph.mark_absent(located)
            return Fate.DANGLING
        metadata = obj["metadata"]
        is_waiting = "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())
        return Fate.WAITING if is_waiting else Fate.SOLID

    # Reading

    async def _locate(self, place: Place, namespace: str) -> Place:
        """Return the place with the namespace that the kind has. Raise NoSuchPath or _Unresolvable."""
        served = await self._client.kinds.find(place.kind)
        if not served.namespaced:
            return Place(place.kind, Key("", place.key.name), place.uid)
        if not namespace:
            raise _Unresolvable
        return place

    async def _read(self, place: Place) -> Object | None:
        """Return the object with this uid as the server has it now, or None if there is none."""
        obj = await self._client.get_or_none(place.kind, place.key.name, namespace=place.key.namespace)
        return obj if obj is not None and obj["metadata"].get("uid") == place.uid else None

    async def _live_dependents(self, owner: Place) -> list[Place]:
        """Return all dependents of an owner from the server: one that the graph lacks would be lost with the owner."""
        places: list[Place] = []
        for informer in self._monitors:
            if owner.key.namespace and informer.namespaced is False:
                continue
            kind = informer.scope.kind
            pages = self._client.snapshots(kind, namespace=owner.key.namespace, metadata_only=True)
            try:
                async for page, _ in pages:
                    for snapshot in page:
                        if owner.uid.encode() not in snapshot.body:
                            continue
                        metadata, many = read_metadata(snapshot.body)
                        references = metadata.ownerReferences or () if many is None else many
                        if any(ref.uid == owner.uid for ref in references):
                            places.append(Place(kind, snapshot.key, metadata.uid))
            except errors.NoSuchPath:
                continue
            finally:
                await pages.aclose()
        return places

    def _snapshot(self, place: Place) -> Snapshot | None:
        informer = self._monitors.informer(place.kind)
        return informer.cache.snapshot(place.key) if informer is not None else None

    # Writing

    async def _drop_owners(self, place: Place, uids: set[str]) -> None:
        def without_owners(metadata: ObjectMeta) -> Object | None:
            references = metadata.get("ownerReferences") or []
            kept = [reference for reference in references if reference.get("uid") not in uids]
            return {"ownerReferences": kept or None} if kept != references else None

        await self._edit(place, without_owners)

    async def _unblock_owners(self, place: Place, snapshot: Snapshot) -> str:
        """Clear blockOwnerDeletion in the object's owner references, and return its new resourceVersion."""
        references = snapshot.metadata.get("ownerReferences") or []
        freed = [{**reference, "blockOwnerDeletion": False} for reference in references]
        patched = await self._patch(place, snapshot.version, {"ownerReferences": freed})
        return str(patched["metadata"]["resourceVersion"])

    async def _remove_finalizer(self, place: Place, finalizer: str) -> None:
        def without_finalizer(metadata: ObjectMeta) -> Object | None:
            finalizers = metadata.get("finalizers") or []
            kept = [name for name in finalizers if name != finalizer]
            return {"finalizers": kept or None} if kept != finalizers else None

        await self._edit(place, without_finalizer)

    async def _edit(self, place: Place, edit: Callable[[ObjectMeta], Object | None]) -> None:
        """Change the metadata of an object by what `edit` returns for it, unless that is None.

        If another client is faster, edit the newer object, as often as Kubernetes. Raise Conflict after that.
        """
        for attempt in range(ATTEMPTS):
            obj = await self._read(place)
            change = edit(obj["metadata"]) if obj is not None else None
            if obj is None or change is None:
                return
            try:
                await self._patch(place, obj["metadata"]["resourceVersion"], change)
                return
            except errors.Conflict:
                if attempt == ATTEMPTS - 1:
                    raise

    async def _patch(self, place: Place, version: str, metadata: Object) -> Object:
        """Change the metadata of an object that is unchanged since it was read. Raise Conflict if it has changed."""
        patch = {"metadata": {"uid": place.uid, "resourceVersion": version, **metadata}}
        return await self._client.patch(place.kind, place.key.name, patch, namespace=place.key.namespace)
