"""The owners of fields: metadata.managedFields after every write except an apply.

Pure functions over plain objects. `live` is never changed; results share parts with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote
from pinnace.schema.merge import field_sets
from pinnace.schema.merge.changes import Changes, Outline, OutlineTooLong, collapse_atomic, find_changes, outline
from pinnace.schema.merge.field_sets import FieldSet
from pinnace.schema.merge.structure import structure
from pinnace.schema.shape import Schema

OF_NOBODY = field_sets.of_paths(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)
"""Identity fields (name, namespace, uid, …) never have a field manager."""

Tracked = Callable[[FieldSet], FieldSet]
"""Returns the fields of a set that a write through this URL can change, and so can own."""


def track_everything(fields: FieldSet) -> FieldSet:
    return fields


def ignoring(*paths: tuple[str, ...]) -> Tracked:
    """Exclude these paths and everything below: ignoring(("status",)) fits most main URLs."""
    ignored = field_sets.of_paths(*(tuple(f"f:{name}" for name in path) for path in paths))

    def tracked(fields: FieldSet) -> FieldSet:
        return fields if ignored.keys().isdisjoint(fields) else field_sets.recursive_difference(fields, ignored)

    return tracked


def only(*names: str) -> Tracked:
    """Include only these top-level fields: only("status") fits the status of custom resources."""
    elements = tuple(f"f:{name}" for name in names)
    return lambda fields: {element: fields[element] for element in elements if element in fields}


class UnknownVersion(ValueError):
    """An entry names a version that a custom kind has no more. The message is Kubernetes'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The rules for the fields of one kind at one URL, for updates and applies."""

    schema: Schema
    api_version: str
    subresource: str = ""
    tracked: Tracked = track_everything
    schema_for: Callable[[str], Schema | None] = lambda api_version: None
    """Return the schema of this kind in another version; None if it is no longer served: its entries are dropped."""
    knows: Callable[[str], bool] | None = None
    """Whether a custom kind has a version: Kubernetes computes no managers of an object with entries of others."""
    convert: Callable[[Object, str], Object] = lambda obj, api_version: obj
    """Convert an object to another version; its apiVersion is the one it has now. Must not change its argument."""
    blank: Object | None = None
    """The object before it is created, where it is not empty."""
    made: dict[Outline, FieldSet] = field(default_factory=dict, compare=False, repr=False)
    """A cache of fields owned by creators, by the outlines of the objects."""

    def schema_of(self, api_version: str) -> Schema | None:
        return self.schema if api_version == self.api_version else self.schema_for(api_version)

    def empty(self) -> Object:
        """Return the object before it is created: a manager that repeats its values does not own them."""
        return structure(self.schema).empty if self.blank is None else self.blank

    def in_version(self, obj: Object, api_version: str) -> Object:
        if obj.get("apiVersion", self.api_version) == api_version:
            return obj
        return {**self.convert(obj, api_version), "apiVersion": api_version}

    def changes(self, old: Object, new: Object, api_version: str) -> Changes | None:
        """Return the changes of a write in one version; None if the version is unknown."""
        schema = self.schema_of(api_version)
        if schema is None:
            return None
        if api_version != self.api_version:
            old, new = self.in_version(old, api_version), self.in_version(new, api_version)
        changes = find_changes(old, new, schema)
        return Changes(*map(self.tracked, changes)) if self.tracked is not track_everything else changes


def current_entries(managed: Managed, ownership: Ownership) -> Managed:
    """Drop entries of versions that are no longer served, adapt the sets to the schemas. Raise UnknownVersion."""
    if ownership.knows is not None:
        _check_versions(managed, ownership.knows)
    current: Managed = {}
    for manager, entry in managed.items():
        schema = ownership.schema_of(entry.api_version)
        if schema is not None and schema.name:
            current[manager] = entry
        elif schema is not None:  # Only custom kinds change their schemas while objects of them exist.
            current[manager] = entry.holding(collapse_atomic(entry.owned, structure(schema)))
    return current


