"""Server-side apply: merge an applied configuration into an object and record its field manager as owner.

Pure functions over plain objects. `live` and `applied` are never changed; results share parts with them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from pinnace.model.errors import SECRET, ApiError, ApplyConflict, BadRequest, without_values
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object, kind_of
from pinnace.model.patches.last_applied import fields_of_last_applied, sync_last_applied
from pinnace.model.patches.managed_fields import (
    OF_NOBODY,
    FieldManager,
    Managed,
    OwnedFields,
    Ownership,
    UnknownVersion,
    current_entries,
    decode,
    given_up,
    updated,
    without_entries,
    write,
)
from pinnace.schema.merge import field_sets
from pinnace.schema.merge.changes import Changes, of, with_structs
from pinnace.schema.merge.field_sets import FieldSet, Path
from pinnace.schema.merge.merge import errs, join_errors, merge, remove
from pinnace.schema.merge.structure import structure

_IDENTITY = ("namespace", "name")


class ApplyFailed(ApiError):
    """The applied configuration does not fit the schema."""

    code, reason = 500, ""


@field_sets.refusing_depth
def apply(
    live: Object | None, applied: Object, ownership: Ownership, *, manager: str, now: str, force: bool = False
) -> Object:
    """Apply `applied` to `live`, which is None if the object does not exist yet.

    Fields that this manager applied before and does not apply now are removed, unless another manager owns them. An
    object that does not change keeps its timestamp. The result may contain nulls, like an object from a client.

    Raise ApplyConflict if another manager owns a field that would change, unless `force` is set; BadRequest or
    ApplyFailed for an invalid configuration; ValueError for excessive depth.
    """
    if metadata_of(applied).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    errors_of_patch = errs(applied, ownership.schema)
    if errors_of_patch:
        errors_of_patch = without_values(errors_of_patch) if kind_of(applied) == SECRET else errors_of_patch
        raise ApplyFailed(f"failed to create typed patch object ({described(applied)}): {join_errors(errors_of_patch)}")
    try:
        managed = decode((live or {}).get("metadata", {}).get("managedFields"))
    except ValueError as err:
        raise ApplyFailed(f"failed to decode managed fields: {err}") from None
    # The caller changes the new object further, and the cached empty one must stay empty.
    before = without_entries(live) if live is not None else copy.deepcopy(ownership.empty())
    me = FieldManager(manager, "Apply", "", ownership.subresource)
    try:
        if not managed and live is not None:
            managed = updated(None, before, {}, ownership, manager="before-first-apply", now=now)
        merged, managed = _apply(before, applied, managed, ownership, me=me, force=force)
    except _Conflicts as conflicts:
        allowed = fields_of_last_applied(before, ownership.schema) if manager == "kubectl" else None
        if allowed is None:
            raise conflicts.as_error() from None
        left = _Conflicts([(who, path) for who, path in conflicts.owners if not field_sets.contains(allowed, path)])
        if left.owners:
            raise left.as_error() from None
        merged, managed = _apply(before, applied, managed, ownership, me=me, force=True)
    except UnknownVersion as err:
        raise ApplyFailed(str(err)) from None
    except ValueError as err:
        raise ApplyFailed(f"failed to merge config: {err}") from None
    if me in managed:
        _settle(managed, me, time=now if merged != before else "")
    metadata = merged.get("metadata") or {}
    merged = {**merged, "metadata": {key: value for key, value in metadata.items() if value is not None}}
    if manager == "kubectl":
        sync_last_applied(merged, applied)
    write(merged, managed)
    return merged


class _Conflicts(Exception):
    def __init__(self, conflicts: list[tuple[FieldManager, Path]]) -> None:
        self.owners = sorted(conflicts, key=lambda conflict: conflict[0].sort_key)

    def as_error(self) -> ApplyConflict:
        causes = [
            FieldError(field_sets.format_path(path), "FieldManagerConflict", f"conflict with {manager}")
            for manager, path in self.owners
        ]
        if len(causes) == 1:
            return ApplyConflict(f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}", causes)
        lines: list[str] = []
        headings: set[str] = set()
        for cause in causes:
            heading = f"conflicts{cause.message.removeprefix('conflict')}:"
            if heading not in headings:
                headings.add(heading)
                lines.append(heading)
            lines.append(f"- {cause.field}")
        return ApplyConflict(f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines), causes)


def _apply(
    live: Object, applied: Object, managed: Managed, ownership: Ownership, *, me: FieldManager, force: bool
) -> tuple[Object, Managed]:
    """Merge once: return the merged object and its managers. Raise _Conflicts."""
    managed = current_entries(managed, ownership)
    last = managed.get(me)
    merged: Object = merge(live, applied, ownership.schema)
    mine = ownership.tracked(of(applied, ownership.schema))
    time = last.time if last is not None else ""
    is_same = last is not None and last.api_version == ownership.api_version and last.owned == _strip(mine)
    managed = {**managed, me: OwnedFields(mine, ownership.api_version, time, last.wire if is_same and last else None)}
    if last is not None and not is_same:
        merged = _prune(merged, managed, last, ownership)
    if len(managed) == 1:
        return merged, managed  # There is no other manager.
    changes = ownership.changes(live, merged, ownership.api_version)
    assert changes is not None  # Its own version is always known.
    if not force:
        conflicts = list(_conflicts(live, merged, managed, ownership, changes, me=me))
        if conflicts:
            raise _Conflicts(conflicts)
    return merged, given_up(live, merged, managed, ownership, changes, me=me)


def _settle(managed: Managed, me: FieldManager, *, time: str) -> None:
    """Record the applier's fields, with `time` if something has changed."""
    owned, api_version, last_time, wire = managed[me]
    kept = _strip(owned)
    if not kept:
        del managed[me]
        return
    if time:
        # A repeated apply has an entry with the same fields: only the time differs.
        wire = {**wire, "time": time} if wire is not None and "time" in wire else None
    managed[me] = OwnedFields(kept, api_version, time or last_time, wire)


