"""The pure part of each verb: from the current object to the object that the client wants.

Create, replace, patch and apply differ only here. Objects are in the version of the request. The edit may change
`live`; the write may change the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pinnace.model import errors, field_errors
from pinnace.model.objects import Object
from pinnace.model.patches import apply, json_and_merge
from pinnace.model.patches.field_ownership import Ownership
from pinnace.model.patches.strategic import strategic_merge_patch
from pinnace.server.request.call import Call

Edit = Callable[[Object | None], Object]
"""From the current object (None if there is none) to the wanted one. Raises an ApiError to refuse."""

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_YAML = "application/apply-patch+yaml"
APPLY_PATCHES = frozenset((APPLY_YAML, "application/apply-patch+cbor"))

Decode = Callable[[Object], Object]
"""Decode the result of a patch as an object of its kind."""


def creation(obj: Object) -> Edit:
    """Return the edit of a create. The pipeline checks last whether the name is taken: other errors come first."""

    def edit(live: Object | None) -> Object:
        if obj["metadata"].get("resourceVersion"):
            raise errors.BadRequest("resourceVersion should not be set on objects to be created")
        return obj

    return edit


def replacement(call: Call, read: Callable[[], Object]) -> Edit:
    """Return the edit of an update. `read` decodes the body again for each attempt, as a write changes the object."""
    strategy = call.resource.strategy

    def edit(live: Object | None) -> Object:
        obj = read()
        if live is None:
            if strategy.may_create_on_update and not call.subresource:
                return obj
            raise call.not_found()
        uid = obj["metadata"].get("uid")
        if uid and uid != live["metadata"]["uid"]:
            raise call.conflict(
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
            )
        _check_revision(call, obj["metadata"], live)
        return obj

    return edit


def _check_revision(call: Call, metadata: Object, live: Object) -> None:
    """Raise Conflict if the client read another revision. Without a revision the kind decides whether to overwrite."""
    seen, current = metadata.get("resourceVersion", ""), live["metadata"]["resourceVersion"]
    if seen == current:
        return
    if seen not in ("", "0"):
        raise call.conflict(errors.MODIFIED)
    if not call.resource.strategy.may_update_unconditionally:
        err = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.Invalid([err], group=call.resource.group, kind=call.resource.plural, name=call.name)
    metadata["resourceVersion"] = current


def patch(call: Call, content_type: str, document: Any, decode: Decode) -> Edit:
    """Return the edit of a JSON patch, merge patch or strategic merge patch."""

    def edit(live: Object | None) -> Object:
        if live is None:
            raise call.not_found()
        if content_type == STRATEGIC_PATCH:
            wanted = strategic_merge_patch(live, document, call.resource.schema)
        else:
            wanted = patched(live, content_type, document)
        wanted = decode(wanted)
        _check_revision(call, wanted["metadata"], live)
        return wanted

    return edit


def patched(obj: Object, content_type: str, document: Any) -> Object:
    """Return the object after a JSON patch or, for every other content type, a merge patch."""
    wanted = (
        json_and_merge.json_patch(obj, document)
        if content_type == JSON_PATCH
        else json_and_merge.merge_patch(obj, document)
    )
    if not isinstance(wanted, dict):
        raise errors.BadRequest("a patch must leave an object, and this one leaves something else")
    return wanted


class Owning:
    """An edit that sets managedFields itself. For all others the pipeline sets them."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Application(Owning):
    """A server-side apply: `applied` is the full configuration of `manager`."""

    call: Call
    applied: Object
    manager: str
    force: bool
    now: str
    ownership: Ownership
    decode: Decode

    def __call__(self, live: Object | None) -> Object:
        call = self.call
        wanted = self.applied["metadata"].get("resourceVersion", "")
        if live is None and call.subresource:
            raise call.not_found()
        if wanted and (live is None or wanted != live["metadata"]["resourceVersion"]):
            raise call.conflict(errors.MODIFIED)
        uid = self.applied["metadata"].get("uid")
        if uid and live is None:
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise call.conflict(why)
        if uid and live is not None and uid != live["metadata"]["uid"]:
            err = field_errors.invalid("metadata.uid", uid, "field is immutable")
            raise errors.Invalid([err], group=call.resource.group, kind=call.resource.kind.name, name=call.name)
        merged = apply.apply(live, self.applied, self.ownership, manager=self.manager, now=self.now, force=self.force)
        if call.resource.namespaced:
            merged["metadata"].setdefault("namespace", call.namespace)
        return self.decode(merged)
