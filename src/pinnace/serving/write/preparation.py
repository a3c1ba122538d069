"""Sets the fields that only the server decides, and restores those that a client may not change through this URL."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.model.objects import Object, new_uid
from pinnace.model.resources import Resource
from pinnace.schema.equality import equal_json_types
from pinnace.serving.request.call import Call

_LEFT_ALONE = frozenset(("metadata", "kind", "apiVersion"))
_SETS_STATUS = frozenset(("binding",))


_OF_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
_ALL_METADATA = (("metadata",),)
LEFT_BY_STATUS: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("", "pods"): (("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
    ("apps", "deployments"): (("metadata", "labels"),),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): _ALL_METADATA,
    ("apiregistration.k8s.io", "apiservices"): _ALL_METADATA,
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): _ALL_METADATA,
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): _ALL_METADATA,
    ("internal.apiserver.k8s.io", "storageversions"): _ALL_METADATA,
    ("networking.k8s.io", "servicecidrs"): _ALL_METADATA,
    ("resource.k8s.io", "devicetaintrules"): _ALL_METADATA,
    ("resource.k8s.io", "resourceclaims"): _ALL_METADATA,
    ("resource.k8s.io", "resourcepoolstatusrequests"): _ALL_METADATA,
    ("scheduling.k8s.io", "podgroups"): _ALL_METADATA,
    ("storage.k8s.io", "volumeattachments"): _ALL_METADATA,
    ("storagemigration.k8s.io", "storageversionmigrations"): _ALL_METADATA,
}
"""Fields beside the spec that a write to /status does not change, for kinds that are strict about it."""
SIGNING_REQUESTS = ("certificates.k8s.io", "certificatesigningrequests")
LEFT_OF_SIGNING_REQUESTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "": (("spec",), ("status",)),
    "status": (("spec",), ("status", "conditions")),
    "approval": (("spec",), ("status", "certificate")),
}
"""Fields that each URL of a CertificateSigningRequest does not change. The spec is immutable, so it has no manager."""


def left_by_status(resource: Resource) -> tuple[tuple[str, ...], ...]:
    if resource.custom is not None:
        return _ALL_METADATA
    return LEFT_BY_STATUS.get((resource.group, resource.plural), ())


def keep_from(old: Object, new: Object, resource: Resource, *, subresource: str) -> None:
    """Restore the fields of `new` that an update through this URL cannot change. Parts of `old` are shared."""
    metadata, before = new["metadata"], old["metadata"]
    for name in ("creationTimestamp", "generation"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    for name in ("uid", "name", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if name in before:
            metadata.setdefault(name, before[name])
    metadata.pop("selfLink", None)
    if subresource:
        for name in _metadata_left_by(resource, subresource):
            _take(metadata, before, name)
    if subresource in _EDITABLE:
        _EDITABLE[subresource](new, old)
    elif resource.has_status and subresource not in _SETS_STATUS:
        _take(new, old, "status")


def _metadata_left_by(resource: Resource, subresource: str) -> tuple[str, ...]:
    if subresource in ("ephemeralcontainers", "resize"):
        return _OF_METADATA
    if subresource != "status":
        return ()
    left = left_by_status(resource)
    return _OF_METADATA if left is _ALL_METADATA else tuple(name for _, name in left)


def _take(new: Object, old: Object, name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _only(new: Object, old: Object, changed: str) -> None:
    """Restore every top-level field but `changed` and the metadata."""
    for name in [*new, *old]:
        if name not in _LEFT_ALONE and name != changed:
            _take(new, old, name)


def _status(new: Object, old: Object) -> None:
    _only(new, old, "status")


def _finalize(new: Object, old: Object) -> None:
    wanted = (new.get("spec") or {}).get("finalizers")
    _only(new, old, "")
    new["spec"] = {**(old.get("spec") or {}), "finalizers": wanted or []}
    if not wanted:
        del new["spec"]["finalizers"]


_EDITABLE: dict[str, Callable[[Object, Object], None]] = {"status": _status, "approval": _status, "finalize": _finalize}
OBJECT_SUBRESOURCES = frozenset((*_EDITABLE, "ephemeralcontainers", "resize"))
"""Subresources that show the whole object. `Strategy.prepare_subresource` limits what the last two may change."""


_WITHOUT_GENERATION = frozenset(("status", "binding"))


def prepare(call: Call, new: Object, old: Object | None, now: str) -> None:
    """Change `new` in place. `old` is None on create."""
    resource, strategy, subresource = call.resource, call.resource.strategy, call.subresource
    if old is None:
        _begin(resource, new, now)
    else:
        keep_from(old, new, resource, subresource=subresource)
    if resource.inert is not None and (drop := resource.inert.drop) is not None:
        drop(new, old)
    if not subresource:
        strategy.prepare(new, old)
    elif subresource == "status":
        strategy.prepare_status(new, old)
    elif old is not None and subresource in strategy.prepare_subresource:
        strategy.prepare_subresource[subresource](new, old)
    if (
        old is not None
        and strategy.tracks_generation
        and subresource not in _WITHOUT_GENERATION
        and _spec_changed(new, old, has_status=resource.has_status, is_open=resource.custom is not None)
    ):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _begin(resource: Resource, new: Object, now: str) -> None:
    """Give a new object its identity and its first status."""
    metadata, strategy = new["metadata"], resource.strategy
    metadata.pop("deletionTimestamp", None)
    metadata.pop("deletionGracePeriodSeconds", None)
    metadata.pop("selfLink", None)
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now
    if resource.has_status and not strategy.keeps_status_on_create:
        new.pop("status", None)
        if (status := resource.empty_status()) is not None:
            new["status"] = status
    if strategy.tracks_generation:
        metadata["generation"] = 1


def _spec_changed(new: Object, old: Object, *, has_status: bool, is_open: bool) -> bool:
    """Whether anything but metadata and status differs.

    `is_open`: the schema may leave the type of a value open, where Python would take true for 1.
    """
    names = (new.keys() | old.keys()) - {"metadata", "kind", "apiVersion"}
    if has_status:
        names.discard("status")
    if any(new.get(name) != old.get(name) for name in names):
        return True
    return is_open and not all(equal_json_types(new.get(name), old.get(name)) for name in names)
