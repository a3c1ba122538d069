"""The basic types: an object, its kind and its key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

_DRAWN_AT_ONCE = 64

Object = dict[str, Any]
"""Plain JSON as a dict. Unknown fields are kept. For kinds that are unknown until run time; others have types."""

AnyObject = Mapping[str, Any]
"""An object that is only read, of any kind: an `Object`, or one of `pinnace.model.typed_objects`."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    TypedObject = TypeVar("TypedObject", bound=AnyObject, default=Object)
else:
    from typing import TypeVar

    TypedObject = TypeVar("TypedObject")
"""The type of the objects of a cache, an informer or a snapshot: `Object` if the kind is not known."""

SameType = TypeVar("SameType", bound=AnyObject)

NOTHING: Any = MappingProxyType({})
"""No fields, in place of a part that is missing: `(old or NOTHING).get("spec", NOTHING)` has the type of the part."""


class Kind(NamedTuple):
    """The type of an object: group and version (apiVersion) and kind."""

    group: str
    version: str
    name: str

    @classmethod
    def parse(cls, api_version: str, name: str) -> Kind:
        group, _, version = api_version.rpartition("/")
        return cls(group, version, name)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Key(NamedTuple):
    """The identity of an object within its kind. The namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: AnyObject) -> Key:
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def kind_of(obj: AnyObject) -> Kind:
    return Kind.parse(obj.get("apiVersion", ""), obj.get("kind", ""))


def deep_copy(obj: SameType) -> SameType:
    """Return a copy that shares no list and no mapping with the object."""
    return cast("SameType", {name: _copy(value) for name, value in obj.items()})


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return {name: _copy(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def without_zeros(obj: SameType) -> SameType:
    """Return an object with those of its fields that are not empty: Kubernetes writes no others in many places."""
    return cast("SameType", {name: value for name, value in obj.items() if value})


_random: list[str] = []


def new_uid() -> str:
    """Return a random UUID, four times as fast as the standard library."""
    if not _random:
        drawn = os.urandom(16 * _DRAWN_AT_ONCE).hex()
        _random.extend(drawn[at : at + 32] for at in range(0, len(drawn), 32))
    digits = _random.pop()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class ObjectEvent(NamedTuple):
    """One event of a watch."""

    type: str
    """ADDED, MODIFIED or DELETED."""
    key: str
    """namespace/name, or the name of an object without a namespace."""
    revision: int
    body: bytes
    """The encoded object, shared with the server's cache."""
