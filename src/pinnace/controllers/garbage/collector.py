"""The garbage collector: deletes the dependents of deleted owners, and nothing else.

There are three policies. In the background, an object is deleted once none of its owners is left. In the foreground, a
deleted owner waits (with a finalizer) until the dependents that block it are gone. With orphaning, its dependents lose
their owner reference first. Each decision is made on the server's present state, and each deletion has the uid and the
version of that state as preconditions; an owner that is merely not cached is never taken for gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from pinnace.client.client import Client, Propagation
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.garbage.monitors import Monitors
from pinnace.controllers.garbage.owner_graph import FOREGROUND, ORPHAN, Node, Owner, OwnerGraph, Place, is_at
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.work_slices import SliceQueue
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.history import History
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.turns import Turns

MOST_RUNS = 100
"""The last runs that are kept. One object can have 20,000 owners, and each of them has a run."""
MOST_KINDS = 1000
"""The kinds of owners that are kept."""
WORKERS = 8
OWNERS_AT_ONCE = 150
"""How many owners of one object are recorded in a slice."""
MOST_QUEUED = 1000
"""While more objects wait for a worker, no more owners are recorded: each that was not seen before is one of them."""
QUEUED_SECONDS = 0.02
ATTEMPTS = 5
"""How often an object is edited anew because another client was faster."""
UNSEEN_SECONDS = 30.0
"""How soon to read an owner again that exists but is not watched: its deletion causes no event."""

_log = logging.getLogger(__name__)


class _Reference(msgspec.Struct, gc=False):
    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    blockOwnerDeletion: bool | None = None


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    resourceVersion: str = ""
    deletionTimestamp: str | None = None
    finalizers: list[str] | None = None
    ownerReferences: list[_Reference] | None = None


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata


class _Identity(msgspec.Struct, gc=False):
    uid: str = ""


class _IdentityHead(msgspec.Struct, gc=False):
    metadata: _Identity


_decode = msgspec.json.Decoder(_Head).decode
_decode_identity = msgspec.json.Decoder(_IdentityHead).decode


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

    solid: list[str] = field(default_factory=list)
    dangling: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Observation:
    """An object with many owners, of which some are in the graph."""

    place: Place
    references: list[_Reference]
    finalizers: tuple[str, ...]
    is_deleted: bool
    owners: list[Owner] = field(default_factory=list)
    """The owners of the first references."""
    observed: int = 0
    """How many of the owners are in the graph, once `owners` are complete."""


class GarbageCollector:
    """Keeps the graph of owners and acts on it. Reads through `monitors`, writes through `client`."""

    def __init__(self, manager: Manager, client: Client, monitors: Monitors) -> None:
        self._manager = manager
        self._client = client
        self._monitors = monitors
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._unserved: set[str] = set()
        self._unfinished: dict[str, _Observation] = {}
        self.graph = OwnerGraph(look=self._look, misplaced=self._tell_misplaced)
        self.controller = Controller("garbage-collector", self._reconcile, workers=WORKERS)
        self.controller.history = History(most_runs=MOST_RUNS)
        monitors.on_change(self._changed)
        monitors.on_kinds(self._kinds_changed)

    # Events

    def _changed(self, kind: Kind, old: Snapshot | None, new: Snapshot | None) -> None:
        latest = new or old
        assert latest is not None
        metadata = _decode(latest.body).metadata
        place = Place(kind, latest.key, metadata.uid)
        if new is not None:
            if old is not None and (before := _decode_identity(old.body).metadata.uid) != metadata.uid:
                self.graph.remove(Place(kind, latest.key, before))  # Deleted and created again between two events.
            self._observe(place, metadata)
        elif latest.version:
            self._unfinished.pop(place.uid, None)
            self.graph.remove(place)
        else:
            self.graph.mark_unknown(metadata.uid)  # The kind is no longer served, but its objects still exist.

    def _observe(self, place: Place, metadata: _Metadata) -> None:
        """Record an object in the graph: many owners a part at a time, so that the loop has turns in between.

        Nothing is deleted by an unfinished observation: `_collect` reads all owners from the object itself.
        """
        references, is_deleted = metadata.ownerReferences or [], metadata.deletionTimestamp is not None
        finalizers = tuple(metadata.finalizers or ())
        if len(references) <= OWNERS_AT_ONCE:
            self._unfinished.pop(place.uid, None)
            self.graph.observe(place, tuple(self._owners(references)), is_deleted=is_deleted, finalizers=finalizers)
            return
        if not self._unfinished:
            SliceQueue.of_loop().call(self._observe_more)
        self._unfinished[place.uid] = _Observation(place, references, finalizers, is_deleted=is_deleted)

    def _observe_more(self) -> None:
        uid, whole = next(iter(self._unfinished.items()), ("", None))
        if whole is None:
            return
        if self._observe_part(whole):
            del self._unfinished[uid]
            if (node := self.graph.get(uid)) is not None and not node.unverified:
                self._look(uid)
        if not self._unfinished:
            return
        if self.controller.queue.depth > MOST_QUEUED:
            asyncio.get_running_loop().call_later(QUEUED_SECONDS, self._observe_more)
        else:
            SliceQueue.of_loop().call(self._observe_more)

    def _observe_part(self, whole: _Observation) -> bool:
        """Read some more references; after the last, record some more owners. Return whether that was all."""
        read, count = len(whole.owners), len(whole.references)
        if read < count:
            whole.owners += self._owners(whole.references[read : read + OWNERS_AT_ONCE])
            return False
        owners, node = tuple(whole.owners), self.graph.get(whole.place.uid)
        is_same = node is not None and node.owners == owners
        whole.observed = count if is_same else whole.observed + OWNERS_AT_ONCE
        some = owners[: whole.observed]
        self.graph.observe(whole.place, some, is_deleted=whole.is_deleted, finalizers=whole.finalizers)
        return whole.observed >= count

    def _kinds_changed(self, gone: set[Kind]) -> None:
        if gone:
            for uid in [node.place.uid for node in self.graph if node.place.kind in gone]:
                self.graph.mark_unknown(uid)
        unserved, self._unserved = self._unserved, set()
        for uid in unserved:
            self._look(uid)

    def _look(self, uid: str) -> None:
        self.controller.enqueue(Key("", uid), "owners")

    def _owners(self, references: Iterable[_Reference]) -> Iterator[Owner]:
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
            if node.finalizer == ORPHAN:
                await self._orphan_dependents(node)
            elif node.finalizer == FOREGROUND:
                await self._await_dependents(node)
            elif not node.is_deleted and key.name not in self._unfinished:
                await self._collect(node)
        except errors.NoSuchPath:
            self._unserved.add(key.name)  # Retried when the kinds change.
        except _Unresolvable:
            _log.info("%s is cluster-wide and names an owner in a namespace: it is left alone", node.place)
        except errors.NotFound:
            pass  # It is gone already; the watch delivers the deletion.
        return None

    async def _verify(self, node: Node) -> Result | None:
        """Find out whether an owner exists that has not been seen."""
        place = await self._locate(node.place, node.place.key.namespace)
        found = await self._read(place)
        if found is None:
            self.graph.mark_absent(place)
            return None
        return Result(requeue_after=UNSEEN_SECONDS)

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
        metadata = _decode(snapshot.body).metadata
        if metadata.uid != place.uid or metadata.deletionTimestamp is not None or not metadata.ownerReferences:
            return
        owners = await self._classify(place, self._owners(metadata.ownerReferences))
        if owners.solid:
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

    async def _classify(self, place: Place, owners: Iterable[Owner]) -> _Owners:
        sorted_owners, turns = _Owners(), Turns()
        for owner in owners:
            await turns.pause()
            fate = await self._fate(place, owner)
            {
                Fate.SOLID: sorted_owners.solid,
                Fate.DANGLING: sorted_owners.dangling,
                Fate.WAITING: sorted_owners.waiting,
            }[fate].append(owner.uid)
        return sorted_owners

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
        found = await self._read(located)
        if found is None:
            self.graph.mark_absent(located)
            return Fate.DANGLING
        metadata = found["metadata"]
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
        found = await self._client.get_or_none(place.kind, place.key.name, namespace=place.key.namespace)
        return found if found is not None and found["metadata"].get("uid") == place.uid else None

    async def _live_dependents(self, owner: Place) -> list[Place]:
        """Return all dependents of an owner from the server: one that the graph lacks would be lost with the owner."""
        found: list[Place] = []
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
                        metadata = _decode(snapshot.body).metadata
                        if any(ref.uid == owner.uid for ref in metadata.ownerReferences or ()):
                            found.append(Place(kind, snapshot.key, metadata.uid))
            except errors.NoSuchPath:
                continue
            finally:
                await pages.aclose()
        return found

    def _snapshot(self, place: Place) -> Snapshot | None:
        informer = self._monitors.informer(place.kind)
        return informer.cache.snapshot(place.key) if informer is not None else None

    # Writing

    async def _drop_owners(self, place: Place, uids: set[str]) -> None:
        def without_owners(metadata: Object) -> Object | None:
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
        def without_finalizer(metadata: Object) -> Object | None:
            finalizers = metadata.get("finalizers") or []
            kept = [name for name in finalizers if name != finalizer]
            return {"finalizers": kept or None} if kept != finalizers else None

        await self._edit(place, without_finalizer)

    async def _edit(self, place: Place, edit: Callable[[Object], Object | None]) -> None:
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
