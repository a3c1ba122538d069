"""The representations of objects that clients can ask for: the object in a served version, its metadata, a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import msgspec
import orjson

from pinnace.kinds.golang import empty_fields
from pinnace.kinds.golang.field_numbers import message_of_answer
from pinnace.model import errors, field_errors
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Column, Registry, Resource, Strategy
from pinnace.process.clock import Clock
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.serving.cache.protobuf_representation import JsonRepresentation, ProtobufRepresentation
from pinnace.serving.cache.served_versions import (
    decode_served,
    encode_served,
    head_of,
    needs_preparation,
    prepare,
    to_served_version,
)
from pinnace.serving.cache.watch_cache import CachedObject
from pinnace.serving.request.call import Call
from pinnace.serving.request.negotiation import (
    ALL_OFFERED,
    METADATA,
    METADATA_LIST,
    PLAIN,
    PLAIN_NAMES,
    PROTOBUF,
    Accepted,
    is_named,
    negotiate,
)

_METADATA = b'"metadata":{'
LIST_END = b"]}\n"


class Representation(Protocol):
    """Encodes objects, lists and bookmarks. Representations with equal names make equal bytes and can share them."""

    @property
    def name(self) -> object: ...

    @property
    def has_shard_info(self) -> bool:
        """Whether the metadata of a list repeat the shard selector: in Kubernetes, those of built-in kinds only."""

    @property
    def needs_preparation(self) -> bool:
        """A webhook may have to convert objects: call `prepare` before encoding them."""

    def prepare(self, entries: Iterable[CachedObject]) -> NowOrLater[None]:
        """Convert these objects; None if there is nothing to wait for."""

    def encode_object(self, entry: CachedObject) -> bytes: ...

    def encode_list(self, entries: Sequence[CachedObject], *, metadata: Object) -> bytes | list[bytes]:
        """Return a list of a few objects: its beginning, and the rest."""

    @property
    def most_at_once(self) -> int:
        """More objects are encoded in groups, by the following methods (see `item_groups.py`)."""

    @property
    def group_items(self) -> int:
        """The most items of one group."""

    @property
    def is_kept(self) -> bool:
        """Whether lists can be kept for other clients: not tables, whose rows have ages."""

    @property
    def most_bytes(self) -> int:
        """Objects of more bytes, as they are stored, are encoded in groups too."""

    @property
    def list_end(self) -> bytes:
        """The end of a list, after its items."""

    def moment(self) -> object:
        """Return a value that changes when equal objects may be encoded differently: the ages in tables."""

    @property
    def order(self) -> Callable[[CachedObject], Any] | None:
        """The sort key of the items of a list; None if they stay in the order of their keys."""

    def begin_list(self, metadata: Object, size: int) -> bytes:
        """Return the beginning of a list, up to the first item. `size` is that of the items and the end."""

    def encode_items(self, entries: Sequence[CachedObject], *, lead: bytes, end: bytes = b"") -> bytes:
        """Return the items. In JSON commas separate them, and the first follows `lead`."""

    def encode_bookmark(self, metadata: Object) -> bytes:
        """Return an object that has only these metadata."""

    def encode_event(self, kind: str, body: bytes) -> bytes:
        """Return a watch event about an encoded object."""

    def encode_status(self, status: Object) -> bytes:
        """Return the object of an ERROR event."""


class _Json:
    """The common part of the representations in JSON."""

    is_kept = False
    most_bytes = 2 << 20
    list_end = LIST_END

    def encode_event(self, kind: str, body: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)

    def encode_status(self, status: Object) -> bytes:
        return orjson.dumps(status)


class ObjectRepresentation(_Json):
    """Whole objects of one served version. If that is the stored version, the stored bytes are sent unchanged."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._head = head_of(resource.kind)
        self._is_stored = resource.kind == resource.stored and resource.custom is None
        kind = resource.kind
        self._list_head = b'{"kind":"%b","apiVersion":"%b","metadata":' % (
            resource.list_kind.encode(),
            kind.api_version.encode(),
        )
        self._stored_head = len(head_of(resource.stored))
        self.name: object = kind
        self.needs_preparation = needs_preparation(resource)
        self.has_shard_info = resource.custom is None
        self.is_kept = not self.needs_preparation
        self._has_own_items = resource.custom is not None or resource.is_converted
        self.most_at_once = _CONVERTED_AT_ONCE if self._has_own_items else _JOINED_AT_ONCE
        self.group_items = self.most_at_once
        self.order = None

    def prepare(self, entries: Iterable[CachedObject]) -> NowOrLater[None]:
        return prepare(entries, self._resource) if self.needs_preparation else None

    def moment(self) -> object:
        return None

    @property
    def is_stored(self) -> bool:
        """Whether an object is sent as it is stored."""
        return self._is_stored

    def encode_object(self, entry: CachedObject) -> bytes:
        if self._resource.custom is not None:
            return encode_served(entry, self._resource, self._resource.custom)
        if self._is_stored:
            return entry.body
        if not self._resource.is_converted:  # The fields are the same: only kind and apiVersion differ.
            return self._head + entry.body[entry.body.index(_METADATA) + len(_METADATA) :]
        return encode(self.object(entry))

    def object(self, entry: CachedObject) -> Object:
        """Return the object in this version, decoded. The caller may change it."""
        return decode_served(entry, self._resource)

    def encode_list(self, entries: Sequence[CachedObject], *, metadata: Object) -> list[bytes]:
        return [self.begin_list(metadata, 0), self.encode_items(entries, lead=b"", end=LIST_END)]

    def encode_items(self, entries: Sequence[CachedObject], *, lead: bytes, end: bytes = b"") -> bytes:
        """Return the items of a list. Items of built-in kinds have no kind and apiVersion: the list has."""
        if self._has_own_items:
            item = self.encode_object if self._resource.custom is not None else self._item
            return b"%b%b%b" % (lead, b",".join(map(item, entries)), end)
        rests = [entry.body[self._stored_head :] for entry in entries]
        if not rests:
            return end
        rests[0] = lead + _ITEM + rests[0]
        rests[-1] += end
        return _NEXT_ITEM.join(rests)

    def _item(self, entry: CachedObject) -> bytes:
        obj = self.object(entry)
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        return encode(obj)

    def begin_list(self, metadata: Object, size: int) -> bytes:
        if self._resource.custom is not None:
            metadata = {"continue": "", **metadata}  # Kubernetes sends it for custom kinds even if nothing follows.
        return b'%b%b,"items":[' % (self._list_head, orjson.dumps(metadata))

    def encode_bookmark(self, metadata: Object) -> bytes:
        return orjson.dumps({**self._empty, "metadata": metadata})

    @cached_property
    def _empty(self) -> Object:
        return _empty_object({}, self._resource)


