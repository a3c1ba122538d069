"""PersistentVolumes: the field of a spec that names the storage behind the volume."""

from __future__ import annotations

from pinnace.model.objects import Object

_NOT_SOURCES = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    )
)


def source_of(spec: Object) -> str:
    """Return the name of the field with the source of a volume, such as hostPath or csi; empty if there is none."""
    return next((field for field in spec if field not in _NOT_SOURCES), "")
