"""Protobuf as a representation: what another representation encodes as JSON, encoded as Go would write it.

The messages of whole objects are kept beside their JSON, so that only the first client that reads an object as
protobuf pays for it. They go with the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from pinnace.kinds.golang.field_numbers import encode_answer, message_of_answer, writer
from pinnace.model import errors
from pinnace.model.objects import Kind, Object
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.schema.golang.protobuf_encoding import END, NoProtobuf, delimit, envelope_head, watch_event, wrap
from pinnace.serving.cache.watch_cache import CachedObject
from pinnace.serving.long_work import run_beside

_AT_ONCE = 100
_BYTES_AT_ONCE = 256 << 10
_LARGE = 128 << 10
_META = b"\n"
_ITEM = b"\x12"
"""The tags of the metadata and of each item of a list."""


class JsonRepresentation(NamedTuple):
    """The functions of a representation that encodes objects as JSON."""

    name: object
    encode_object: Callable[[CachedObject], bytes]
    encode_bookmark: Callable[[Object], bytes]


class ProtobufRepresentation:
    """Objects as protobuf. `kind` is theirs in the answer, `json` encodes them."""

    needs_preparation = True
    group_items = most_at_once = _AT_ONCE
    most_bytes = _BYTES_AT_ONCE
    order = None
    list_end = END

    def __init__(self, kind: Kind, list_kind: str, json: JsonRepresentation, *, is_kept: bool) -> None:
        message = message_of_answer(kind)
        assert message is not None, "negotiation offers protobuf only for kinds that have a message"
        self.name: object = ("protobuf", json.name)
        self.is_kept = self.has_shard_info = is_kept
        self._json = json
        self._message = message
        self._head = envelope_head(kind.api_version, kind.name)
        self._list_head = envelope_head(kind.api_version, list_kind)

    def prepare(self, entries: Iterable[CachedObject]) -> NowOrLater[None]:
        """Encode large objects beside the loop: one may take a fifth of a second."""
        large = [entry for entry in entries if len(entry.stored or entry.body) > _LARGE and not self._is_known(entry)]
        return self._prepare(large) if large and self.is_kept else None

    async def _prepare(self, entries: list[CachedObject]) -> None:
        for entry in entries:
            await run_beside("protobuf", self._message_of, entry)

    def _is_known(self, entry: CachedObject) -> bool:
        return entry.protobuf is not None and entry.protobuf[0] is self

    def moment(self) -> object:
        return None

    def encode_object(self, entry: CachedObject) -> bytes:
        return wrap(self._head, self._message_of(entry))

    def encode_list(self, entries: Sequence[CachedObject], *, metadata: Object) -> list[bytes]:
        items = self.encode_items(entries, lead=b"", end=END)
        return [self.begin_list(metadata, len(items)), items]

    def begin_list(self, metadata: Object, size: int) -> bytes:
        head = _META + delimit(_write("meta.v1.ListMeta", metadata))
        return self._list_head + delimit(head, more=size - len(END))

    def encode_items(self, entries: Sequence[CachedObject], *, lead: bytes, end: bytes = b"") -> bytes:
        """Return the items, each after its tag: nothing separates them, so that `lead` is not needed."""
        pieces: list[bytes] = []
        for entry in entries:
            message = self._message_of(entry)
            pieces += (_ITEM, delimit(message))
        pieces.append(end)
        return b"".join(pieces)

    def encode_bookmark(self, metadata: Object) -> bytes:
        return wrap(self._head, _write(self._message, orjson.loads(self._json.encode_bookmark(metadata))))

    def encode_event(self, kind: str, body: bytes) -> bytes:
        return watch_event(kind, body)

    def encode_status(self, status: Object) -> bytes:
        return to_protobuf(status)

    def _message_of(self, entry: CachedObject) -> bytes:
        known = entry.protobuf
        if known is not None and known[0] is self:
            return known[1]
        message = _write(self._message, orjson.loads(self._json.encode_object(entry)))
        if self.is_kept:
            entry.protobuf = (self, message)
        return message


def to_protobuf(obj: Object) -> bytes:
    """Return an answer that is no stored object, such as a Status or a review, as protobuf."""
    try:
        return encode_answer(obj)
    except NoProtobuf as err:
        raise errors.InternalError(str(err)) from err


def _write(message: str, obj: dict[str, Any]) -> bytes:
    try:
        return writer().write(message, obj)
    except NoProtobuf as err:
        raise errors.InternalError(str(err)) from err
