"""The pure part of each verb: from the current object to the object that the client wants.

Create, replace, patch and apply differ only here. Objects are in the version of the request. The edit may change
`live`; the write may change the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from pinnace.kinds.golang import empty_fields
from pinnace.model import errors, field_errors
from pinnace.model.errors import BadRequest, TooLarge
from pinnace.model.objects import Kind, Object, deep_copy
from pinnace.model.patches import apply, json_and_merge, managed_fields
from pinnace.model.patches.json_and_merge import TOO_DEEP
from pinnace.model.patches.managed_fields import Ownership, Tracked, ignoring, track_everything
from pinnace.model.patches.strategic import strategic_merge_patch
from pinnace.model.resources import Registry, Resource
from pinnace.schema.shape import Schema
from pinnace.serving.cache.served_versions import decode_served, needs_preparation, prepare, to_served_version
from pinnace.serving.cache.watch_cache import CachedObject, stamp
from pinnace.serving.long_work import run_beside
from pinnace.serving.request.body import LONG_BYTES
from pinnace.serving.request.call import Call, parse_revision
from pinnace.serving.write.preparation import LEFT_OF_SIGNING_REQUESTS, SIGNING_REQUESTS, left_by_status


class UnexplainedError(errors.ApiError):
    """An error of Kubernetes' storage layer, which has no reason."""

    code, reason = 500, ""


def match_revision(call: Call, metadata: Object, current: str) -> None:
    """Raise unless an object with this `metadata` may replace the one at the revision `current`.

    Raise Conflict if the client read another revision. Without a revision the kind decides whether to overwrite.
    """
    seen = metadata.get("resourceVersion", "")
    if seen != current:
        _match_other_revision(call, metadata, seen, current)


def _match_other_revision(call: Call, metadata: Object, seen: str, current: str) -> None:
    if parse_given_revision(seen):
        raise call.conflict(errors.MODIFIED)
    if not call.resource.strategy.may_update_unconditionally:
        err = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.Invalid([err], group=call.resource.group, kind=call.resource.plural, name=call.name)
    metadata["resourceVersion"] = current


def refuse_revision(metadata: Object) -> None:
    """Raise if an object that is created has a revision. A text that is not a number counts as none."""
    try:
        is_set = parse_given_revision(metadata.get("resourceVersion", "")) != 0
    except UnexplainedError:
        return
    if is_set:
        raise UnexplainedError("resourceVersion should not be set on objects to be created")


def parse_given_revision(text: str) -> int:
    """Return the number, 0 for an empty text. Raise UnexplainedError if it is no number."""
    try:
        return parse_revision(text) if text else 0
    except ValueError as why:
        raise UnexplainedError(str(why)) from None


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
                parse_given_revision(obj["metadata"].get("resourceVersion", ""))
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
        if live is None and (call.subresource or "create" not in call.resource.verbs):
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
            parse_given_revision(applied_revision or "")
        elif applied_revision is not None:
            merged["metadata"]["resourceVersion"] = applied_revision
            match_revision(call, merged["metadata"], current)
        return self.decode(merged)


