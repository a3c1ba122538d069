"""Kinds that are classes: those of the SDK, and those that lightkube has for the built-in kinds. Elsewhere objects are
plain dicts."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from pinnace.client.mapping import kind_from
from pinnace.model.objects import Object

SERVERS_OWN = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")
"""What of the metadata is the server's to write: nobody applies it."""


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


Resource = TypeVar("Resource", bound=SdkObject | LightkubeObject)


def wire_of(obj: Any) -> Object:
    """An object as the server takes it."""
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
    """An object as it is applied: of an instance, which may have been read before, all that is its author's to say."""
    wire = wire_of(obj)
    if isinstance(obj, dict):
        return wire
    metadata = {name: value for name, value in (wire.get("metadata") or {}).items() if name not in SERVERS_OWN}
    return {**{name: value for name, value in wire.items() if name != "status"}, "metadata": metadata}


def typed(like: Any, obj: Object) -> Any:
    """What the server has answered, in the form of what was asked with: a class, an instance, or a name for dicts."""
    form: Any = like if isinstance(like, type) else type(like)
    if hasattr(form, "to_wire"):
        return form.of(obj)
    return form.from_dict(obj) if hasattr(form, "from_dict") else obj