_JOINED_AT_ONCE = 10_000
_CONVERTED_AT_ONCE = 200
_METADATA_AT_ONCE = 500
_ROWS_AT_ONCE = 50
_USUAL_WEIGHT = 50
"""The weight of all columns of a kind up to which `_ROWS_AT_ONCE` rows are encoded at once."""
_ITEM = b'{"metadata":{'
_NEXT_ITEM = b"," + _ITEM


class _Parts(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_parts = msgspec.json.Decoder(_Parts).decode


class MetadataRepresentation(_Json):
    """PartialObjectMetadata, for clients that only need names, labels and owners."""

    def __init__(self, resource: Resource, version: str) -> None:
        self._strategy = resource.strategy
        self._version = version
        self._head = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":%%b}' % version.encode()
        self.name: object = ("PartialObjectMetadata", version)
        self.needs_preparation = self.has_shard_info = False
        self.most_at_once = self.group_items = _METADATA_AT_ONCE
        self.order = None

    def prepare(self, entries: Iterable[CachedObject]) -> NowOrLater[None]:
        return None

    def encode_object(self, entry: CachedObject) -> bytes:
        return self._head % self._metadata(entry)

    def moment(self) -> object:
        return None

    def encode_list(self, entries: Sequence[CachedObject], *, metadata: Object) -> list[bytes]:
        begin = self.begin_list(metadata, 0)
        return [begin, self.encode_items(entries, lead=b"") + LIST_END] if entries else [begin[:-1], b"null}\n"]

    def begin_list(self, metadata: Object, size: int) -> bytes:
        version, kind = self._version.encode(), b"PartialObjectMetadataList"
        return b'{"kind":"%b","apiVersion":"meta.k8s.io/%b","metadata":%b,"items":[' % (
            kind,
            version,
            orjson.dumps(metadata),
        )

    def encode_items(self, entries: Sequence[CachedObject], *, lead: bytes, end: bytes = b"") -> bytes:
        return b"%b%b%b" % (lead, b",".join(map(self.encode_object, entries)), end)

    def encode_bookmark(self, metadata: Object) -> bytes:
        return orjson.dumps(partial_metadata({"metadata": metadata}, self._version))

    def _metadata(self, entry: CachedObject) -> bytes | msgspec.Raw:
        """Return the metadata as the object has it, without decoding the object."""
        if self._strategy.version_annotations:
            return orjson.dumps(without_version_annotations(entry.decode(), self._strategy)["metadata"])
        return _parts(entry.body).metadata


class TableRepresentation(_Json):
    """Table: the rows that kubectl prints."""

    def __init__(self, resource: Resource, *, version: str, include: str, clock: Clock, headers: bool = True) -> None:
        self._resource = resource
        self._version = version
        self._include = include or "Metadata"
        self._clock = clock
        self._headers = headers
        self.name: object = ("Table", resource.kind, version, self._include, headers)
        self.needs_preparation = needs_preparation(resource)
        self.has_shard_info = False
        self.most_at_once = max(1, _ROWS_AT_ONCE * _USUAL_WEIGHT // max(_USUAL_WEIGHT, _weight(resource.columns)))
        self.group_items = 2 * self.most_at_once if self.most_at_once > 1 else 1

    def prepare(self, entries: Iterable[CachedObject]) -> NowOrLater[None]:
        return prepare(entries, self._resource) if self.needs_preparation else None

    def without_headers(self) -> TableRepresentation:
        """Return the representation of the second and later events of a watch, which do not repeat the columns."""
        return TableRepresentation(
            self._resource, version=self._version, include=self._include, clock=self._clock, headers=False
        )

    def encode_object(self, entry: CachedObject) -> bytes:
        obj = self._object(entry)
        version = obj["metadata"].get("resourceVersion")  # A dry run has none.
        return self._table([obj], {"resourceVersion": version} if version else {})

    def encode_list(self, entries: Sequence[CachedObject], *, metadata: Object) -> bytes:
        objects = [self._object(entry) for entry in entries]
        if self._resource.row_order is not None:
            objects.sort(key=self._resource.row_order)
        return self._table(objects, metadata)

    def _object(self, entry: CachedObject) -> Object:
        """Return the object that columns read: the stored version, or the requested version of a custom kind."""
        return entry.decode() if self._resource.custom is None else decode_served(entry, self._resource)

    def encode_bookmark(self, metadata: Object) -> bytes:
        """Return a table with one row. It always has an object, because that holds the bookmark's annotations."""
        obj = _empty_object(metadata, self._resource)
        now = self._clock.now()
        cells = [column.value(obj, now) for column in self._resource.columns or DEFAULT_COLUMNS]
        included = obj if self._include == "Object" else partial_metadata(obj, self._version)
        table = self._empty({"resourceVersion": metadata["resourceVersion"]})
        table["rows"] = [{"cells": cells, "object": included}]
        return orjson.dumps(table)

    def _empty(self, metadata: Object) -> Object:
        columns = self._resource.columns or DEFAULT_COLUMNS
        definitions = [column.definition for column in columns if column.has_title] if self._headers else None
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._version}",
            "metadata": metadata,
            "columnDefinitions": definitions,
            "rows": [],
        }

    def moment(self) -> object:
        """Return the second: ages have no fractions."""
        return self._clock.now().replace(microsecond=0)

    @property
    def order(self) -> Callable[[CachedObject], Any] | None:
        order = self._resource.row_order
        return None if order is None else lambda entry: order(self._object(entry))

    def begin_list(self, metadata: Object, size: int) -> bytes:
        return orjson.dumps(self._empty(metadata)).removesuffix(b"]}")

    def encode_items(self, entries: Sequence[CachedObject], *, lead: bytes, end: bytes = b"") -> bytes:
        now = self._clock.now()
        rows = orjson.dumps([self._row(self._object(entry), now) for entry in entries])
        return b"%b%b%b" % (lead, rows[1:-1], end)

    def _table(self, objects: list[Object], metadata: Object) -> bytes:
        table = self._empty(metadata)
        now = self._clock.now()
        table["rows"] = [self._row(obj, now) for obj in objects]
        if not objects and (self._resource.columns or DEFAULT_COLUMNS)[-1].name == _CREATED_AT:
            table["rows"] = None  # As Kubernetes does for kinds without columns of their own.
        return orjson.dumps(table)

    def _row(self, obj: Object, now: datetime) -> Object:
        columns = self._resource.columns or DEFAULT_COLUMNS
        row: Object = {"cells": [column.value(obj, now) for column in columns], "object": None}
        if self._include == "Object":
            row["object"] = to_served_version(obj, self._resource)
        elif self._include == "Metadata":
            own = without_version_annotations(obj, self._resource.strategy)
            row["object"] = partial_metadata(own, self._version)
        return row