class Ownerships:
    """The rules for each resource and subresource, built when first needed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[tuple[int, str], tuple[Resource, Ownership]] = {}

    def of(self, call: Call) -> Ownership:
        """Return the rules for a call. If a webhook converts the resource between versions, using the rules may raise
        ToConvert."""
        place = (id(call.resource), call.subresource)
        known = self._known.get(place)
        if known is None or known[0] is not call.resource:
            self._registry.drop_stale(self._known)
            known = self._known[place] = (call.resource, self._make(call.resource, call.subresource))
        resource, ownership = known
        if resource.custom is not None and resource.custom.is_converted_elsewhere:
            return replace(ownership, convert=partial(_find_converted, call))
        return ownership

    def _make(self, resource: Resource, subresource: str) -> Ownership:
        def sibling(api_version: str) -> Resource | None:
            return self._registry.of_kind(Kind.parse(api_version, resource.kind.name))

        def schema_for(api_version: str) -> Schema | None:
            other = sibling(api_version)
            return other.schema if other is not None else None

        def convert(obj: Object, api_version: str) -> Object:
            source, target = sibling(obj.get("apiVersion", resource.kind.api_version)), sibling(api_version)
            if source is None or target is None:
                return obj
            return to_served_version(source.to_stored(deep_copy(obj)), target)

        return Ownership(
            schema=resource.schema,
            api_version=resource.kind.api_version,
            subresource=subresource,
            tracked=_track(resource, subresource),
            schema_for=schema_for,
            knows=resource.custom.has_version if resource.custom is not None else None,
            convert=convert,
            blank=empty_fields.empty(resource.schema) or None,
        )


class ToConvert(Exception):
    """Field managers cannot be computed before a webhook has converted an object: call `convert`, then try again."""

    def __init__(self, call: Call, place: tuple[str, bytes]) -> None:
        super().__init__(f"{call.resource.kind.name} is not converted to {place[0]} yet")
        self._call, self._place = call, place

    async def convert(self, *, is_needed: bool) -> None:
        """Raise ApiError if the webhook fails and is needed. If it is not, the managers of that version are dropped."""
        custom = self._call.resource.custom
        assert custom is not None, "only custom kinds are converted elsewhere"
        seen = self._call.seen_in = self._call.seen_in or {}
        api_version, body = self._place
        try:
            converted = custom.convert_to(orjson.loads(body), api_version)
            seen[self._place] = converted if isinstance(converted, dict) else await converted
        except errors.ApiError:
            if is_needed:
                raise
            seen[self._place] = None


def _find_converted(call: Call, obj: Object, api_version: str) -> Object:
    """Return the result of a webhook. Raise ToConvert if it was not called yet, ValueError if it failed."""
    if "kind" not in obj or "metadata" not in obj:
        return obj  # The empty object before a create.
    place = (api_version, orjson.dumps(obj, option=orjson.OPT_SORT_KEYS))
    seen = call.seen_in or {}
    if place not in seen:
        raise ToConvert(call, place)
    converted = seen[place]
    if converted is None:
        raise ValueError("its webhook could not convert it")
    return converted


def _track(resource: Resource, subresource: str) -> Tracked:
    if (resource.group, resource.plural) == SIGNING_REQUESTS:
        return ignoring(*LEFT_OF_SIGNING_REQUESTS[subresource])
    if subresource == "status":
        return ignoring(("spec",), *left_by_status(resource))
    if (subresource and subresource != "finalize") or not resource.has_status:
        return track_everything
    return ignoring(("status",))


_COMPILED_GROUPS = frozenset(("apiextensions.k8s.io", "admissionregistration.k8s.io"))
"""Their objects have expressions and patterns, which are compiled to be checked."""
_LONG_SOURCE = 8 << 10
_FIRST: Object = {"kind": "", "apiVersion": "", "metadata": {}}
"""The first fields of a stored object, in their order."""


def is_long_write(call: Call, entry: CachedObject | None) -> bool:
    """Whether the steps of a write take long: a small patch of a large object checks all of it."""
    size = len(call.request.body) if entry is None else len(call.request.body) + len(entry.body)
    return size > _LONG_SOURCE and (size > LONG_BYTES or call.resource.group in _COMPILED_GROUPS)


async def decode_current(entry: CachedObject, resource: Resource) -> Object:
    """Return the object as it is now: in the stored version, or, of custom kinds, in the version of the request."""
    if resource.custom is None:
        return entry.decode()
    converting = prepare([entry], resource)
    if converting is not None:
        await converting
    return decode_served(entry, resource)


class Versions:
    """Runs edits and encodes their results."""

    def __init__(self, ownerships: Ownerships) -> None:
        self._ownerships = ownerships

    async def edit(
        self, call: Call, edit: Edit, entry: CachedObject | None, old: Object | None, now: str, *, is_long: bool
    ) -> Object:
        """Return the edit's result as it would be stored, with defaults and managed fields."""
        if not is_long and not needs_preparation(call.resource):
            return self.edit_now(call, edit, entry, old, now)
        while True:  # Which fields have which manager may need a webhook's conversion to another version.
            try:
                if is_long:
                    return await run_beside(call.user.name, self.edit_now, call, edit, entry, old, now)
                return self.edit_now(call, edit, entry, old, now)
            except ToConvert as missing:
                await missing.convert(is_needed=isinstance(edit, Owning))

    def edit_now(self, call: Call, edit: Edit, entry: CachedObject | None, old: Object | None, now: str) -> Object:
        """Return the result of `edit` for a kind that no webhook converts."""
        resource = call.resource
        live = old
        if entry is not None and resource.custom is not None:
            live = orjson.loads(orjson.dumps(old))
        elif entry is not None and (
            resource.is_converted or ((call.verb == "patch" or call.subresource) and not isinstance(edit, CopyingEdit))
        ):
            # Shared with the result, so not to be shared with `old`.
            live = to_served_version(entry.decode(), resource)
        new = edit(live)
        if resource.kind != resource.stored and resource.custom is None:
            return self._convert(call, new, entry, None if isinstance(edit, Owning) else now)
        if resource.custom is None:  # Custom objects got their defaults when the body was decoded.
            resource.strategy.default(new)
        if not isinstance(edit, Owning):
            self._own(call, new, old, now)
        return new

    def _convert(self, call: Call, new: Object, entry: CachedObject | None, now: str | None) -> Object:
        """Return an edited object in the stored version. `now` is None if the edit has set the managed fields."""
        resource = call.resource
        if resource.is_converted:
            new = resource.to_stored(new)
            new.setdefault("apiVersion", resource.kind.api_version)
        resource.strategy.default(new)
        if now is not None:
            # Managed fields name the fields of the version of the request; defaults belong to the writer.
            served = to_served_version(orjson.loads(orjson.dumps(new)), resource)
            self._own(call, served, to_served_version(entry.decode(), resource) if entry is not None else None, now)
            new["metadata"].pop("managedFields", None)
            if "managedFields" in served["metadata"]:
                new["metadata"]["managedFields"] = served["metadata"]["managedFields"]
        return new

    def _own(self, call: Call, new: Object, live: Object | None, now: str) -> None:
        managed_fields.after_update(live, new, self._ownerships.of(call), manager=call.manager, now=now)


