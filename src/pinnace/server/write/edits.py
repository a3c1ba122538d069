"""The pure part of each verb: from the object as it is to the object as the client wants it.

Create, replace, patch and apply differ only here. Objects are in the version of the request, `live` is fresh for the
edit to use, and what is returned belongs to the write.
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
"""Given what is there (None: nothing), what is wanted. Raises an ApiError to refuse."""

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_YAML = "application/apply-patch+yaml"
APPLY_PATCHES = frozenset((APPLY_YAML, "application/apply-patch+cbor"))

Decode = Callable[[Object], Object]
"""Read what a patch leaves as an object of its kind."""


def creation(obj: Object) -> Edit:
    """What is there already is not looked at: the pipeline asks last, since an object with errors is told those."""

    def edit(live: Object | None) -> Object:
        if obj["metadata"].get("resourceVersion"):
            raise errors.BadRequest("resourceVersion should not be set on objects to be created")
        return obj

    return edit


def replacement(call: Call, read: Callable[[], Object]) -> Edit:
    """`read` gives the client's object afresh for each attempt, since a write changes what it is given."""
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
    """Who says what he has seen is held to it; who does not takes what is there, where his kind may."""
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
    """A JSON patch, merge patch or strategic merge patch."""

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
    """The object after a JSON patch or, for all other forms, a merge patch."""
    wanted = (
        json_and_merge.json_patch(obj, document)
        if content_type == JSON_PATCH
        else json_and_merge.merge_patch(obj, document)
    )
    if not isinstance(wanted, dict):
        raise errors.BadRequest("a patch must leave an object, and this one leaves something else")
    return wanted


class Owning:
    """An edit that says itself who owns what of its result. Of what all others write, the pipeline says so."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Application(Owning):
    """A server-side apply: `applied` is the client's whole opinion, and `manager` is held to it."""

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
