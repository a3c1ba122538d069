"""Owner references, by which an object is deleted with its owner."""

from __future__ import annotations

from pinnace.model.objects import AnyObject, Kind, kind_of
from pinnace.model.typed_objects import OwnerReference


def owner_reference(owner: AnyObject, *, controller: bool = True, block_deletion: bool = True) -> OwnerReference:
    """Return an owner reference to `owner`."""
    metadata = owner["metadata"]
    kind = kind_of(owner)
    reference: OwnerReference = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    if controller:
        reference["controller"] = True
    if block_deletion:
        reference["blockOwnerDeletion"] = True
    return reference


def set_owner(obj: AnyObject, owner: AnyObject) -> None:
    """Make `owner` the controller of `obj`. Raise ValueError if it has another or their namespaces differ."""
    owner_namespace = owner["metadata"].get("namespace", "")
    if owner_namespace and obj["metadata"].get("namespace", "") != owner_namespace:
        raise ValueError(
            f"{obj['kind']} {obj['metadata'].get('name')} cannot belong to {owner['kind']} "
            f"{owner_namespace}/{owner['metadata']['name']}: owners must be in the same namespace, or in none"
        )
    references = obj["metadata"].setdefault("ownerReferences", [])
    wanted = owner_reference(owner)
    present = controller_of(obj)
    if present is not None and present.get("uid") != wanted["uid"]:
        raise ValueError(
            f"{obj['kind']} {obj['metadata'].get('name')} is controlled by {present['kind']} {present['name']} already"
        )
    references[:] = [known for known in references if known.get("uid") != wanted["uid"]] + [wanted]


def controller_of(obj: AnyObject) -> OwnerReference | None:
    """Return the owner reference of an object's controller, or None."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((known for known in references if known.get("controller")), None)


def is_of_kind(reference: OwnerReference, kind: Kind) -> bool:
    """Return whether a reference is to this kind, in any version."""
    named = Kind.parse(reference.get("apiVersion", ""), reference.get("kind", ""))
    return (named.group, named.name) == (kind.group, kind.name)
