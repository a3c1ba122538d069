"""The rules by which fields are owned: which can be, in which versions they are seen, and what a write changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pinnace.model.objects import Object
from pinnace.model.patches.managed_field_entries import Managed, Manager
from pinnace.schema.merge import field_sets
from pinnace.schema.merge.changes import Changes, Outline, changed, settled
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
"""What says who an object is belongs to nobody."""

Tracked = Callable[[FieldSet], FieldSet]
"""Of a set of fields, those that a write through this URL can change, and so can come to own."""


def track_everything(found: FieldSet) -> FieldSet:
    return found


def ignoring(*paths: tuple[str, ...]) -> Tracked:
    """All but these paths and what is below them: ignoring(("status",)) is right for most main URLs."""
    ignored = field_sets.of_paths(*(tuple(f"f:{name}" for name in path) for path in paths))

    def tracked(found: FieldSet) -> FieldSet:
        return found if ignored.keys().isdisjoint(found) else field_sets.recursive_difference(found, ignored)

    return tracked


def only(*names: str) -> Tracked:
    """Nothing but these top-level fields: only("status") is right for the status of custom resources."""
    elements = tuple(f"f:{name}" for name in names)
    return lambda found: {element: found[element] for element in elements if element in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The rules by which the fields of one kind are owned, at one URL: what both kinds of write need to know."""

    schema: Schema
    api_version: str
    subresource: str = ""
    tracked: Tracked = track_everything
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
        return Changes(*map(self.tracked, found)) if self.tracked is not track_everything else found


def current_entries(managed: Managed, ownership: Ownership) -> Managed:
    """Without the entries of versions that are gone, and with sets that fit the schemas of today."""
    found: Managed = {}
    for manager, entry in managed.items():
        schema = ownership.schema_of(entry.api_version)
        if schema is not None and schema.name:
            found[manager] = entry
        elif schema is not None:  # Only custom kinds change their schemas while there are objects of them.
            found[manager] = entry.holding(settled(entry.owned, structure(schema)))
    return found


def given_up(
    old: Object, new: Object, managed: Managed, ownership: Ownership, changes: Changes, *, me: Manager | None
) -> Managed:
    """The managers after those but `me` have lost what changed. What `me` applies is settled by conflicts."""
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
