"""The protobuf field numbers of the built-in kinds: a table beside this file, read when the first body needs it.

A line is a message and its fields, `core.v1.Secret immutable=5?:bool data=2:{bytes} type=3`: the name in JSON, the
number, a question mark where zero differs from absent (Go has a pointer there, or always writes the field), and the
type where it is not string, in brackets for a list and in braces for a map. A field without a name holds fields that
JSON shows in its parent. A type without a dot is in the message's own package.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pinnace.kinds.golang.tables import rows
from pinnace.model.objects import Kind
from pinnace.schema.golang.protobuf import LIST, MAP, TYPES, ProtobufField, ProtobufReader

TABLE = Path(__file__).with_suffix(".txt")

PACKAGES = {
    "": "core",
    "admissionregistration.k8s.io": "admissionregistration",
    "apiextensions.k8s.io": "apiextensions",
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


@cache
def reader() -> ProtobufReader:
    """Return a reader of every message in the table."""
    return ProtobufReader(fields_of)


def fields_of(message: str) -> tuple[ProtobufField, ...]:
    """Return the fields of a message. Raise KeyError if the table lacks it."""
    package = message.rpartition(".")[0]
    return tuple(_field(text, package) for text in rows(TABLE)[message].split())


def messages() -> tuple[str, ...]:
    return tuple(rows(TABLE))


def _field(text: str, package: str) -> ProtobufField:
    name, _, said = text.rpartition("=")
    number, _, type = said.partition(":")
    shape = {"[": LIST, "{": MAP}.get(type[:1], "")
    if shape:
        type = type[1:-1]
    if not type:
        type = "string"
    elif type not in TYPES and "." not in type:
        type = f"{package}.{type}"
    return ProtobufField(name, int(number.rstrip("?")), type, shape, number.endswith("?"))
