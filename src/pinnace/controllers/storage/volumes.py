"""Finds the volume that fits a claim, and sets the fields that bind both. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.model import quantity, selectors
from pinnace.model.objects import AnyObject
from pinnace.model.quantity import Quantity
from pinnace.model.typed_objects import ObjectReference, PersistentVolume, PersistentVolumeClaim, StorageClass

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
OLD_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
IS_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def annotations_of(obj: AnyObject) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def annotate(obj: AnyObject, **annotations: str) -> None:
    """Set annotations."""
    obj["metadata"]["annotations"] = annotations_of(obj) | annotations


def class_of(obj: AnyObject) -> str:
    """Return the storage class of a claim or a volume; empty for none."""
    return str(annotations_of(obj).get(_OLD_CLASS) or obj["spec"].get("storageClassName") or "")


def has_class(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim names a class, the empty one included, which asks for no class at all."""
    return _OLD_CLASS in annotations_of(claim) or claim["spec"].get("storageClassName") is not None


def size_of(volume: PersistentVolume) -> Quantity:
    return quantity.parse((volume["spec"].get("capacity") or {}).get("storage", "0"))


def wanted_size(claim: PersistentVolumeClaim) -> Quantity:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return quantity.parse(requests.get("storage", "0"))


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is for this claim: by name, and by uid where it has one."""
    reference = volume["spec"].get("claimRef")
    if reference is None:
        return False
    metadata = claim["metadata"]
    is_named = (reference.get("name"), reference.get("namespace")) == (metadata["name"], metadata["namespace"])
    return is_named and reference.get("uid") in (None, "", metadata["uid"])


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why a claim cannot be bound to the volume that it names; empty if it can."""
    if "deletionTimestamp" in volume["metadata"]:
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if size_of(volume) < wanted_size(claim):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if _attributes_class(volume) != _attributes_class(claim):
        return "volumeAttributesClassName does not match"
    if volume_mode(volume) != volume_mode(claim):
        return "incompatible volumeMode"
    if not has_modes(volume, claim):
        return "incompatible accessMode"
    return ""


def volume_mode(obj: AnyObject) -> str:
    return str(obj["spec"].get("volumeMode") or "Filesystem")


def has_modes(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return set(claim["spec"].get("accessModes") or ()) <= set(volume["spec"].get("accessModes") or ())


def best_match(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, only_prebound: bool
) -> PersistentVolume | None:
    """Return the volume for a claim: one reserved for it, else the smallest that fits, of the fewest access modes.

    `only_prebound` is for claims that wait for their first consumer.
    """
    size = wanted_size(claim)
    selector = selectors.from_object(claim["spec"]["selector"]) if claim["spec"].get("selector") else None
    best: tuple[int, Quantity] | None = None
    matching = None
    for volume in volumes:
        if not _may_bind(volume, claim, size):
            continue
        if is_bound_to(volume, claim):
            return volume
        labels = volume["metadata"].get("labels") or {}
        if only_prebound or (volume.get("status") or {}).get("phase") != "Available":
            continue
        if class_of(volume) != class_of(claim) or (selector is not None and not selector.matches(labels)):
            continue
        rank = (len(volume["spec"].get("accessModes") or ()), size_of(volume))
        if best is None or rank < best:
            best, matching = rank, volume
    return matching


def _may_bind(volume: PersistentVolume, claim: PersistentVolumeClaim, size: Quantity) -> bool:
    is_free = volume["spec"].get("claimRef") is None or is_bound_to(volume, claim)
    return (
        is_free
        and "deletionTimestamp" not in volume["metadata"]
        and size_of(volume) >= size
        and volume_mode(volume) == volume_mode(claim)
        and _attributes_class(volume) == _attributes_class(claim)
        and has_modes(volume, claim)
    )


def _attributes_class(obj: AnyObject) -> str:
    return str(obj["spec"].get("volumeAttributesClassName") or "")


def reference_to(claim: PersistentVolumeClaim) -> ObjectReference:
    """Return the `claimRef` of a volume that is bound to this claim."""
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class, for claims that name none: the newest of those marked so, then by name."""
    marked = [
        storage_class
        for storage_class in classes
        if any(annotations_of(storage_class).get(name) == "true" for name in IS_DEFAULT)
    ]
    by_name = sorted(marked, key=lambda storage_class: str(storage_class["metadata"]["name"]))
    return max(by_name, key=lambda storage_class: str(storage_class["metadata"]["creationTimestamp"]), default=None)


def waits_for_consumer(storage_class: StorageClass | None) -> bool:
    return (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
