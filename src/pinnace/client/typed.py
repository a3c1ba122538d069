"""Convert between plain objects and instances of classes: the SDK's, and lightkube's for built-in kinds.

Objects of the types in `pinnace.model.typed_objects` are plain dicts, and stay so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal, Protocol, TypeVar

from pinnace.client.mapping import kind_from
from pinnace.model.objects import Object
from pinnace.model.typed_objects import StoredObject

SERVERS_OWN = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")
"""The metadata fields that only the server writes, and that are never applied."""


class SdkObject(Protocol):
    """An instance of the SDK's CustomResource."""

    @classmethod
    def of(cls, obj: Object, /) -> Any: ...

    def to_wire(self) -> Object: ...


class LightkubeObject(Protocol):
    """An instance of one of lightkube.resources."""

    @classmethod
    def from_dict(cls, d: Any, /) -> Any: ...

    def to_dict(self) -> Any: ...


_FATES = {"skip": "skipped", "raw": "kept as a dict"}
_log = logging.getLogger(__name__)

Stored = TypeVar("Stored", bound=StoredObject)
Resource = TypeVar("Resource", bound=SdkObject | LightkubeObject | StoredObject)


def wire_of(obj: Any) -> Object:
    """Return an object in its wire form."""
    if isinstance(obj, dict):
        return obj
    if hasattr(obj, "to_wire"):
        wire: Object = obj.to_wire()
        return wire
    if not hasattr(obj, "to_dict"):
        raise TypeError(f"{obj!r} is no object: give a dict, an instance of a CustomResource, or one of lightkube's")
    kind = kind_from(type(obj))
    return {**obj.to_dict(), "apiVersion": kind.api_version, "kind": kind.name}


def applied_of(obj: Any) -> Object:
    """Return an object for apply: of an instance, which may have been read before, without status and server fields."""
    wire = wire_of(obj)
    if isinstance(obj, dict):
        return wire
    metadata = {name: value for name, value in (wire.get("metadata") or {}).items() if name not in SERVERS_OWN}
    return {**{name: value for name, value in wire.items() if name != "status"}, "metadata": metadata}


Unfit = Literal["skip", "raw", "raise"]
"""The treatment of an object that does not fit its class: leave it out, keep it as a dict, or raise."""


def typed_list(like: Any, objects: Iterable[Object], *, unfit: Unfit = "skip") -> list[Any]:
    """Return objects of the server as instances. One that does not fit does not prevent the others; it is logged."""
    instances = []
    for obj in objects:
        try:
            instances.append(typed(like, obj))
        except ValueError as error:  # The validation errors of pydantic and msgspec are ValueErrors.
            if unfit == "raise":
                raise
            metadata = obj.get("metadata") or {}
            where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}".lstrip("/")
            name = getattr(like, "__name__", like)
            _log.warning("%s does not fit the class %s and is %s: %s", where, name, _FATES[unfit], error)
            if unfit == "raw":
                instances.append(obj)
    return instances


def typed(like: Any, obj: Object) -> Any:
    """Return an object of the server as an instance of the class of `like`, or as a dict if `like` is a name."""
    form: Any = like if isinstance(like, type) else type(like)
    if hasattr(form, "to_wire"):
        return form.of(obj)
    return form.from_dict(obj) if hasattr(form, "from_dict") else obj