def _empty_object(metadata: Object, resource: Resource) -> Object:
    """Return an object with these metadata and, if its kind is built-in, the empty fields that Go writes."""
    kind = resource.kind
    fields = empty_fields.empty(resource.schema) if resource.custom is None else {}
    return {**fields, "kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}


def _weight(columns: Iterable[Column]) -> int:
    return sum(column.weight for column in columns)


def _name_cell(obj: Object, now: datetime) -> str:
    return str(obj["metadata"].get("name", ""))


def _created_cell(obj: Object, now: datetime) -> str:
    return str(obj["metadata"].get("creationTimestamp", ""))


_CREATED_AT = "Created At"
DEFAULT_COLUMNS = (
    Column("Name", "string", "The object's name, unique within its namespace.", _name_cell, format="name"),
    Column(_CREATED_AT, "date", "When the object was created.", _created_cell),
)


def encode(obj: Object) -> bytes:
    return orjson.dumps(obj)


def partial_metadata(obj: Object, version: str = "v1") -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }


def without_version_annotations(obj: Object, strategy: Strategy) -> Object:
    """Remove the annotations that keep fields of other versions. May change the given object."""
    metadata = obj["metadata"]
    if strategy.version_annotations and "annotations" in metadata:
        own = {name: text for name, text in metadata["annotations"].items() if name not in strategy.version_annotations}
        metadata["annotations"] = own
        if not own:
            del metadata["annotations"]
    return obj


