"""Get and list of objects that are not stored but computed for each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.server.cache.representations import Representation
from pinnace.server.cache.watch_cache import CachedObject
from pinnace.server.read.selection import selection_of
from pinnace.server.request.call import Call

ComputeObjects = Callable[[], Awaitable[list[Object]]]
"""Returns all objects of a resource."""


async def read_computed(call: Call, representation: Representation, compute: ComputeObjects) -> bytes | list[bytes]:
    """Answer a get or list. Such objects and their lists have no resourceVersion, and lists have no pages."""
    chosen = selection_of(call)
    entries = {obj["metadata"]["name"]: CachedObject(orjson.dumps(obj), 0) for obj in await compute()}
    if call.verb == "get":
        if call.name not in entries:
            raise errors.NotFound(group=call.resource.group, plural=call.resource.singular, name=call.name)
        return representation.encode_object(entries[call.name])
    matches = chosen.matches
    found = [entry for name, entry in entries.items() if matches is None or matches(name, entry)]
    return representation.encode_list(found, metadata={})
