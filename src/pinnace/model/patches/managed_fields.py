"""The owners of fields: metadata.managedFields after every write except an apply.

Pure functions over plain objects. `live` is never changed; results share parts with it.
"""

from __future__ import annotations

import orjson

from pinnace.model.objects import Object
from pinnace.model.patches.field_ownership import OF_NOBODY, Ownership, current_entries, given_up
from pinnace.model.patches.managed_field_entries import (
    FieldManager,
    Managed,
    OwnedFields,
    cap_managers,
    decode,
    without_entries,
    write,
    written,
)
from pinnace.schema.merge import field_sets
from pinnace.schema.merge.changes import OutlineTooLong, outline
from pinnace.schema.merge.field_sets import FieldSet
from pinnace.schema.merge.structure import structure

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


def keep_times(live: Object, new: Object) -> None:
    """Give `new` the managedFields of `live` if only their times differ: then there is nothing to store."""
    old_entries, new_entries = live["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not old_entries or not new_entries or old_entries == new_entries or len(old_entries) != len(new_entries):
        return
    if [{**entry, "time": ""} for entry in old_entries] != [{**entry, "time": ""} for entry in new_entries]:
        return
    if without_entries(live) == without_entries(new):
        new["metadata"]["managedFields"] = old_entries


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


def _without_identity(found: FieldSet) -> FieldSet:
    """Return the difference to `OF_NOBODY`, whose members are all leaves."""
    mine = {element: below for element, below in found.items() if element not in _IDENTITY}
    metadata = mine.get("f:metadata")
    if metadata is not None:
        kept = {element: below for element, below in metadata.items() if element not in _IDENTITY_IN_METADATA}
        if kept:
            mine["f:metadata"] = kept
        else:
            del mine["f:metadata"]
    return mine
