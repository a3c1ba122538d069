"""Encoded objects of which only the identity is read; the rest is decoded when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast

import msgspec
import orjson

from pinnace.model.objects import Key, Kind, ObjectEvent, SameType, TypedObject
from pinnace.model.typed_objects import ObjectMeta

Derived = TypeVar("Derived")


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    resourceVersion: str = ""
    annotations: dict[str, str] | None = None


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata
    kind: str = ""


class _WithMetadata(msgspec.Struct, gc=False):
    metadata: Any


class ListMetadata(msgspec.Struct, gc=False, rename={"token": "continue"}):
    resourceVersion: str = ""
    token: str = ""
    remainingItemCount: int = 0


class EncodedList(msgspec.Struct, gc=False):
    """A list whose items stay encoded."""

    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


class EncodedEvent(msgspec.Struct, gc=False):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


_head_decoder = msgspec.json.Decoder(_Head)
_metadata_decoder = msgspec.json.Decoder(_WithMetadata)
DecodeError = msgspec.DecodeError
decode_list = msgspec.json.Decoder(EncodedList).decode
decode_event = msgspec.json.Decoder(EncodedEvent).decode


class Snapshot(Generic[TypedObject]):
    """One object at one version, as the server sent it. Each use of `object` decodes a new copy."""

    __slots__ = ("_derived", "body", "key", "version")

    def __init__(self, body: bytes, key: Key, version: str) -> None:
        self.body = body
        self.key = key
        self.version = version
        self._derived: tuple[object, ...] = ()

    @property
    def object(self) -> TypedObject:
        decoded: TypedObject = orjson.loads(self.body)
        return decoded

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata alone, which is cheaper to decode than the whole."""
        metadata: ObjectMeta = _metadata_decoder.decode(self.body).metadata
        return metadata

    @property
    def annotations(self) -> dict[str, str]:
        return _head_decoder.decode(self.body).metadata.annotations or {}

    def derive(self, function: Callable[[Self], Derived]) -> Derived:
        """Return what a pure function computes from this snapshot: computed once, and kept as long as the snapshot.

        For the few facts that a controller reads again and again of thousands of objects. The result is shared: it
        must not be changed.
        """
        known = self._derived
        for at in range(0, len(known), 2):
            if known[at] is function:
                return cast("Derived", known[at + 1])
        derived = function(self)
        self._derived = (*known, function, derived)
        return derived

    def __repr__(self) -> str:
        return f"Snapshot({self.key} at {self.version}, {len(self.body)} bytes)"


def snapshot_of(obj: SameType) -> Snapshot[SameType]:
    metadata = obj["metadata"]
    key = Key(metadata.get("namespace", ""), metadata.get("name", ""))
    return Snapshot(b"" + orjson.dumps(obj), key, metadata.get("resourceVersion", ""))


def shared_snapshot(event: ObjectEvent, namespaces: dict[str, str]) -> Snapshot:
    """Return the snapshot of an event of a server in this process. Both share the bytes."""
    namespace, _, name = event.key.rpartition("/")
    return Snapshot(event.body, Key(namespaces.setdefault(namespace, namespace), name), str(event.revision))


def read_snapshot(raw: msgspec.Raw, kind: Kind, namespaces: dict[str, str]) -> Snapshot:
    """Return the snapshot of a list item or a watch event. Items of lists have no kind: it is added.

    `namespaces` keeps one string per namespace, however many objects are in it.
    """
    head = _head_decoder.decode(raw)
    body = bytes(raw)  # A copy: a Raw would keep the whole answer alive.
    if not head.kind:
        names = b'{"apiVersion":"%b","kind":"%b"' % (kind.api_version.encode(), kind.name.encode())
        rest = body.lstrip()[1:]
        body = names + (b"," if rest.lstrip()[:1] != b"}" else b"") + rest
    metadata = head.metadata
    namespace = namespaces.setdefault(metadata.namespace, metadata.namespace)
    return Snapshot(body, Key(namespace, metadata.name), metadata.resourceVersion)
