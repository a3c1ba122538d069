"""Converts stored objects to the served version that a client asked for, and keeps the result.

Built-in kinds are converted at once. Objects of a custom kind may have to be defaulted, and a webhook may have to
convert them: `prepare` does that for all objects of an answer together, so that representations need not wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import lru_cache

import orjson

from pinnace.model import errors
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Custom, Resource
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.serving.cache.watch_cache import CachedObject


@lru_cache(maxsize=4096)
def head_of(kind: Kind) -> bytes:
    """Return the bytes that every object of this version begins with: {"kind":…,"apiVersion":…,"metadata":{"""
    return b'{"kind":%b,"apiVersion":%b,"metadata":{' % (orjson.dumps(kind.name), orjson.dumps(kind.api_version))


def needs_preparation(resource: Resource) -> bool:
    """Whether objects of this resource may have to be converted by a webhook."""
    return resource.custom is not None and resource.custom.is_converted_elsewhere


def to_served_version(obj: Object, resource: Resource) -> Object:
    """Convert a stored object of a built-in kind to the served version. May change the given object."""
    if resource.kind != resource.stored:
        if resource.is_converted:
            obj = resource.from_stored(obj)
        obj["apiVersion"], obj["kind"] = resource.kind.api_version, resource.kind.name
    return obj


def decode_served(entry: CachedObject, resource: Resource) -> Object:
    """Return the object in the served version, decoded; the caller may change it. Call `prepare` first if needed."""
    if resource.custom is None:
        return to_served_version(entry.decode(), resource)
    obj: Object = orjson.loads(encode_served(entry, resource, resource.custom))
    return obj


def encode_served(entry: CachedObject, resource: Resource, custom: Custom) -> bytes:
    """Return the bytes of a custom object in the served version. Call `prepare` first if needed."""
    known = _find_known(entry, resource, custom)
    if known is not None:
        return known
    served = custom.to_served([entry.decode()])
    if not isinstance(served, list):
        raise errors.InternalError(f"{resource.kind.name} is not converted yet")
    return _keep(entry, resource, served[0])


def selectable_values(entry: CachedObject, resource: Resource) -> dict[str, str]:
    """Return the values of the selectable fields in the served version. Call `prepare` first if needed."""
    custom = resource.custom
    if custom is None or _find_known(entry, resource, custom) is entry.body:
        return entry.fields(resource.selectable)
    obj = decode_served(entry, resource)
    return {name: value(obj) for name, value in resource.selectable.items()}


def prepare(entries: Iterable[CachedObject], resource: Resource) -> NowOrLater[None]:
    """Convert these objects, all at once; None if there is nothing to wait for."""
    custom = resource.custom
    if custom is None:
        return None
    waiting = [entry for entry in entries if _find_known(entry, resource, custom) is None]
    if not waiting:
        return None
    served = custom.to_served([entry.decode() for entry in waiting])
    if isinstance(served, list):
        _keep_all(waiting, resource, served)
        return None
    return _prepare_later(waiting, resource, served)


async def _prepare_later(entries: list[CachedObject], resource: Resource, served: Awaitable[list[Object]]) -> None:
    _keep_all(entries, resource, await served)


def _keep_all(entries: list[CachedObject], resource: Resource, served: list[Object]) -> None:
    for entry, obj in zip(entries, served, strict=True):
        _keep(entry, resource, obj)


def _find_known(entry: CachedObject, resource: Resource, custom: Custom) -> bytes | None:
    if entry.served is not None:
        kept = entry.served.get(resource.version)
        if kept is not None and kept[0] is resource:
            return kept[1]
    if entry.revision > custom.settled_since and entry.body.startswith(head_of(resource.kind)):
        return entry.body
    return None


def _keep(entry: CachedObject, resource: Resource, obj: Object) -> bytes:
    ordered = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": obj["metadata"], **obj}
    body = bytes(memoryview(orjson.dumps(ordered)))
    if body == entry.body:
        body = entry.body  # Most equal the stored bytes: keep those once.
    if entry.served is None:
        entry.served = {}
    entry.served[resource.version] = (resource, body)
    return body
