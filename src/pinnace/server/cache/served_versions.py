"""Shows stored objects in the version that a client asked for, and keeps what took an effort to make.

Built-in kinds are converted at once. Objects of a custom kind may have to be filled in, and a webhook may have to
convert them: `prepare` does that beforehand, for all objects of an answer together, so that forms need not wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import lru_cache

import orjson

from pinnace.model import errors
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Custom, Resource
from pinnace.server.cache.watch_cache import CachedObject


@lru_cache(maxsize=4096)
def head_of(kind: Kind) -> bytes:
    """How every stored or served object of this version begins: {"kind":…,"apiVersion":…,"metadata":{"""
    return b'{"kind":%b,"apiVersion":%b,"metadata":{' % (orjson.dumps(kind.name), orjson.dumps(kind.api_version))


def needs_preparation(resource: Resource) -> bool:
    """Showing an object of this resource may take a while."""
    return resource.custom is not None and resource.custom.is_converted_elsewhere


def to_served_version(obj: Object, resource: Resource) -> Object:
    """A stored object of a built-in kind as the served version shows it. May change the object given."""
    if resource.kind != resource.stored:
        if resource.is_converted:
            obj = resource.from_stored(obj)
        obj["apiVersion"], obj["kind"] = resource.kind.api_version, resource.kind.name
    return obj


def decode_served(entry: CachedObject, resource: Resource) -> Object:
    """The object in the version of the resource, decoded, for the caller to change. Prepared, if that takes long."""
    if resource.custom is None:
        return to_served_version(entry.decode(), resource)
    obj: Object = orjson.loads(encode_served(entry, resource, resource.custom))
    return obj


def encode_served(entry: CachedObject, resource: Resource, custom: Custom) -> bytes:
    """The bytes of a custom object in the version of the resource. Prepared, if that takes long."""
    known = _known(entry, resource, custom)
    if known is not None:
        return known
    shown = custom.shown([entry.decode()])
    if not isinstance(shown, list):
        raise errors.InternalError(f"{resource.kind.name} is not converted yet")
    return _keep(entry, resource, shown[0])


def selectable_values(entry: CachedObject, resource: Resource) -> dict[str, str]:
    """The values of the fields that this resource can be selected by, as they are in its version. Prepared, if that
    takes long."""
    custom = resource.custom
    if custom is None or _known(entry, resource, custom) is entry.body:
        return entry.fields(resource.selectable)
    obj = decode_served(entry, resource)
    return {name: value(obj) for name, value in resource.selectable.items()}


def prepare(entries: Iterable[CachedObject], resource: Resource) -> Awaitable[None] | None:
    """Have these objects converted, all at once. None where there is nothing to wait for."""
    custom = resource.custom
    if custom is None:
        return None
    waiting = [entry for entry in entries if _known(entry, resource, custom) is None]
    if not waiting:
        return None
    shown = custom.shown([entry.decode() for entry in waiting])
    if isinstance(shown, list):
        _keep_all(waiting, resource, shown)
        return None
    return _prepare_later(waiting, resource, shown)


async def _prepare_later(entries: list[CachedObject], resource: Resource, shown: Awaitable[list[Object]]) -> None:
    _keep_all(entries, resource, await shown)


def _keep_all(entries: list[CachedObject], resource: Resource, shown: list[Object]) -> None:
    for entry, obj in zip(entries, shown, strict=True):
        _keep(entry, resource, obj)


def _known(entry: CachedObject, resource: Resource, custom: Custom) -> bytes | None:
    if entry.shown is not None:
        kept = entry.shown.get(resource.version)
        if kept is not None and kept[0] is resource:
            return kept[1]
    if entry.revision > custom.settled_since and entry.body.startswith(head_of(resource.kind)):
        return entry.body
    return None


def _keep(entry: CachedObject, resource: Resource, obj: Object) -> bytes:
    ordered = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": obj["metadata"], **obj}
    body = bytes(memoryview(orjson.dumps(ordered)))
    if body == entry.body:
        body = entry.body  # Most are as they were stored: hold them once.
    if entry.shown is None:
        entry.shown = {}
    entry.shown[resource.version] = (resource, body)
    return body