def _check_versions(managed: Managed, knows: Callable[[str], bool]) -> None:
    for entry in managed.values():
        if not knows(entry.api_version):
            raise UnknownVersion(f"request to convert CR to an invalid group/version: {entry.api_version}")


def given_up(
    old: Object, new: Object, managed: Managed, ownership: Ownership, changes: Changes, *, me: FieldManager | None
) -> Managed:
    """Remove the changed fields from all managers but `me`. Conflicts decide about applied fields."""
    by_version: dict[str, Changes | None] = {ownership.api_version: changes}
    left: Managed = {}
    for manager, entry in managed.items():
        if manager == me:
            left[manager] = entry
            continue
        if entry.api_version not in by_version:
            by_version[entry.api_version] = ownership.changes(old, new, entry.api_version)
        seen = by_version[entry.api_version]
        if seen is None:
            continue
        owned = entry.owned
        for lost in seen:
            owned = field_sets.difference(owned, lost)
        if owned:
            left[manager] = entry.holding(owned)
    if me in left and not left[me].owned:
        del left[me]
    return left


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
        description = quote(self.name)
        if self.subresource:
            description += f" with subresource {quote(self.subresource)}"
        return f"{description} using {self.api_version}" if self.operation == "Update" else description


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
    managed: Managed = {}
    for number, entry in enumerate(entries or ()):
        _check_entry(entry, number)
        operation, api_version = entry["operation"], entry["apiVersion"]
        of_version = api_version if operation == "Update" else ""
        manager = FieldManager(entry.get("manager", ""), operation, of_version, entry.get("subresource", ""))
        managed[manager] = OwnedFields(parse(entry.get("fieldsV1")), api_version, entry.get("time") or "", entry)
    return managed


def _check_entry(entry: Any, number: int) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"managed fields entry {number} is no object")
    if entry.get("operation") not in ("Apply", "Update"):
        raise ValueError("operation must be `Apply` or `Update`")
    if not entry.get("apiVersion"):
        raise ValueError("apiVersion must not be empty")
    fields_type = entry.get("fieldsType", "")
    if fields_type != "FieldsV1":
        reason = f"invalid fieldsType {quote(fields_type)}" if fields_type else "missing fieldsType"
        raise ValueError(f"{reason} in managed fields entry {number}")


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
    if len(managed) <= MOST_UPDATE_MANAGERS:
        return managed
    updaters = [manager for manager in managed if manager.operation == "Update"]
    return _cap(managed, updaters, len(updaters) - MOST_UPDATE_MANAGERS)


def _cap(managed: Managed, updaters: list[FieldManager], excess: int) -> Managed:
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


_IDENTITY = frozenset(element for element in OF_NOBODY if element != "f:metadata")
_IDENTITY_IN_METADATA = frozenset((*OF_NOBODY["f:metadata"], "."))

_BLANKS: tuple[Object, ...] = ({}, {"metadata": {}})
"""The creator of an object owns all fields but these: no values need to be compared."""
_MOST_OUTLINES = 64
_LONGEST_OUTLINE = 8 * 1024


def after_update(live: Object | None, new: Object, ownership: Ownership, *, manager: str, now: str) -> None:
    """Write metadata.managedFields of `new`, which any verb but apply is about to store in place of `live`.

    `manager` becomes the only owner of changed fields. Removed fields lose their owners.
    """
    metadata = new["metadata"]
    managed = _managed_of_request(live, new, ownership) if live is not None or "managedFields" in metadata else {}
    metadata.pop("managedFields", None)
    if live is not None and not managed:
        return  # The object is not tracked: its managers were reset, or it is older than field management.
    try:
        if not managed:
            _own_everything(new, ownership, manager=manager, now=now)
            return
        managed = updated(live, new, managed, ownership, manager=manager, now=now)
    except (ValueError, RecursionError):
        return  # Not comparable: validation is about to reject it, or it is not tracked.
    write(new, managed)


