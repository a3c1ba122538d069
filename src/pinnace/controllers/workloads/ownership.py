"""The controller that owns an object: the fields that adoption and routing need, and an index over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key, Kind, TypedObject
from pinnace.process.work_slices import in_turns
from pinnace.reconcile.cache import Cache

INDEX = "controller"


class ControllerRef(NamedTuple):
    """The owner reference with `controller: true`."""

    group: str
    kind: str
    name: str
    uid: str

    def is_of_kind(self, kind: Kind) -> bool:
        return (self.group, self.kind) == (kind.group, kind.name)


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields of an object that adoption depends on."""

    key: Key
    uid: str
    labels: Mapping[str, str]
    """Shared by all objects with the same labels."""
    controller: ControllerRef | None
    is_deleting: bool
    created: str


class OwnerReference(msgspec.Struct, gc=False):
    """One entry of `metadata.ownerReferences`."""

    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class OwnedMetadata(msgspec.Struct, gc=False):
    """The part of the metadata that `Owned` is made from."""

    uid: str = ""
    labels: dict[str, str] | None = None
    ownerReferences: Sequence[OwnerReference] | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    annotations: dict[str, str] | None = None


class _WithMetadata(msgspec.Struct, gc=False):
    metadata: OwnedMetadata


_decoder = msgspec.json.Decoder(_WithMetadata)
_NO_LABELS: Mapping[str, str] = {}
_MOST_SHARED = 64


def owned_of(snapshot: Snapshot[Any]) -> Owned:
    """Read the controller of an object. Use through `snapshot.derive(owned_of)`."""
    return Owned(*owned_fields(snapshot, _decoder.decode(snapshot.body).metadata))


def owned_fields(
    snapshot: Snapshot[Any], metadata: OwnedMetadata
) -> tuple[Key, str, Mapping[str, str], ControllerRef | None, bool, str]:
    """Return the fields of `Owned` in order."""
    labels = _share_labels(metadata.labels) if metadata.labels else _NO_LABELS
    controller = next((_owner(reference) for reference in metadata.ownerReferences or () if reference.controller), None)
    is_deleting = metadata.deletionTimestamp is not None
    return snapshot.key, metadata.uid, labels, controller, is_deleting, metadata.creationTimestamp or ""


def _share_labels(labels: dict[str, str]) -> Mapping[str, str]:
    """Return labels that many objects share. Many labels are not kept: they could fill the memory."""
    return _shared_labels(tuple(labels.items())) if len(labels) <= _MOST_SHARED else labels


@lru_cache(maxsize=4096)
def _shared_labels(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(items)


def _owner(reference: OwnerReference) -> ControllerRef:
    return _shared_owner(reference.apiVersion, reference.kind, reference.name, reference.uid)


@lru_cache(maxsize=4096)
def _shared_owner(api_version: str, kind: str, name: str, uid: str) -> ControllerRef:
    return ControllerRef(api_version.rpartition("/")[0], kind, name, uid)


Facts = TypeVar("Facts", bound=Owned)


class Dependents(Generic[Facts, TypedObject]):
    """The objects of one kind by the controller that owns them, and those without one by namespace."""

    def __init__(
        self,
        cache: Cache[TypedObject],
        facts_of: Callable[[Snapshot[TypedObject]], Facts],
        index: Callable[[Snapshot[TypedObject]], Iterable[str]],
    ) -> None:
        """`index` is the same function for all users of one cache."""
        self._cache = cache
        self._facts_of = facts_of
        cache.add_encoded_index(INDEX, index)

    async def of(self, uid: str) -> list[Facts]:
        """Return the objects that the owner with this UID controls, oldest first."""
        return sorted(await self._read(uid), key=age)

    async def unordered(self, uid: str) -> list[Facts]:
        """Like `of`, in any order: to count many objects."""
        return await self._read(uid)

    async def orphans(self, namespace: str) -> list[Facts]:
        """Return the objects of a namespace that have no controller."""
        return sorted(await self._read(f"{namespace}/"), key=age)

    def facts(self, snapshot: Snapshot[TypedObject]) -> Facts:
        return snapshot.derive(self._facts_of)

    def snapshot(self, owned: Owned) -> Snapshot[TypedObject] | None:
        """Return the object in the cache; None if it is gone or another object has its name."""
        present = self._cache.snapshot(owned.key)
        return present if present is not None and self.facts(present).uid == owned.uid else None

    async def _read(self, value: str) -> list[Facts]:
        read: list[Facts] = []
        async for keys in in_turns(self._cache.keys_by_index(INDEX, value)):
            snapshots = (self._cache.snapshot(key) for key in keys)
            read += [snapshot.derive(self._facts_of) for snapshot in snapshots if snapshot is not None]
        return read


def controller_values(owned: Owned) -> Iterable[str]:
    """Return the value of an object in the index: the UID of its controller, or its namespace and a slash."""
    return (owned.controller.uid if owned.controller is not None else f"{owned.key.namespace}/",)


def index_owned(snapshot: Snapshot[Any]) -> Iterable[str]:
    """Index objects by controller, for kinds whose only derived facts are `Owned`."""
    return controller_values(snapshot.derive(owned_of))


def age(owned: Owned) -> tuple[str, str]:
    """Return a sort key: the oldest first."""
    return owned.created, owned.key.name
