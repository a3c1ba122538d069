"""The other objects that plug-ins read: namespaces, services, claims, volumes, budgets and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, cast

from pinnace.client.typed import Stored
from pinnace.model.objects import AnyObject, Key
from pinnace.model.typed_objects import Namespace

LookupKind = Literal[
    "Namespace",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
    "DeviceTaintRule",
]


class Lookups:
    """Objects by kind, namespace and name. Each kind has a version that grows with every change."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, dict[str, AnyObject]]] = {}
        """By the name of the type, which is that of the kind."""
        self._versions: dict[LookupKind, int] = {}
        self.on_change: list[Callable[[], None]] = []
        """Called after each change."""

    def put(self, kind: LookupKind, obj: AnyObject) -> None:
        metadata = obj["metadata"]
        some = self._objects.setdefault(kind, {}).setdefault(metadata.get("namespace", ""), {})
        some[metadata["name"]] = obj
        self._note(kind)

    def _note(self, kind: LookupKind) -> None:
        self._versions[kind] = self._versions.get(kind, 0) + 1
        for listener in self.on_change:
            listener()

    def remove(self, kind: LookupKind, key: Key) -> None:
        self._objects.get(kind, {}).get(key.namespace, {}).pop(key.name, None)
        self._note(kind)

    def get(self, kind: type[Stored], name: str, *, namespace: str = "") -> Stored | None:
        return cast("Stored | None", self._objects.get(kind.__name__, {}).get(namespace, {}).get(name))

    def find(self, kind: LookupKind, name: str, *, namespace: str = "") -> AnyObject | None:
        """Return an object of a kind that is known by name only."""
        return self._objects.get(kind, {}).get(namespace, {}).get(name)

    def all(self, kind: type[Stored]) -> Iterable[Stored]:
        objects = [obj for some in self._objects.get(kind.__name__, {}).values() for obj in some.values()]
        return cast("list[Stored]", objects)

    def within(self, kind: type[Stored], namespace: str) -> Iterable[Stored]:
        return cast("Iterable[Stored]", self._objects.get(kind.__name__, {}).get(namespace, {}).values())

    def version(self, *kinds: LookupKind) -> int:
        return sum(self._versions.get(kind, 0) for kind in kinds)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        obj = self.get(Namespace, namespace)
        return (obj["metadata"].get("labels") or {}) if obj is not None else {}