def updated(
    live: Object | None, new: Object, managed: Managed, ownership: Ownership, *, manager: str, now: str
) -> Managed:
    """Return the managers after `manager` has written `new`. Raise ValueError if the two cannot be compared."""
    old = without_entries(live) if live is not None else ownership.empty()
    managed = current_entries(managed, ownership)
    changes = ownership.changes(old, new, ownership.api_version)
    assert changes is not None  # Its own version is always known.
    left = given_up(old, new, managed, ownership, changes, me=None)
    mine = field_sets.difference(field_sets.union(changes.modified, changes.added), OF_NOBODY)
    if mine:
        me = FieldManager(manager or "unknown", "Update", ownership.api_version, ownership.subresource)
        held = managed.get(me)
        if held is not None and held.wire and not changes.removed and not field_sets.difference(mine, held.owned):
            # Most repeated writes change fields that their manager owns already: only the time differs.
            left[me] = OwnedFields(held.owned, ownership.api_version, now, {**held.wire, "time": now})
            return cap_managers(left)
        if me in left:
            mine = field_sets.union(mine, left[me].owned)
        left[me] = OwnedFields(mine, ownership.api_version, now)
    return cap_managers(left)


def _managed_of_request(live: Object | None, new: Object, ownership: Ownership) -> Managed:
    """Return the managers in the request, or those of the live object if the request has none."""
    entries = new["metadata"].get("managedFields")
    current = live["metadata"].get("managedFields") if live is not None else None
    if not ownership.subresource and entries is not None and entries != current:
        if not entries or entries == [{}]:
            return {}
        try:
            return decode(entries, parse=field_sets.parse)
        except ValueError:
            pass
    try:
        return decode(current)
    except ValueError:
        return {}


def _own_everything(new: Object, ownership: Ownership, *, manager: str, now: str) -> None:
    """Return the result of `updated` and `write` for an object created by one manager: most creates."""
    before = ownership.empty()
    mine = (
        _build_cached(before, new, ownership)
        if before in _BLANKS
        else field_sets.sort_fields(_build(before, new, ownership))
    )
    if mine:
        me = FieldManager(manager or "unknown", "Update", ownership.api_version, ownership.subresource)
        new["metadata"]["managedFields"] = [written(me, mine, api_version=ownership.api_version, time=now)]


def _build(before: Object, new: Object, ownership: Ownership) -> FieldSet:
    changes = ownership.changes(before, new, ownership.api_version)
    assert changes is not None  # Its own version is always known.
    return _without_identity(field_sets.union(changes.modified, changes.added) if changes.modified else changes.added)


def _build_cached(before: Object, new: Object, ownership: Ownership) -> FieldSet:
    """Return `_build`, sorted. Cached, because objects of one kind have the same few selections of fields."""
    known = ownership.made
    try:
        shape = outline(structure(ownership.schema), new)
    except OutlineTooLong:
        return field_sets.sort_fields(_build(before, new, ownership))
    mine = known.get(shape)
    if mine is None:
        mine = field_sets.sort_fields(_build(before, new, ownership))
        if len(orjson.dumps(shape)) <= _LONGEST_OUTLINE:
            if len(known) >= _MOST_OUTLINES:
                known.clear()
            known[shape] = mine
    return mine


def _without_identity(fields: FieldSet) -> FieldSet:
    """Return the difference to `OF_NOBODY`, whose members are all leaves."""
    mine = {element: below for element, below in fields.items() if element not in _IDENTITY}
    metadata = mine.get("f:metadata")
    if metadata is not None:
        kept = {element: below for element, below in metadata.items() if element not in _IDENTITY_IN_METADATA}
        if kept:
            mine["f:metadata"] = kept
        else:
            del mine["f:metadata"]
    return mine
