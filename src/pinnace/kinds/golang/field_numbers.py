"""The protobuf field numbers of the built-in kinds: a table beside this file, read when the first body needs it.

A line is a message and its fields, `core.v1.Secret immutable=5?:bool data=2:{bytes} type=3`: the name in JSON, the
number, a question mark where Go has a pointer, an exclamation mark where Go has none and writes zeros to JSON, and the
type where it is not string, in brackets for a list and in braces for a map. A field without a name holds fields that
JSON shows in its parent. A type without a dot is in the message's own package.

The messages of lists are not in the table: all have their metadata first and their items second.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pinnace.kinds.golang.tables import rows
from pinnace.model.objects import Kind, Object
from pinnace.schema.golang.protobuf import LIST, MAP, TYPES, ProtobufField, ProtobufReader, read_envelope
from pinnace.schema.golang.protobuf_encoding import NoProtobuf, ProtobufWriter, envelope_head, wrap

TABLE = Path(__file__).with_suffix(".txt")

PACKAGES = {
    "": "core",
    "admissionregistration.k8s.io": "admissionregistration",
    "apiextensions.k8s.io": "apiextensions",
    "apidiscovery.k8s.io": "apidiscovery",
    "apiregistration.k8s.io": "apiregistration",
    "apps": "apps",
    "authentication.k8s.io": "authentication",
    "authorization.k8s.io": "authorization",
    "autoscaling": "autoscaling",
    "batch": "batch",
    "certificates.k8s.io": "certificates",
    "coordination.k8s.io": "coordination",
    "discovery.k8s.io": "discovery",
    "events.k8s.io": "events",
    "extensions": "extensions",
    "flowcontrol.apiserver.k8s.io": "flowcontrol",
    "internal.apiserver.k8s.io": "apiserverinternal",
    "lifecycle.k8s.io": "lifecycle",
    "meta.k8s.io": "meta",
    "networking.k8s.io": "networking",
    "node.k8s.io": "node",
    "policy": "policy",
    "rbac.authorization.k8s.io": "rbac",
    "resource.k8s.io": "resource",
    "scheduling.k8s.io": "scheduling",
    "storage.k8s.io": "storage",
    "storagemigration.k8s.io": "storagemigration",
}
"""The Go package of each group that has field numbers; custom kinds have none."""

DELETE_OPTIONS = "meta.v1.DeleteOptions"


def message_of(kind: Kind) -> str | None:
    """Return the message of a kind, or None if it has none."""
    package = PACKAGES.get(kind.group)
    message = f"{package}.{kind.version}.{kind.name}"
    return message if package is not None and message in rows(TABLE) else None


def message_of_answer(kind: Kind) -> str | None:
    """Return the message of a kind, of the list of a kind or of an answer that is no resource; None if it has none."""
    message = message_of(kind)
    if message is None and kind.name.endswith("List"):
        items = message_of(kind._replace(name=kind.name.removesuffix("List")))
        message = None if items is None else f"{items}List"
    if message is None and kind.api_version in ("", "v1") and f"meta.v1.{kind.name}" in rows(TABLE):
        return f"meta.v1.{kind.name}"
    return message


def encode_answer(obj: Object) -> bytes:
    """Return an object or a list with its envelope. Raise NoProtobuf if its kind has no message, or it does not fit."""
    kind = Kind.parse(obj.get("apiVersion", ""), obj["kind"])
    message = message_of_answer(kind)
    if message is None:
        raise NoProtobuf(f"{kind.name} of {kind.api_version} has no protobuf message")
    return wrap(envelope_head(obj.get("apiVersion", ""), kind.name), writer().write(message, obj))


def decode_answer(body: bytes) -> Object:
    """Return the object in an envelope. Raise MalformedProtobuf, and KeyError for a kind that has no message."""
    envelope = read_envelope(body)
    message = message_of_answer(Kind.parse(envelope.api_version, envelope.kind))
    if message is None:
        raise KeyError(f"{envelope.kind} of {envelope.api_version} has no protobuf message")
    return {"kind": envelope.kind, "apiVersion": envelope.api_version} | reader().read(message, envelope.raw)


@cache
def reader() -> ProtobufReader:
    """Return a reader of every message in the table."""
    return ProtobufReader(fields_of)


@cache
def writer() -> ProtobufWriter:
    """Return a writer of every message in the table, and of lists."""
    return ProtobufWriter(fields_of)


def fields_of(message: str) -> tuple[ProtobufField, ...]:
    """Return the fields of a message. Raise KeyError if the table lacks it."""
    package = message.rpartition(".")[0]
    item = message.removesuffix("List")
    if message not in rows(TABLE) and item in rows(TABLE):
        return ProtobufField("metadata", 1, "meta.v1.ListMeta"), ProtobufField("items", 2, item, LIST)
    return tuple(_field(text, package) for text in rows(TABLE)[message].split())


def messages() -> tuple[str, ...]:
    return tuple(rows(TABLE))


def _field(text: str, package: str) -> ProtobufField:
    name, _, wire = text.rpartition("=")
    number, _, type = wire.partition(":")
    shape = {"[": LIST, "{": MAP}.get(type[:1], "")
    if shape:
        type = type[1:-1]
    if not type:
        type = "string"
    elif type not in TYPES and "." not in type:
        type = f"{package}.{type}"
    mark = number[-1]
    return ProtobufField(name, int(number.rstrip("?!")), type, shape, mark in "?!", mark == "?")
