"""Who owns which field: metadata.managedFields after every write, and server-side apply.

Pure functions over plain objects. `live` and `applied` are never changed; what is returned shares parts with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson

from pinnace.model.causes import Cause
from pinnace.model.errors import ApiError, ApplyConflict, BadRequest
from pinnace.model.objects import Object, kind_of
from pinnace.schema import fields
from pinnace.schema.fields import Changes, FieldSet, Path
from pinnace.schema.gotext import quoted
from pinnace.schema.merge import faults, merge, remove, told
from pinnace.schema.shape import Schema
from pinnace.schema.structure import canonical, structure

MOST_UPDATE_MANAGERS = 10
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MOST_ANNOTATION_BYTES = 256 * 1024

_STRIPPED = fields.of_paths(
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
"""What says who an object is belongs to nobody."""

Tracked = Callable[[FieldSet], FieldSet]
"""Of a set of fields, those that a write through this URL can change, and so can come to own."""


def everything_tracked(found: FieldSet) -> FieldSet:
    return found


def ignoring(*paths: tuple[str, ...]) -> Tracked:
    """All but these paths and what is below them: ignoring(("status",)) is right for most main URLs."""
    ignored = fields.of_paths(*(tuple(f"f:{name}" for name in path) for path in paths))
    return lambda found: fields.recursive_difference(found, ignored)


def only(*names: str) -> Tracked:
    """Nothing but these top-level fields: only("status") is right for the status of custom resources."""
    elements = tuple(f"f:{name}" for name in names)
    return lambda found: {element: found[element] for element in elements if element in found}


class ApplyFailed(ApiError):
    """The applied configuration does not fit the schema."""

    code, reason = 500, ""


class _Manager(NamedTuple):
    """Whose entry this is. An applier keeps its entry when it changes to another version, so that has none here."""

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
        told = quoted(self.name)
        if self.subresource:
            told += f" with subresource {quoted(self.subresource)}"
        return f"{told} using {self.api_version}" if self.operation == "Update" else told


@dataclass(frozen=True, slots=True)
class _Owned:
    """One entry of managedFields. `wire` is the entry as it came, for as long as nothing about it changes."""

    owned: FieldSet
    api_version: str
    time: str
    wire: Object | None = None

    def holding(self, owned: FieldSet) -> _Owned:
        return self if owned is self.owned or owned == self.owned else replace(self, owned=owned, wire=None)


_Managed = dict[_Manager, _Owned]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The rules by which the fields of one kind are owned, at one URL: what both kinds of write need to know."""

    schema: Schema
    api_version: str
    subresource: str = ""
    tracked: Tracked = everything_tracked
    schema_for: Callable[[str], Schema | None] = lambda api_version: None
    """The schema of this kind in another version; None where that is no longer served, and its entries are dropped."""
    convert: Callable[[Object, str], Object] = lambda obj, api_version: obj

    def schema_of(self, api_version: str) -> Schema | None:
        return self.schema if api_version == self.api_version else self.schema_for(api_version)

    def empty(self) -> Object:
        """The object before it is created."""
        return structure(self.schema).empty

    def changes(self, old: Object, new: Object, api_version: str) -> Changes | None:
        """What a write changes, as seen in one version; None where that version is unknown."""
        schema = self.schema_of(api_version)
        if schema is None:
            return None
        if api_version != self.api_version:
            old, new = self.convert(old, api_version), self.convert(new, api_version)
        found = fields.changed(old, new, schema)
        return Changes(*map(self.tracked, found)) if self.tracked is not everything_tracked else found


def after_update(live: Object | None, new: Object, ownership: Ownership, *, manager: str, now: str) -> None:
    """Write metadata.managedFields of `new`, which any verb but apply is about to store in place of `live`.

    What changed belongs to `manager` from now on, and to nobody else; what is gone belongs to nobody.
    """
    managed = _managed_of_request(live, new, ownership)
    metadata = new["metadata"]
    metadata.pop("managedFields", None)
    if live is not None and not managed:
        return  # Nobody tracks this object: its managers were reset, or it is older than they are.
    try:
        managed = _updated(live, new, managed, ownership, manager=manager, now=now)
    except ValueError:
        return  # Not comparable, hence about to be refused by validation, or unowned.
    _write(new, managed)