def _strip(owned: FieldSet) -> FieldSet:
    return field_sets.difference(owned, OF_NOBODY)


def _conflicts(
    old: Object, new: Object, managed: Managed, ownership: Ownership, changes: Changes, *, me: FieldManager
) -> Iterable[tuple[FieldManager, Path]]:
    for manager, entry in managed.items():
        if manager == me:
            continue
        is_mine = entry.api_version == ownership.api_version
        seen = changes if is_mine else ownership.changes(old, new, entry.api_version)
        if seen is not None:
            contested = field_sets.intersection(entry.owned, field_sets.union(seen.modified, seen.added))
            for path in field_sets.paths(contested):
                yield manager, path


def _prune(merged: Object, managed: Managed, last: OwnedFields, ownership: Ownership) -> Object:
    """Remove fields that this manager applied last time, does not apply now, and no other manager owns."""
    schema = ownership.schema_of(last.api_version)
    if schema is None:
        return merged
    by_version: dict[str, FieldSet] = {}
    for entry in managed.values():
        by_version[entry.api_version] = field_sets.union(by_version.get(entry.api_version, {}), entry.owned)
    if not field_sets.difference(last.owned, by_version.get(last.api_version, {})):
        return merged
    node = structure(schema)
    here = ownership.in_version(merged, last.api_version)
    dropped = with_structs(last.owned, node)
    pruned = remove(here, dropped, schema) or {}
    for version in sorted(by_version, key=lambda version: version != last.api_version):
        pruned = _with_owned_back(here, pruned, by_version[version], ownership, version)
    pruned = ownership.in_version(pruned, last.api_version)
    gone = field_sets.difference(with_structs(of(here, schema), node), with_structs(of(pruned, schema), node))
    left: Object = remove(here, field_sets.intersection(gone, dropped), schema) or {}
    return ownership.in_version(left, ownership.api_version)


def _with_owned_back(merged: Object, pruned: Object, owned: FieldSet, ownership: Ownership, version: str) -> Object:
    """Return the merged object without pruned fields, except those owned in this version; in this version."""
    schema = ownership.schema_of(version)
    if schema is None:
        return pruned
    node = structure(schema)
    merged, pruned = ownership.in_version(merged, version), ownership.in_version(pruned, version)
    all_fields = with_structs(of(merged, schema), node)
    kept = field_sets.union(with_structs(of(pruned, schema), node), with_structs(owned, node))
    restored: Object = remove(merged, field_sets.difference(all_fields, kept), schema) or {}
    return restored


def described(obj: Object) -> str:
    namespace, name = (text if isinstance(text := metadata_of(obj).get(field), str) else "" for field in _IDENTITY)
    kind = kind_of(obj)
    return f"{namespace}/{name}; {kind.group}/{kind.version}, Kind={kind.name}"


def metadata_of(obj: Object) -> Object:
    """Return the metadata of a configuration that was not validated yet; empty if it is no object."""
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
