"""The columns of persistent volumes and claims."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import AGE, NAME, UNSET, at, reach, string, text
from pinnace.model.typed_objects import PersistentVolume, PersistentVolumeClaim

_CORE = "io.k8s.api.core.v1"
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Any) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _phase(obj: PersistentVolume | PersistentVolumeClaim, now: datetime) -> str:
    if reach(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return text(reach(obj, "status", "phase"))


def _class(obj: PersistentVolume | PersistentVolumeClaim, now: datetime) -> str:
    annotations = reach(obj, "metadata", "annotations") or {}
    return text(annotations.get("volume.beta.kubernetes.io/storage-class", reach(obj, "spec", "storageClassName")))


def _claim(volume: PersistentVolume, now: datetime) -> str:
    claim = reach(volume, "spec", "claimRef")
    return "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}"


PERSISTENT_VOLUME = (
    NAME,
    string("Capacity", f"{_CORE}.PersistentVolumeSpec.capacity", at("spec.capacity.storage", "0")),
    string(
        "Access Modes",
        f"{_CORE}.PersistentVolumeSpec.accessModes",
        lambda obj, now: _modes(reach(obj, "spec", "accessModes")),
    ),
    string(
        "Reclaim Policy",
        f"{_CORE}.PersistentVolumeSpec.persistentVolumeReclaimPolicy",
        at("spec.persistentVolumeReclaimPolicy"),
    ),
    string("Status", f"{_CORE}.PersistentVolumeStatus.phase", _phase),
    string("Claim", f"{_CORE}.PersistentVolumeSpec.claimRef", _claim),
    string("StorageClass", "StorageClass of the pv", _class),
    string("VolumeAttributesClass", "VolumeAttributesClass of the pv", at("spec.volumeAttributesClassName", UNSET)),
    string("Reason", f"{_CORE}.PersistentVolumeStatus.reason", at("status.reason")),
    AGE,
    string("VolumeMode", f"{_CORE}.PersistentVolumeSpec.volumeMode", at("spec.volumeMode", UNSET), wide=True),
)


def _bound_capacity(claim: PersistentVolumeClaim, now: datetime) -> str:
    if not reach(claim, "spec", "volumeName"):
        return ""
    return text(reach(claim, "status", "capacity", "storage")) or "0"


def _bound_modes(claim: PersistentVolumeClaim, now: datetime) -> str:
    return _modes(reach(claim, "status", "accessModes")) if reach(claim, "spec", "volumeName") else ""


PERSISTENT_VOLUME_CLAIM = (
    NAME,
    string("Status", f"{_CORE}.PersistentVolumeClaimStatus.phase", _phase),
    string("Volume", f"{_CORE}.PersistentVolumeClaimSpec.volumeName", at("spec.volumeName")),
    string("Capacity", f"{_CORE}.PersistentVolumeClaimStatus.capacity", _bound_capacity),
    string("Access Modes", f"{_CORE}.PersistentVolumeClaimStatus.accessModes", _bound_modes),
    string("StorageClass", "StorageClass of the pvc", _class),
    string("VolumeAttributesClass", "VolumeAttributesClass of the pvc", at("spec.volumeAttributesClassName", UNSET)),
    AGE,
    string("VolumeMode", f"{_CORE}.PersistentVolumeClaimSpec.volumeMode", at("spec.volumeMode", UNSET), wide=True),
)
