"""The pure part of each verb: from the current object to the object that the client wants.

Create, replace, patch and apply differ only here. Objects are in the version of the request. The edit may change
`live`; the write may change the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pinnace.model import errors, field_errors
from pinnace.model.objects import Object, deep_copy
from pinnace.model.patches import apply, json_and_merge
from pinnace.model.patches.field_ownership import Ownership
from pinnace.model.patches.strategic import strategic_merge_patch
from pinnace.server.request.call import Call
from pinnace.server.write.revisions import match_revision, parse_revision

Edit = Callable[[Object | None], Object]
"""From the current object (None if there is none) to the wanted one. Raises an ApiError to refuse."""

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_YAML = "application/apply-patch+yaml"
APPLY_PATCHES = frozenset((APPLY_YAML, "application/apply-patch+cbor"))

Decode = Callable[[Object], Object]
"""Decode the result of an apply as an object of its kind."""
DecodePatched = Callable[[Object, Object], Object]
"""The same for the result of a patch. The second argument is the object before: parts that both share are decoded."""


def creation(obj: Object) -> Edit:
    """Return the edit of a create. The pipeline checks last whether the name is taken: other errors come first."""

    def edit(live: Object | None) -> Object:
        return obj

    return edit


def replacement(call: Call, read: Callable[[], Object]) -> Edit:
    """Return the edit of an update. `read` decodes the body again for each attempt, as a write changes the object."""
    strategy = call.resource.strategy

    def edit(live: Object | None) -> Object:
        obj = read()
        if live is None:
            if strategy.may_create_on_update and not call.subresource:
                parse_revision(obj["metadata"].get("resourceVersion", ""))
                if uid := obj["metadata"].get("uid"):
                    raise _no_object_of_uid(call, uid)
                return obj
            raise call.not_found()
        uid = obj["metadata"].get("uid")
        if uid and uid != live["metadata"]["uid"]:
            raise call.conflict(
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
            )
        match_revision(call, obj["metadata"], live["metadata"]["resourceVersion"])
        return obj

    return CopyingEdit(edit)


_KEYS = {"services": "services/specs", "endpoints": "services/endpoints"}
"""The keys of Kubernetes for resources whose key is not their plural."""


def _no_object_of_uid(call: Call, uid: str) -> Exception:
    """Return the error of an update that names a uid, but no object exists: Kubernetes quotes its storage."""
    plural = call.resource.plural
    key = "/".join(filter(None, ("/registry", _KEYS.get(plural, plural), call.namespace, call.name)))
    return call.conflict(
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
    )


def patch(call: Call, content_type: str, document: Any, decode: DecodePatched) -> Edit:
    """Return the edit of a JSON patch, merge patch or strategic merge patch."""

    def edit(live: Object | None) -> Object:
        if live is None:
            raise call.not_found()
        current = live["metadata"]["resourceVersion"]
        if content_type == STRATEGIC_PATCH:
            wanted = strategic_merge_patch(live, document, call.resource.schema)
        else:
            wanted = patched(live, content_type, document)
        wanted = decode(wanted, live)
        match_revision(call, wanted["metadata"], current)
        return wanted

    resource = call.resource
    is_copied = resource.kind == resource.stored and (
        (resource.group, resource.plural) in _COPIED_KINDS or resource.strategy.leaves_objects
    )
    return CopyingEdit(edit) if is_copied else edit


_COPIED_KINDS = frozenset(
    (
        ("", "events"),
        ("", "nodes"),
        ("", "pods"),
        ("apps", "replicasets"),
        ("batch", "jobs"),
        ("coordination.k8s.io", "leases"),
    )
)
"""Kinds that are patched often, and whose defaults and preparation change no part that is shared."""


def separate(wanted: Object, live: Object) -> Object:
    """Return the result of a patch with its own metadata, spec and status, whose parts may be shared with `live`.

    A spec that the patch changes shares nothing: defaults may then set fields deep inside it, such as the host ports of
    containers after a change of `hostNetwork`.
    """
    separated = dict(wanted)
    for name in ("metadata", "spec", "status"):
        part = separated.get(name)
        is_unchanged = part is live.get(name)
        if isinstance(part, dict) and is_unchanged:
            separated[name] = dict(part)
        elif isinstance(part, dict) and name == "spec":
            separated[name] = deep_copy(part)
    return separated


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


@dataclass(frozen=True, slots=True)
class CopyingEdit:
    """An edit that leaves the current object as it is: it copies every part that it changes, and shares the others.

    The current object need not be decoded a second time for it, and shared parts need not be compared.
    """

    edit: Edit

    def __call__(self, live: Object | None) -> Object:
        return self.edit(live)


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
        if live is None and call.subresource:
            raise call.not_found()
        current = live["metadata"]["resourceVersion"] if live is not None else ""
        metadata = apply.metadata_of(self.applied)
        uid = text if isinstance(text := metadata.get("uid"), str) else ""
        if uid and live is None:
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise call.conflict(why)
        if uid and live is not None and uid != live["metadata"]["uid"]:
            err = field_errors.invalid("metadata.uid", uid, "field is immutable")
            raise errors.Invalid([err], group=call.resource.group, kind=call.resource.kind.name, name=call.name)
        merged = apply.apply(live, self.applied, self.ownership, manager=self.manager, now=self.now, force=self.force)
        if call.resource.namespaced:
            merged["metadata"].setdefault("namespace", call.namespace)
        applied_revision = metadata.get("resourceVersion")
        if live is None:
            parse_revision(applied_revision or "")
        elif applied_revision is not None:
            merged["metadata"]["resourceVersion"] = applied_revision
            match_revision(call, merged["metadata"], current)
        return self.decode(merged)
