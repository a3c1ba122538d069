"""The entries of metadata.managedFields: parse, write and limit their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote
from pinnace.schema.merge import field_sets
from pinnace.schema.merge.field_sets import FieldSet

MOST_UPDATE_MANAGERS = 10


class FieldManager(NamedTuple):
    """The identity of an entry. It has no version for an applier, whose entry stays when its version changes."""

    name: str
    operation: str
    api_version: str
    subresource: str

    @property
    def sort_key(self) -> str:
        wire = {"manager": self.name, "operation": self.operation, "apiVersion": self.api_version}
        wire["subresource"] = self.subresource
        return orjson.dumps({key: value for key, value in wire.items() if value}).decode()

    def __str__(self) -> str:
        told = quote(self.name)
        if self.subresource:
            told += f" with subresource {quote(self.subresource)}"
        return f"{told} using {self.api_version}" if self.operation == "Update" else told


class OwnedFields(NamedTuple):
    """One entry of managedFields. `wire` is the received entry, while it is unchanged."""

    owned: FieldSet
    api_version: str
    time: str
    wire: Object | None = None

    def holding(self, owned: FieldSet) -> OwnedFields:
        return self if owned is self.owned or owned == self.owned else OwnedFields(owned, self.api_version, self.time)


Managed = dict[FieldManager, OwnedFields]


def _as_stored(owned: Any) -> FieldSet:
    return owned or {}  # Checked before it was stored.


def decode(entries: Any, *, parse: Callable[[Any], FieldSet] = _as_stored) -> Managed:
    """Parse an entry. Raise ValueError if it is invalid."""
    found: Managed = {}
    for number, entry in enumerate(entries or ()):
        if not isinstance(entry, dict):
            raise ValueError(f"managed fields entry {number} is no object")
        operation, api_version = entry.get("operation", ""), entry.get("apiVersion", "")
        if operation not in ("Apply", "Update"):
            raise ValueError("operation must be `Apply` or `Update`")
        if not api_version:
            raise ValueError("apiVersion must not be empty")
        fields_type = entry.get("fieldsType", "")
        if fields_type != "FieldsV1":
            what = f"invalid fieldsType {quote(fields_type)}" if fields_type else "missing fieldsType"
            raise ValueError(f"{what} in managed fields entry {number}")
        manager = FieldManager(
            entry.get("manager", ""),
            operation,
            api_version if operation == "Update" else "",
            entry.get("subresource", ""),
        )
        found[manager] = OwnedFields(parse(entry.get("fieldsV1")), api_version, entry.get("time") or "", entry)
    return found


def write(obj: Object, managed: Managed) -> None:
    metadata = obj["metadata"]
    if not managed:
        metadata.pop("managedFields", None)
        return
    order = sorted(managed, key=lambda m: (m.operation, managed[m].time, m.name, managed[m].api_version, m.subresource))
    metadata["managedFields"] = [managed[manager].wire or encode(manager, managed[manager]) for manager in order]


def encode(manager: FieldManager, entry: OwnedFields) -> Object:
    """Return the entry as in metadata.managedFields."""
    return written(manager, field_sets.sort_fields(entry.owned), api_version=entry.api_version, time=entry.time)


def written(manager: FieldManager, owned: FieldSet, *, api_version: str, time: str) -> Object:
    """Encode a set that is already sorted."""
    wire: Object = {"manager": manager.name} if manager.name else {}
    wire["operation"] = manager.operation
    wire["apiVersion"] = api_version
    if time:
        wire["time"] = time
    wire["fieldsType"] = "FieldsV1"
    wire["fieldsV1"] = owned
    if manager.subresource:
        wire["subresource"] = manager.subresource
    return wire


def without_entries(obj: Object) -> Object:
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def cap_managers(managed: Managed) -> Managed:
    """Limit managers by update to ten: the oldest of each version become one, named ancient-changes."""
    updaters = [manager for manager in managed if manager.operation == "Update"]
    excess = len(updaters) - MOST_UPDATE_MANAGERS
    if excess <= 0:
        return managed
    updaters.sort(key=lambda manager: (managed[manager].time, manager.sort_key))
    first_of: dict[str, FieldManager] = {}
    for manager in updaters:
        if excess <= 0:
            break
        entry = managed[manager]
        first = first_of.setdefault(entry.api_version, manager)
        if first == manager:
            continue
        bucket = FieldManager("ancient-changes", "Update", entry.api_version, "")
        if bucket not in managed:
            managed[bucket] = managed.pop(first)
        owned = field_sets.union(entry.owned, managed[bucket].owned)
        if manager != bucket:
            del managed[manager]
        managed[bucket] = OwnedFields(owned, entry.api_version, entry.time)
        excess -= 1
    return managed
