"""Sets the fields that only the server decides, and restores those that a client may not change through this URL."""

from __future__ import annotations

from pinnace.model.objects import Object, new_uid
from pinnace.model.resources import Resource
from pinnace.schema.equality import equal_json_types
from pinnace.server.request.call import Call
from pinnace.server.write.subresources import keep_from

_WITHOUT_GENERATION = frozenset(("status", "binding"))


def prepare(call: Call, new: Object, old: Object | None, now: str) -> None:
    """Change `new` in place. `old` is None on create."""
    resource, strategy, subresource = call.resource, call.resource.strategy, call.subresource
    if old is None:
        _begin(resource, new, now)
    else:
        keep_from(old, new, resource, subresource=subresource)
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