WATCH_FORMATS = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
"""The formats of a watch in a 406 answer."""


class Representations:
    """Chooses how a call's objects are represented: as objects, as metadata, or as a table."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._known: dict[tuple[int, Accepted, str, bool], tuple[Resource, Representation]] = {}
        self._objects: dict[int, tuple[Resource, ObjectRepresentation]] = {}
        self._protobuf: dict[int, tuple[Resource, ProtobufRepresentation]] = {}

    def accepted(self, call: Call) -> Accepted:
        """Return what the client accepts. Raise NotAcceptable or NotShownSo if the server has no such format."""
        accept = call.request.head.accept
        if accept in PLAIN_NAMES:
            return PLAIN
        return self._negotiate(call, accept)

    def _negotiate(self, call: Call, accept: str) -> Accepted:
        resource = call.resource
        # The metadata of all objects can be written as protobuf.
        has_message = PROTOBUF in accept and resource.custom is None and message_of_answer(resource.kind) is not None
        try:
            accepted = negotiate(accept, has_message=has_message)
        except errors.NotShownSo:
            if resource.custom is not None or is_named(accept):
                raise
            raise _not_acceptable(call) from None
        if not accepted.is_named and resource.custom is None:
            raise _not_acceptable(call)
        return accepted

    def choose(self, call: Call, accepted: Accepted) -> Representation:
        if accepted is not PLAIN:
            if accepted.view:
                return self._choose_view(call, accepted)
            if accepted.is_protobuf:
                return self._choose_protobuf(call.resource)
        known = self._objects.get(id(call.resource))  # It keeps the resource: no other has this id.
        return known[1] if known is not None else self._choose_object(call.resource)

    def _choose_object(self, resource: Resource) -> ObjectRepresentation:
        known = self._objects.get(id(resource))
        if known is None:
            self._registry.drop_stale(self._objects)
            known = self._objects[id(resource)] = (resource, ObjectRepresentation(resource))
        return known[1]

    def _choose_protobuf(self, resource: Resource) -> ProtobufRepresentation:
        known = self._protobuf.get(id(resource))
        if known is None or known[0] is not resource:
            self._registry.drop_stale(self._protobuf)
            objects = self._choose_object(resource)
            json = JsonRepresentation(objects.name, objects.encode_object, objects.encode_bookmark)
            form = ProtobufRepresentation(resource.kind, resource.list_kind, json, is_kept=True)
            known = self._protobuf[id(resource)] = (resource, form)
        return known[1]

    def _choose_view(self, call: Call, accepted: Accepted) -> Representation:
        resource = call.resource
        include = call.text("includeObject") if accepted.view == "Table" else ""
        is_list = call.verb in ("list", "deletecollection")
        place = (id(resource), accepted, include, is_list)
        known = self._known.get(place)
        if known is not None and known[0] is resource:
            return known[1]
        check_view(call, accepted, include)
        form: Representation
        if accepted.view == "Table":
            form = TableRepresentation(resource, version=accepted.version, include=include, clock=self._clock)
        else:
            form = metadata = MetadataRepresentation(resource, accepted.version)
            if accepted.is_protobuf:
                json = JsonRepresentation(metadata.name, metadata.encode_object, metadata.encode_bookmark)
                kind = Kind("meta.k8s.io", accepted.version, METADATA)
                form = ProtobufRepresentation(kind, METADATA_LIST, json, is_kept=False)
        self._registry.drop_stale(self._known)
        self._known[place] = (resource, form)
        return form


def check_view(call: Call, accepted: Accepted, include: str) -> None:
    """Raise if one object is wanted as a list, a list as one object, or rows include what no row can."""
    package, name = call.resource.stored.group.partition(".")[0] or "core", call.resource.kind.name
    if call.resource.custom is not None:
        package, name = "unstructured", "Unstructured"
    is_list = call.verb in ("list", "deletecollection")
    if accepted.view == METADATA and is_list:
        raise errors.WrongView(
            f"you requested PartialObjectMetadata, but the requested object is a list (*{package}.{name}List)"
        )
    if accepted.view == METADATA_LIST and not is_list:
        raise errors.WrongView(
            f"you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.{name})"
        )
    if include not in ("", "Metadata", "Object", "None"):
        err = field_errors.invalid("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
        raise errors.BadRequest(f"Unable to convert to Table as requested: {err}")


def _not_acceptable(call: Call) -> errors.NotAcceptable:
    return errors.NotAcceptable((*ALL_OFFERED, *(WATCH_FORMATS if call.verb in ("list", "watch") else ())))
