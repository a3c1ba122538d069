"""Protects volumes, claims and pod groups that are in use with a finalizer, and checks whether a claim may grow."""

from __future__ import annotations

from pinnace.admission.chain import CREATE, UPDATE
from pinnace.kinds.scheduling import POD_GROUP_PROTECTION
from pinnace.kinds.volumes.claims import storage_class_of
from pinnace.model.objects import AnyObject, Object
from pinnace.model.quantity import ZERO, Quantity, parse
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

_FINALIZERS = {
    "persistentvolumes": "kubernetes.io/pv-protection",
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "volumeattributesclasses": "kubernetes.io/vac-protection",
}


class StorageObjectInUseProtection:
    interests = (
        ("", "persistentvolumes", CREATE),
        ("", "persistentvolumeclaims", CREATE),
        ("storage.k8s.io", "volumeattributesclasses", CREATE),
    )

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        _add_finalizer(review, _FINALIZERS[review.resource.plural])


class PodGroupProtection:
    interests = (("scheduling.k8s.io", "podgroups", CREATE),)

    def mutate(self, review: Review) -> None:
        if not review.subresource:
            _add_finalizer(review, POD_GROUP_PROTECTION)


def _add_finalizer(review: Review, wanted: str) -> None:
    metadata = review.changed["metadata"]
    finalizers = metadata.get("finalizers") or []
    if wanted not in finalizers:
        metadata["finalizers"] = [*finalizers, wanted]


class PersistentVolumeClaimResize:
    """A claim may grow only once it is bound, and where its class allows it."""

    interests = (("", "persistentvolumeclaims", UPDATE),)

    def __init__(self, classes: WatchedObjects) -> None:
        self._classes = classes

    def validate(self, review: Review) -> None:
        new, old = review.changed, review.old
        if review.subresource or old is None or _size(new) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise review.forbidden("Only bound persistent volume claims can be expanded")
        if not self._may_grow(new, old):
            raise review.forbidden(
                "only dynamically provisioned pvc can be resized and "
                "the storageclass that provisions the pvc must support resize"
            )

    def _may_grow(self, new: Object, old: Object) -> bool:
        name = storage_class_of(new)
        if not name or name != storage_class_of(old):
            return False
        storage_class = self._classes.get(name)
        return storage_class is not None and bool(storage_class.get("allowVolumeExpansion"))


def _size(claim: AnyObject) -> Quantity:
    requested = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
    return parse(requested) if requested is not None else ZERO
