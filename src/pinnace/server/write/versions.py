"""Built-in and custom kinds in the write pipeline: read, edit and encode an object in the right version.

A built-in kind is edited in the stored version, after a conversion if the request uses another one. A custom kind is
edited in the version of the request, and converted when it is encoded. No other step of a write knows the difference.
"""

from __future__ import annotations

import orjson

from pinnace.model.errors import BadRequest
from pinnace.model.objects import Object
from pinnace.model.patches import managed_fields
from pinnace.model.resources import Resource
from pinnace.server.cache.served_versions import decode_served, needs_preparation, prepare, to_served_version
from pinnace.server.cache.watch_cache import CachedObject, stamp
from pinnace.server.long_work import LONG_BYTES, run_beside
from pinnace.server.request.call import Call
from pinnace.server.write.edits import CopyingEdit, Edit, Owning
from pinnace.server.write.field_ownership import Ownerships, ToConvert
from pinnace.server.write.names import manager_of

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
                    return await run_beside(self.edit_now, call, edit, entry, old, now)
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
        if resource.kind == resource.stored or resource.custom is not None:
            if resource.custom is None:  # Custom objects got their defaults when the body was decoded.
                resource.strategy.default(new)
            if not isinstance(edit, Owning):
                self._own(call, new, old, now)
            return new
        if resource.is_converted:
            new = resource.to_stored(new)
            new.setdefault("apiVersion", resource.kind.api_version)
        resource.strategy.default(new)
        if not isinstance(edit, Owning):
            # Managed fields name the fields of the version of the request; defaults belong to the writer.
            served = to_served_version(orjson.loads(orjson.dumps(new)), resource)
            self._own(call, served, to_served_version(entry.decode(), resource) if entry is not None else None, now)
            new["metadata"].pop("managedFields", None)
            if "managedFields" in served["metadata"]:
                new["metadata"]["managedFields"] = served["metadata"]["managedFields"]
        return new

    def _own(self, call: Call, new: Object, live: Object | None, now: str) -> None:
        managed_fields.after_update(live, new, self._ownerships.of(call), manager=manager_of(call), now=now)


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
        # The result of orjson keeps its whole buffer, ten times its size: keep a copy that fits.
        return bytes(memoryview(orjson.dumps(ordered)))
    except orjson.JSONEncodeError:  # A patch can nest an object deeper than a body may be.
        raise BadRequest("exceeded max depth: the object would nest too deep; keep its parts flat") from None
