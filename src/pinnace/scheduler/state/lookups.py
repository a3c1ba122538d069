"""The other objects that plug-ins read: namespaces, services, claims, volumes, budgets and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from pinnace.model.objects import Key, Object

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
]


class Lookups:
    """Objects by kind, namespace and name. Each kind has a version that grows with every change."""

    def __init__(self) -> None:
        self._objects: dict[LookupKind, dict[str, dict[str, Object]]] = {}
        self._versions: dict[LookupKind, int] = {}
        self.on_change: list[Callable[[], None]] = []
        """Called after each change."""

    def put(self, kind: LookupKind, obj: Object) -> None:
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

    def get(self, kind: LookupKind, name: str, *, namespace: str = "") -> Object | None:
        return self._objects.get(kind, {}).get(namespace, {}).get(name)

    def all(self, kind: LookupKind) -> Iterable[Object]:
        return [obj for some in self._objects.get(kind, {}).values() for obj in some.values()]

    def within(self, kind: LookupKind, namespace: str) -> Iterable[Object]:
        return self._objects.get(kind, {}).get(namespace, {}).values()

    def version(self, *kinds: LookupKind) -> int:
        return sum(self._versions.get(kind, 0) for kind in kinds)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        found = self.get("Namespace", namespace)
        return (found["metadata"].get("labels") or {}) if found is not None else {}
