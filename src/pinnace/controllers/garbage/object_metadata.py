"""The metadata of objects as the garbage collector reads it: the identity, the deletion and the owner references.

An object may have 20,000 owner references. More than a few stay bytes, and become owners a part at a time: so many
small objects at once would keep the memory of the process large after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

LARGE_BODY = 8192
"""A smaller object has at most some 150 owner references: each has four names."""
OWNERS_AT_ONCE = 150


class CollectorReference(msgspec.Struct, gc=False):
    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    blockOwnerDeletion: bool | None = None


class ManyReferences:
    """The owner references of one object that has many."""

    __slots__ = ("_encoded", "_next", "digest")

    def __init__(self, encoded: list[msgspec.Raw], digest: bytes) -> None:
        self._encoded = encoded
        self._next = 0
        self.digest = digest
        """Equal for equal references."""

    def __iter__(self) -> Iterator[CollectorReference]:
        return map(_decode_reference, self._encoded)

    @property
    def is_complete(self) -> bool:
        """Whether all parts were finished."""
        return self._next >= len(self._encoded)

    def part(self) -> list[CollectorReference]:
        """Return the references after those that are finished, at most `OWNERS_AT_ONCE`."""
        return list(map(_decode_reference, self._encoded[self._next : self._next + OWNERS_AT_ONCE]))

    def finish_part(self) -> None:
        self._next += OWNERS_AT_ONCE


class CollectorMetadata(msgspec.Struct, gc=False):
    uid: str = ""
    resourceVersion: str = ""
    deletionTimestamp: str | None = None
    finalizers: list[str] | None = None
    ownerReferences: list[CollectorReference] | None = None


class _LargeMetadata(msgspec.Struct, gc=False):
    uid: str = ""
    resourceVersion: str = ""
    deletionTimestamp: str | None = None
    finalizers: list[str] | None = None
    ownerReferences: msgspec.Raw = msgspec.Raw(b"null")


class _Head(msgspec.Struct, gc=False):
    metadata: CollectorMetadata


class _LargeHead(msgspec.Struct, gc=False):
    metadata: _LargeMetadata


class _Identity(msgspec.Struct, gc=False):
    uid: str = ""


class _IdentityHead(msgspec.Struct, gc=False):
    metadata: _Identity


_decode = msgspec.json.Decoder(_Head).decode
_decode_large = msgspec.json.Decoder(_LargeHead).decode
_decode_identity = msgspec.json.Decoder(_IdentityHead).decode
_decode_reference = msgspec.json.Decoder(CollectorReference).decode
_split_references = msgspec.json.Decoder(list[msgspec.Raw] | None).decode


def read_uid(body: bytes) -> str:
    return _decode_identity(body).metadata.uid


def read_metadata(body: bytes) -> tuple[CollectorMetadata, ManyReferences | None]:
    """Return the metadata of an object. If it has many owner references, they are apart."""
    if len(body) < LARGE_BODY:
        return _decode(body).metadata, None
    large = _decode_large(body).metadata
    metadata = CollectorMetadata(large.uid, large.resourceVersion, large.deletionTimestamp, large.finalizers)
    encoded = _split_references(large.ownerReferences) or []
    if len(encoded) > OWNERS_AT_ONCE:
        return metadata, ManyReferences(encoded, blake2b(large.ownerReferences, digest_size=16).digest())
    metadata.ownerReferences = list(map(_decode_reference, encoded))
    return metadata, None