MOST_STORED = 8 * 1024 * 1024
"""The most bytes of a stored object. A body has at most 3 MiB, but defaults, field ownership, escaped characters
and the answers of webhooks add to it; a value that the medium does not take would fail the writes beside it."""


async def encode_for_store(call: Call, new: Object) -> bytes:
    """Return the bytes to store, converted to the storage version where the kind is custom."""
    custom = call.resource.custom
    # A deletion goes on where a conversion fails: the marked object stays in the version that it is stored in.
    is_other = new.get("apiVersion") != call.resource.stored.api_version
    if custom is not None and is_other and call.verb not in ("delete", "deletecollection"):
        kept = custom.to_stored(new)
        new = kept if isinstance(kept, dict) else await kept
    return encode(new, call.resource)


async def is_stored_as(call: Call, entry: CachedObject, new: Object) -> bool:
    """Whether storing `new` would change no byte. Custom objects stored in an old version are written again."""
    if call.resource.custom is None:
        return True
    return stamp(await encode_for_store(call, new), entry.revision) == entry.body


def encode(obj: Object, resource: Resource) -> bytes:
    """Return the stored form: kind, apiVersion and metadata first; `cache/watch_cache.py` stamps the revision in."""
    ordered = _FIRST | obj
    ordered["kind"] = resource.stored.name
    if resource.custom is None:
        ordered["apiVersion"] = resource.stored.api_version
    if "resourceVersion" in obj["metadata"]:
        metadata = ordered["metadata"] = dict(obj["metadata"])
        del metadata["resourceVersion"]
    try:
        encoded = orjson.dumps(ordered)
        if len(encoded) > MOST_STORED:
            raise TooLarge(f"limit is {MOST_STORED} bytes for an object as it is stored")
        # The result of orjson keeps its whole buffer, ten times its size: keep a copy that fits.
        return bytes(memoryview(encoded))
    except orjson.JSONEncodeError:  # A patch can nest an object deeper than a body may be.
        raise BadRequest(TOO_DEEP) from None


def dry_run_entry(value: bytes, entry: CachedObject | None, metadata: Object) -> CachedObject:
    """Return the object that would have been written; a new object has only the revision that the client sent."""
    if entry is not None:
        return CachedObject(stamp(value, entry.revision), entry.revision)
    if not metadata.get("resourceVersion"):
        return CachedObject(value, 0)
    obj = orjson.loads(value)
    obj["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    return CachedObject(orjson.dumps(obj), 0)
