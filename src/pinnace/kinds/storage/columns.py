"""The columns of volumes, claims, classes and drivers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import AGE, NAME, NONE, UNSET, at, boolean, integer, length_of, reach, string, text
from pinnace.model.objects import Object
from pinnace.model.resources import Column

_CORE = "io.k8s.api.core.v1"
_STORAGE = "io.k8s.api.storage.v1"
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Any) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _phase(obj: Object, now: datetime) -> str:
    if reach(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return text(reach(obj, "status", "phase"))


def _class(obj: Object, now: datetime) -> str:
    annotations = reach(obj, "metadata", "annotations") or {}
    return text(annotations.get("volume.beta.kubernetes.io/storage-class", reach(obj, "spec", "storageClassName")))


def _claim(volume: Object, now: datetime) -> str:
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


def _bound_capacity(claim: Object, now: datetime) -> str:
    if not reach(claim, "spec", "volumeName"):
        return ""
    return text(reach(claim, "status", "capacity", "storage")) or "0"


def _bound_modes(claim: Object, now: datetime) -> str:
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


def _storage_class_name(storage_class: Object, now: datetime) -> str:
    annotations = reach(storage_class, "metadata", "annotations") or {}
    is_default = any(
        annotations.get(f"storageclass.{prefix}kubernetes.io/is-default-class") == "true" for prefix in ("", "beta.")
    )
    return f"{NAME.value(storage_class, now)}{' (default)' if is_default else ''}"


STORAGE_CLASS = (
    Column("Name", "string", NAME.description, _storage_class_name, format="name"),
    string("Provisioner", f"{_STORAGE}.StorageClass.provisioner", at("provisioner")),
    string("ReclaimPolicy", f"{_STORAGE}.StorageClass.reclaimPolicy", at("reclaimPolicy", "Delete")),
    string("VolumeBindingMode", f"{_STORAGE}.StorageClass.volumeBindingMode", at("volumeBindingMode", "Immediate")),
    string("AllowVolumeExpansion", f"{_STORAGE}.StorageClass.allowVolumeExpansion", at("allowVolumeExpansion", False)),
    AGE,
)
VOLUME_ATTRIBUTES_CLASS = (
    NAME,
    string("DriverName", f"{_STORAGE}.VolumeAttributesClass.driverName", at("driverName")),
    AGE,
)
VOLUME_ATTACHMENT = (
    NAME,
    Column("Attacher", "string", f"{_STORAGE}.VolumeAttachmentSpec.attacher", at("spec.attacher"), format="name"),
    string("PV", f"{_STORAGE}.VolumeAttachmentSource.persistentVolumeName", at("spec.source.persistentVolumeName")),
    string("Node", f"{_STORAGE}.VolumeAttachmentSpec.nodeName", at("spec.nodeName")),
    boolean("Attached", f"{_STORAGE}.VolumeAttachmentStatus.attached", at("status.attached", False)),
    AGE,
)
CSI_NODE = (
    NAME,
    integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node", length_of("spec.drivers")),
    AGE,
)


def _audiences(driver: Object, now: datetime) -> str:
    requests = reach(driver, "spec", "tokenRequests")
    return UNSET if requests is None else ",".join(text(request.get("audience")) for request in requests)


CSI_DRIVER = (
    NAME,
    boolean("AttachRequired", f"{_STORAGE}.CSIDriverSpec.attachRequired", at("spec.attachRequired", True)),
    boolean("PodInfoOnMount", f"{_STORAGE}.CSIDriverSpec.podInfoOnMount", at("spec.podInfoOnMount", False)),
    boolean("StorageCapacity", f"{_STORAGE}.CSIDriverSpec.storageCapacity", at("spec.storageCapacity", False)),
    string("TokenRequests", f"{_STORAGE}.CSIDriverSpec.tokenRequests", _audiences),
    boolean("RequiresRepublish", f"{_STORAGE}.CSIDriverSpec.requiresRepublish", at("spec.requiresRepublish", False)),
    string(
        "Modes",
        f"{_STORAGE}.CSIDriverSpec.volumeLifecycleModes",
        lambda obj, now: ",".join(reach(obj, "spec", "volumeLifecycleModes") or ()) or NONE,
    ),
    AGE,
)