def apply(
    live: Object | None, applied: Object, ownership: Ownership, *, manager: str, now: str, force: bool = False
) -> Object:
    """`live` after `applied` is laid over it: server-side apply. `live` is None where there is no such object yet.

    What this manager applied before and does not now is removed, if nobody else owns it. An object that does not change
    keeps its time. Raises ApplyConflict where another manager owns a field that would change, unless by `force`, which
    takes it; BadRequest or ApplyFailed for what cannot be applied.
    """
    if (applied.get("metadata") or {}).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    found = faults(applied, ownership.schema)
    if found:
        raise ApplyFailed(f"failed to create typed patch object ({_described(applied)}): {told(found)}")
    try:
        managed = _decode((live or {}).get("metadata", {}).get("managedFields"))
    except ValueError as fault:
        raise ApplyFailed(f"failed to decode managed fields: {fault}") from None
    before = _without_managers(live) if live is not None else ownership.empty()
    if not managed and live is not None:
        managed = _updated(None, before, {}, ownership, manager="before-first-apply", now=now)
    me = _Manager(manager, "Apply", "", ownership.subresource)
    try:
        merged, managed = _applied(before, applied, managed, ownership, me=me, force=force)
    except _Conflicts as conflicts:
        allowed = _allowed_by_last_applied(before, ownership.schema) if manager == "kubectl" else None
        if allowed is None:
            raise conflicts.as_error() from None
        left = _Conflicts([(who, path) for who, path in conflicts.found if not fields.contains(allowed, path)])
        if left.found:
            raise left.as_error() from None
        merged, managed = _applied(before, applied, managed, ownership, me=me, force=True)
    if me in managed:
        kept = fields.difference(managed[me].owned, _STRIPPED)
        if kept:
            managed[me] = managed[me].holding(kept)
        else:
            del managed[me]
    if merged != before and me in managed:
        managed[me] = replace(managed[me], time=now, wire=None)
    merged = {**merged, "metadata": dict(merged.get("metadata") or {})}
    if manager == "kubectl":
        _sync_last_applied(merged, applied)
    _write(merged, managed)
    return merged


def keep_times(live: Object, new: Object) -> None:
    """Give `new` the managedFields of `live` where nothing but their times differs: then there is nothing to store."""
    old_entries, new_entries = live["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not old_entries or not new_entries or old_entries == new_entries or len(old_entries) != len(new_entries):
        return
    if [{**entry, "time": ""} for entry in old_entries] != [{**entry, "time": ""} for entry in new_entries]:
        return
    if _without_managers(live) == _without_managers(new):
        new["metadata"]["managedFields"] = old_entries


# --- Updates


def _managed_of_request(live: Object | None, new: Object, ownership: Ownership) -> _Managed:
    """The managers that the client says there are, or those of the live object where it says nothing useful."""
    entries = new["metadata"].get("managedFields")
    current = live["metadata"].get("managedFields") if live is not None else None
    if not ownership.subresource and entries is not None and entries != current:
        if not entries or entries == [{}]:
            return {}
        try:
            return _decode(entries, parse=fields.parse)
        except ValueError:
            pass
    try:
        return _decode(current)
    except ValueError:
        return {}


def _updated(
    live: Object | None, new: Object, managed: _Managed, ownership: Ownership, *, manager: str, now: str
) -> _Managed:
    old = _without_managers(live) if live is not None else ownership.empty()
    managed = _settled(managed, ownership)
    changes = ownership.changes(old, new, ownership.api_version)
    assert changes is not None  # Its own version is always known.
    left = _given_up(old, new, managed, ownership, changes, me=None)
    mine = fields.difference(fields.union(changes.modified, changes.added), _STRIPPED)
    if mine:
        me = _Manager(manager or "unknown", "Update", ownership.api_version, ownership.subresource)
        if me in left:
            mine = fields.union(mine, left[me].owned)
        left[me] = _Owned(mine, ownership.api_version, now)
    return _capped(left)


def _settled(managed: _Managed, ownership: Ownership) -> _Managed:
    """Without the entries of versions that are gone, and with sets that fit the schemas of today."""
    found: _Managed = {}
    for manager, entry in managed.items():
        schema = ownership.schema_of(entry.api_version)
        if schema is not None and schema.name:
            found[manager] = entry
        elif schema is not None:  # Only custom kinds change their schemas while there are objects of them.
            found[manager] = entry.holding(fields.settled(entry.owned, structure(schema)))
    return found


def _given_up(
    old: Object, new: Object, managed: _Managed, ownership: Ownership, changes: Changes, *, me: _Manager | None
) -> _Managed:
    """The managers after those but `me` have lost what changed. With `me`, see also `_conflicts`."""
    by_version: dict[str, Changes | None] = {ownership.api_version: changes}
    left: _Managed = {}
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
            owned = fields.difference(owned, lost)
        if owned:
            left[manager] = entry.holding(owned)
    if me in left and not left[me].owned:
        del left[me]
    return left


def _capped(managed: _Managed) -> _Managed:
    """No more than ten managers by update: the oldest of each version become one, called ancient-changes."""
    updaters = [manager for manager in managed if manager.operation == "Update"]
    excess = len(updaters) - MOST_UPDATE_MANAGERS
    if excess <= 0:
        return managed
    updaters.sort(key=lambda manager: (managed[manager].time, manager.sort_key))
    first_of: dict[str, _Manager] = {}
    for manager in updaters:
        if excess <= 0:
            break
        entry = managed[manager]
        first = first_of.setdefault(entry.api_version, manager)
        if first == manager:
            continue
        bucket = _Manager("ancient-changes", "Update", entry.api_version, "")
        if bucket not in managed:
            managed[bucket] = managed.pop(first)
        owned = fields.union(entry.owned, managed[bucket].owned)
        if manager != bucket:
            del managed[manager]
        managed[bucket] = _Owned(owned, entry.api_version, entry.time)
        excess -= 1
    return managed


# --- Apply


class _Conflicts(Exception):
    def __init__(self, found: list[tuple[_Manager, Path]]) -> None:
        self.found = sorted(found, key=lambda conflict: conflict[0].sort_key)

    def as_error(self) -> ApplyConflict:
        causes = [
            Cause(fields.shown_path(path), "FieldManagerConflict", f"conflict with {manager}")
            for manager, path in self.found
        ]
        if len(causes) == 1:
            return ApplyConflict(f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}", causes)
        lines: list[str] = []
        for cause in causes:
            heading = f"conflicts{cause.message.removeprefix('conflict')}:"
            if heading not in lines:
                lines.append(heading)
            lines.append(f"- {cause.field}")
        return ApplyConflict(f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines), causes)


