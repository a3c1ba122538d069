"""Sets the default class of claims and ingresses that name none."""

from __future__ import annotations

from pinnace.admission.chain import CREATE
from pinnace.admission.sources import Kept
from pinnace.model.objects import AnyObject, Object
from pinnace.model.typed_objects import Ingress, PersistentVolumeClaim
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

_STORAGE = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_INGRESS = ("ingressclass.kubernetes.io/is-default-class",)
_OLD_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_OLD_INGRESS_CLASS = "kubernetes.io/ingress.class"


class DefaultStorageClass:
    interests = (("", "persistentvolumeclaims", CREATE),)

    def __init__(self, classes: WatchedObjects) -> None:
        self._classes = Kept(classes)

    def mutate(self, review: Review) -> None:
        claim: PersistentVolumeClaim = review.changed
        spec = claim.setdefault("spec", {})
        if review.subresource or "storageClassName" in spec or _OLD_STORAGE_CLASS in _annotations(claim):
            return
        if (default := newest_marked(self._classes.all(), _STORAGE)) is not None:
            spec["storageClassName"] = default["metadata"]["name"]


class DefaultIngressClass:
    interests = (("networking.k8s.io", "ingresses", CREATE), ("extensions", "ingresses", CREATE))

    def __init__(self, classes: WatchedObjects) -> None:
        self._classes = Kept(classes)

    def mutate(self, review: Review) -> None:
        ingress: Ingress = review.changed
        spec = ingress.setdefault("spec", {})
        if review.subresource or "ingressClassName" in spec or _OLD_INGRESS_CLASS in _annotations(ingress):
            return
        if (default := newest_marked(self._classes.all(), _INGRESS)) is not None:
            spec["ingressClassName"] = default["metadata"]["name"]


def newest_marked(classes: list[Object], marks: tuple[str, ...]) -> Object | None:
    """Return the default class; of several, the newest, then the first by name."""
    marked = [class_ for class_ in classes if any(_annotations(class_).get(mark) == "true" for mark in marks)]
    if not marked:
        return None
    youngest = max(obj["metadata"].get("creationTimestamp", "") for obj in marked)
    newest = [obj for obj in marked if obj["metadata"].get("creationTimestamp", "") == youngest]
    return min(newest, key=lambda obj: str(obj["metadata"]["name"]))


def _annotations(obj: AnyObject) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}
