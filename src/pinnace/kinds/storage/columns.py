"""The columns of storage classes, attachments and CSI drivers."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, NONE, UNSET, at, boolean, integer, length_of, reach, string, text
from pinnace.model.objects import Object
from pinnace.model.resources import Column

_STORAGE = "io.k8s.api.storage.v1"


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