def _applied(
    live: Object, applied: Object, managed: _Managed, ownership: Ownership, *, me: _Manager, force: bool
) -> tuple[Object, _Managed]:
    """One round of apply: the merged object and its managers. Raises _Conflicts."""
    managed = _settled(managed, ownership)
    last = managed.get(me)
    try:
        merged: Object = merge(live, applied, ownership.schema)
    except ValueError as fault:
        raise ApplyFailed(f"failed to merge config: {fault}") from None
    mine = ownership.tracked(fields.of(applied, ownership.schema))
    time = last.time if last is not None else ""
    entry = _Owned(mine, ownership.api_version, time)
    same = last is not None and last.api_version == ownership.api_version and last.owned == _stripped(mine)
    managed = {**managed, me: replace(entry, wire=last.wire) if same and last is not None else entry}
    if last is not None:
        merged = _pruned(merged, managed, last, ownership)
    changes = ownership.changes(live, merged, ownership.api_version)
    assert changes is not None  # Its own version is always known.
    if not force:
        conflicts = list(_conflicts(live, merged, managed, ownership, changes, me=me))
        if conflicts:
            raise _Conflicts(conflicts)
    return merged, _given_up(live, merged, managed, ownership, changes, me=me)


def _stripped(owned: FieldSet) -> FieldSet:
    return fields.difference(owned, _STRIPPED)


def _conflicts(
    old: Object, new: Object, managed: _Managed, ownership: Ownership, changes: Changes, *, me: _Manager
) -> Iterable[tuple[_Manager, Path]]:
    for manager, entry in managed.items():
        if manager == me:
            continue
        is_mine = entry.api_version == ownership.api_version
        seen = changes if is_mine else ownership.changes(old, new, entry.api_version)
        if seen is not None:
            contested = fields.intersection(entry.owned, fields.union(seen.modified, seen.added))
            for path in fields.paths(contested):
                yield manager, path


def _pruned(merged: Object, managed: _Managed, last: _Owned, ownership: Ownership) -> Object:
    """Without what this manager applied last time, does not apply now, and nobody else owns."""
    schema = ownership.schema_of(last.api_version)
    if schema is None:
        return merged
    by_version: dict[str, FieldSet] = {}
    for entry in managed.values():
        by_version[entry.api_version] = fields.union(by_version.get(entry.api_version, {}), entry.owned)
    if not fields.difference(last.owned, by_version.get(last.api_version, {})):
        return merged
    node = structure(schema)
    here = ownership.convert(merged, last.api_version) if last.api_version != ownership.api_version else merged
    dropped = fields.with_structs(last.owned, node)
    pruned = remove(here, dropped, schema) or {}
    versions = sorted(by_version, key=lambda version: version != last.api_version)
    for version in versions:
        pruned = _with_owned_back(here, pruned, by_version[version], ownership.schema_of(version))
    gone = fields.difference(
        fields.with_structs(fields.of(here, schema), node), fields.with_structs(fields.of(pruned, schema), node)
    )
    left: Object = remove(here, fields.intersection(gone, dropped), schema) or {}
    return ownership.convert(left, ownership.api_version) if here is not merged else left


