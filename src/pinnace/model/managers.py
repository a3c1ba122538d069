"""Who owns which field: metadata.managedFields after every write, and server-side apply.

Pure functions over plain objects. `live` and `applied` are never changed; what is returned shares parts with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import orjson

from pinnace.model.causes import Cause
from pinnace.model.errors import ApiError, ApplyConflict, BadRequest
from pinnace.model.last_applied import allowed_by_last_applied, sync_last_applied
from pinnace.model.manager_entries import Managed, Manager, Owned, capped, decode, without_entries, write, written
from pinnace.model.objects import Object, kind_of
from pinnace.schema import fields
from pinnace.schema.changes import Changes, Outline, changed, of, outline, settled, with_structs
from pinnace.schema.fields import FieldSet, Path
from pinnace.schema.merge import faults, merge, remove, told
from pinnace.schema.shape import Schema
from pinnace.schema.structure import structure

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
_IDENTITY = frozenset(element for element in _STRIPPED if element != "f:metadata")
_IDENTITY_IN_METADATA = frozenset((*_STRIPPED["f:metadata"], "."))

_BLANKS: tuple[Object, ...] = ({}, {"metadata": {}})
"""Beside these, who makes an object comes to own all that it has: no values need be compared."""
_MOST_OUTLINES = 64
_LONGEST_OUTLINE = 8 * 1024

Tracked = Callable[[FieldSet], FieldSet]
"""Of a set of fields, those that a write through this URL can change, and so can come to own."""


def everything_tracked(found: FieldSet) -> FieldSet:
    return found


def ignoring(*paths: tuple[str, ...]) -> Tracked:
    """All but these paths and what is below them: ignoring(("status",)) is right for most main URLs."""
    ignored = fields.of_paths(*(tuple(f"f:{name}" for name in path) for path in paths))

    def tracked(found: FieldSet) -> FieldSet:
        return found if ignored.keys().isdisjoint(found) else fields.recursive_difference(found, ignored)

    return tracked


def only(*names: str) -> Tracked:
    """Nothing but these top-level fields: only("status") is right for the status of custom resources."""
    elements = tuple(f"f:{name}" for name in names)
    return lambda found: {element: found[element] for element in elements if element in found}


class ApplyFailed(ApiError):
    """The applied configuration does not fit the schema."""

    code, reason = 500, ""


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
    """An object in another version; its own apiVersion says which one it is in. May not change what it is given."""
    blank: Object | None = None
    """The object before it is created, where more is known of it than the schema says."""
    made: dict[Outline, FieldSet] = field(default_factory=dict, compare=False, repr=False)
    """What those who made objects came to own, by the outlines of these objects: some that were met lately."""

    def schema_of(self, api_version: str) -> Schema | None:
        return self.schema if api_version == self.api_version else self.schema_for(api_version)

    def empty(self) -> Object:
        """The object before it is created: who only says again what is there already comes to own nothing."""
        return structure(self.schema).empty if self.blank is None else self.blank

    def in_version(self, obj: Object, api_version: str) -> Object:
        if obj.get("apiVersion", self.api_version) == api_version:
            return obj
        return {**self.convert(obj, api_version), "apiVersion": api_version}

    def changes(self, old: Object, new: Object, api_version: str) -> Changes | None:
        """What a write changes, as seen in one version; None where that version is unknown."""
        schema = self.schema_of(api_version)
        if schema is None:
            return None
        if api_version != self.api_version:
            old, new = self.in_version(old, api_version), self.in_version(new, api_version)
        found = changed(old, new, schema)
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
        if not managed:
            _own_alone(new, ownership, manager=manager, now=now)
            return
        managed = _updated(live, new, managed, ownership, manager=manager, now=now)
    except (ValueError, RecursionError):
        return  # Not comparable: validation is about to refuse it, or else nobody tracks it.
    write(new, managed)


@fields.refusing_depth
def apply(
    live: Object | None, applied: Object, ownership: Ownership, *, manager: str, now: str, force: bool = False
) -> Object:
    """`live` after `applied` is laid over it: server-side apply. `live` is None where there is no such object yet.

    What this manager applied before and does not now is removed, if nobody else owns it. An object that does not change
    keeps its time. Like an object from a client, the result may hold nulls.

    Raises ApplyConflict where another manager owns a field that would change, unless by `force`, which takes it;
    BadRequest or ApplyFailed for what cannot be applied; ValueError for depth beyond reason.
    """
    if (applied.get("metadata") or {}).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    found = faults(applied, ownership.schema)
    if found:
        raise ApplyFailed(f"failed to create typed patch object ({_described(applied)}): {told(found)}")
    try:
        managed = decode((live or {}).get("metadata", {}).get("managedFields"))
    except ValueError as fault:
        raise ApplyFailed(f"failed to decode managed fields: {fault}") from None
    # What is made of nothing is changed further by who asked for it, and the next must find nothing again.
    before = without_entries(live) if live is not None else copy.deepcopy(ownership.empty())
    me = Manager(manager, "Apply", "", ownership.subresource)
    try:
        if not managed and live is not None:
            managed = _updated(None, before, {}, ownership, manager="before-first-apply", now=now)
        merged, managed = _applied(before, applied, managed, ownership, me=me, force=force)
    except _Conflicts as conflicts:
        allowed = allowed_by_last_applied(before, ownership.schema) if manager == "kubectl" else None
        if allowed is None:
            raise conflicts.as_error() from None
        left = _Conflicts([(who, path) for who, path in conflicts.found if not fields.contains(allowed, path)])
        if left.found:
            raise left.as_error() from None
        merged, managed = _applied(before, applied, managed, ownership, me=me, force=True)
    except ValueError as fault:
        raise ApplyFailed(f"failed to merge config: {fault}") from None
    if me in managed:
        kept = fields.difference(managed[me].owned, _STRIPPED)
        if kept:
            managed[me] = managed[me].holding(kept)
        else:
            del managed[me]
    if merged != before and me in managed:
        managed[me] = replace(managed[me], time=now, wire=None)
    metadata = merged.get("metadata") or {}
    merged = {**merged, "metadata": {key: value for key, value in metadata.items() if value is not None}}
    if manager == "kubectl":
        sync_last_applied(merged, applied)
    write(merged, managed)
    return merged


def keep_times(live: Object, new: Object) -> None:
    """Give `new` the managedFields of `live` where nothing but their times differs: then there is nothing to store."""
    old_entries, new_entries = live["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not old_entries or not new_entries or old_entries == new_entries or len(old_entries) != len(new_entries):
        return
    if [{**entry, "time": ""} for entry in old_entries] != [{**entry, "time": ""} for entry in new_entries]:
        return
    if without_entries(live) == without_entries(new):
        new["metadata"]["managedFields"] = old_entries


# --- Updates


def _managed_of_request(live: Object | None, new: Object, ownership: Ownership) -> Managed:
    """The managers that the client says there are, or those of the live object where it says nothing useful."""
    entries = new["metadata"].get("managedFields")
    current = live["metadata"].get("managedFields") if live is not None else None
    if not ownership.subresource and entries is not None and entries != current:
        if not entries or entries == [{}]:
            return {}
        try:
            return decode(entries, parse=fields.parse)
        except ValueError:
            pass
    try:
        return decode(current)
    except ValueError:
        return {}


def _updated(
    live: Object | None, new: Object, managed: Managed, ownership: Ownership, *, manager: str, now: str
) -> Managed:
    old = without_entries(live) if live is not None else ownership.empty()
    managed = _settled(managed, ownership)
    changes = ownership.changes(old, new, ownership.api_version)
    assert changes is not None  # Its own version is always known.
    left = _given_up(old, new, managed, ownership, changes, me=None)
    mine = fields.difference(fields.union(changes.modified, changes.added), _STRIPPED)
    if mine:
        me = Manager(manager or "unknown", "Update", ownership.api_version, ownership.subresource)
        if me in left:
            mine = fields.union(mine, left[me].owned)
        left[me] = Owned(mine, ownership.api_version, now)
    return capped(left)


def _own_alone(new: Object, ownership: Ownership, *, manager: str, now: str) -> None:
    """What `_updated` and `write` come to for an object that is made by one manager: most creates."""
    before = ownership.empty()
    mine = _remembered(before, new, ownership) if before in _BLANKS else fields.ordered(_made(before, new, ownership))
    if mine:
        me = Manager(manager or "unknown", "Update", ownership.api_version, ownership.subresource)
        new["metadata"]["managedFields"] = [written(me, mine, api_version=ownership.api_version, time=now)]


def _made(before: Object, new: Object, ownership: Ownership) -> FieldSet:
    changes = ownership.changes(before, new, ownership.api_version)
    assert changes is not None  # Its own version is always known.
    return _without_identity(fields.union(changes.modified, changes.added) if changes.modified else changes.added)


def _remembered(before: Object, new: Object, ownership: Ownership) -> FieldSet:
    """`_made`, in order. Objects of one kind mention the same few selections of its fields again and again."""
    known = ownership.made
    shape = outline(structure(ownership.schema), new)
    mine = known.get(shape)
    if mine is None:
        mine = fields.ordered(_made(before, new, ownership))
        if len(orjson.dumps(shape)) <= _LONGEST_OUTLINE:
            if len(known) >= _MOST_OUTLINES:
                known.clear()
            known[shape] = mine
    return mine


def _without_identity(found: FieldSet) -> FieldSet:
    """The difference to `_STRIPPED`, whose members are all leaves."""
    mine = {element: below for element, below in found.items() if element not in _IDENTITY}
    metadata = mine.get("f:metadata")
    if metadata is not None:
        kept = {element: below for element, below in metadata.items() if element not in _IDENTITY_IN_METADATA}
        if kept:
            mine["f:metadata"] = kept
        else:
            del mine["f:metadata"]
    return mine


def _settled(managed: Managed, ownership: Ownership) -> Managed:
    """Without the entries of versions that are gone, and with sets that fit the schemas of today."""
    found: Managed = {}
    for manager, entry in managed.items():
        schema = ownership.schema_of(entry.api_version)
        if schema is not None and schema.name:
            found[manager] = entry
        elif schema is not None:  # Only custom kinds change their schemas while there are objects of them.
            found[manager] = entry.holding(settled(entry.owned, structure(schema)))
    return found


def _given_up(
    old: Object, new: Object, managed: Managed, ownership: Ownership, changes: Changes, *, me: Manager | None
) -> Managed:
    """The managers after those but `me` have lost what changed. With `me`, see also `_conflicts`."""
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
            owned = fields.difference(owned, lost)
        if owned:
            left[manager] = entry.holding(owned)
    if me in left and not left[me].owned:
        del left[me]
    return left


# --- Apply


class _Conflicts(Exception):
    def __init__(self, found: list[tuple[Manager, Path]]) -> None:
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
    live: Object, applied: Object, managed: Managed, ownership: Ownership, *, me: Manager, force: bool
) -> tuple[Object, Managed]:
    """One round of apply: the merged object and its managers. Raises _Conflicts."""
    managed = _settled(managed, ownership)
    last = managed.get(me)
    merged: Object = merge(live, applied, ownership.schema)
    mine = ownership.tracked(of(applied, ownership.schema))
    time = last.time if last is not None else ""
    entry = Owned(mine, ownership.api_version, time)
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
    old: Object, new: Object, managed: Managed, ownership: Ownership, changes: Changes, *, me: Manager
) -> Iterable[tuple[Manager, Path]]:
    for manager, entry in managed.items():
        if manager == me:
            continue
        is_mine = entry.api_version == ownership.api_version
        seen = changes if is_mine else ownership.changes(old, new, entry.api_version)
        if seen is not None:
            contested = fields.intersection(entry.owned, fields.union(seen.modified, seen.added))
            for path in fields.paths(contested):
                yield manager, path


def _pruned(merged: Object, managed: Managed, last: Owned, ownership: Ownership) -> Object:
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
    here = ownership.in_version(merged, last.api_version)
    dropped = with_structs(last.owned, node)
    pruned = remove(here, dropped, schema) or {}
    for version in sorted(by_version, key=lambda version: version != last.api_version):
        pruned = _with_owned_back(here, pruned, by_version[version], ownership, version)
    pruned = ownership.in_version(pruned, last.api_version)
    gone = fields.difference(with_structs(of(here, schema), node), with_structs(of(pruned, schema), node))
    left: Object = remove(here, fields.intersection(gone, dropped), schema) or {}
    return ownership.in_version(left, ownership.api_version)


def _with_owned_back(merged: Object, pruned: Object, owned: FieldSet, ownership: Ownership, version: str) -> Object:
    """The merged object without what was pruned, but for what is owned in this version; in this version."""
    schema = ownership.schema_of(version)
    if schema is None:
        return pruned
    node = structure(schema)
    merged, pruned = ownership.in_version(merged, version), ownership.in_version(pruned, version)
    all_fields = with_structs(of(merged, schema), node)
    kept = fields.union(with_structs(of(pruned, schema), node), with_structs(owned, node))
    found: Object = remove(merged, fields.difference(all_fields, kept), schema) or {}
    return found


def _described(obj: Object) -> str:
    metadata, kind = obj.get("metadata") or {}, kind_of(obj)
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.group}/{kind.version}, Kind={kind.name}"