def _with_owned_back(merged: Object, pruned: Object, owned: FieldSet, schema: Schema | None) -> Object:
    if schema is None:
        return pruned
    node = structure(schema)
    all_fields = fields.with_structs(fields.of(merged, schema), node)
    kept = fields.union(fields.with_structs(fields.of(pruned, schema), node), fields.with_structs(owned, node))
    found: Object = remove(merged, fields.difference(all_fields, kept), schema) or {}
    return found


# --- kubectl's annotation


def _allowed_by_last_applied(live: Object, schema: Schema) -> FieldSet | None:
    """Fields that kubectl's client-side apply set, and that still are as it set them: kubectl may take them over."""
    annotation = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not annotation:
        return None
    try:
        last = orjson.loads(annotation)
        if not isinstance(last, dict) or last.get("apiVersion") != live.get("apiVersion") or faults(last, schema):
            return None
        found = fields.of(last, schema)
        for differs in fields.changed(last, live, schema):
            found = fields.difference(found, differs)
    except ValueError:
        return None
    return found


def _sync_last_applied(merged: Object, applied: Object) -> None:
    """Where kubectl's annotation is kept, let it say what was applied, so that a client-side apply may follow."""
    annotations = merged["metadata"].get("annotations")
    if not annotations or not annotations.get(LAST_APPLIED):
        return
    config = applied
    said = applied["metadata"].get("annotations")
    if said is not None:
        without = {key: value for key, value in said.items() if key != LAST_APPLIED}
        config = {**applied, "metadata": {**applied["metadata"], "annotations": without}}
    annotations = {**annotations, LAST_APPLIED: canonical(config) + "\n"}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MOST_ANNOTATION_BYTES:
        del annotations[LAST_APPLIED]
    merged["metadata"]["annotations"] = annotations


# --- The wire


def _without_managers(obj: Object) -> Object:
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _described(obj: Object) -> str:
    metadata, kind = obj.get("metadata") or {}, kind_of(obj)
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.group}/{kind.version}, Kind={kind.name}"


def _as_stored(owned: Any) -> FieldSet:
    return owned or {}  # It was checked before it was stored.


def _decode(entries: Any, *, parse: Callable[[Any], FieldSet] = _as_stored) -> _Managed:
    """Raises ValueError where an entry is none."""
    found: _Managed = {}
    for number, entry in enumerate(entries or ()):
        operation, api_version = entry.get("operation", ""), entry.get("apiVersion", "")
        if operation not in ("Apply", "Update"):
            raise ValueError("operation must be `Apply` or `Update`")
        if not api_version:
            raise ValueError("apiVersion must not be empty")
        fields_type = entry.get("fieldsType", "")
        if fields_type != "FieldsV1":
            what = f"invalid fieldsType {quoted(fields_type)}" if fields_type else "missing fieldsType"
            raise ValueError(f"{what} in managed fields entry {number}")
        manager = _Manager(
            entry.get("manager", ""),
            operation,
            api_version if operation == "Update" else "",
            entry.get("subresource", ""),
        )
        found[manager] = _Owned(parse(entry.get("fieldsV1")), api_version, entry.get("time") or "", entry)
    return found


def _write(obj: Object, managed: _Managed) -> None:
    metadata = obj["metadata"]
    if not managed:
        metadata.pop("managedFields", None)
        return
    order = sorted(managed, key=lambda m: (m.operation, managed[m].time, m.name, managed[m].api_version, m.subresource))
    metadata["managedFields"] = [managed[manager].wire or _encode(manager, managed[manager]) for manager in order]


def _encode(manager: _Manager, entry: _Owned) -> Object:
    wire: Object = {"manager": manager.name} if manager.name else {}
    wire["operation"] = manager.operation
    wire["apiVersion"] = entry.api_version
    if entry.time:
        wire["time"] = entry.time
    wire["fieldsType"] = "FieldsV1"
    wire["fieldsV1"] = fields.ordered(entry.owned)
    if manager.subresource:
        wire["subresource"] = manager.subresource
    return wire
