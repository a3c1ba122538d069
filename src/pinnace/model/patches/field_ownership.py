"""Rules of field ownership: which fields have managers, in which version they are read, and what a write changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pinnace.model.objects import Object
from pinnace.model.patches.managed_field_entries import FieldManager, Managed
from pinnace.schema.merge import field_sets
from pinnace.schema.merge.changes import Changes, Outline, collapse_atomic, find_changes
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


def track_everything(found: FieldSet) -> FieldSet:
    return found


def ignoring(*paths: tuple[str, ...]) -> Tracked:
    """Exclude these paths and everything below: ignoring(("status",)) fits most main URLs."""
    ignored = field_sets.of_paths(*(tuple(f"f:{name}" for name in path) for path in paths))

    def tracked(found: FieldSet) -> FieldSet:
        return found if ignored.keys().isdisjoint(found) else field_sets.recursive_difference(found, ignored)

    return tracked


def only(*names: str) -> Tracked:
    """Include only these top-level fields: only("status") fits the status of custom resources."""
    elements = tuple(f"f:{name}" for name in names)
    return lambda found: {element: found[element] for element in elements if element in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The rules for the fields of one kind at one URL, for updates and applies."""

    schema: Schema
    api_version: str
    subresource: str = ""
    tracked: Tracked = track_everything
    schema_for: Callable[[str], Schema | None] = lambda api_version: None
    """Return the schema of this kind in another version; None if it is no longer served: its entries are dropped."""
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
        found = find_changes(old, new, schema)
        return Changes(*map(self.tracked, found)) if self.tracked is not track_everything else found


def current_entries(managed: Managed, ownership: Ownership) -> Managed:
    """Drop entries of versions that are no longer served, and adapt the sets to the current schemas."""
    found: Managed = {}
    for manager, entry in managed.items():
        schema = ownership.schema_of(entry.api_version)
        if schema is not None and schema.name:
            found[manager] = entry
        elif schema is not None:  # Only custom kinds change their schemas while objects of them exist.
            found[manager] = entry.holding(collapse_atomic(entry.owned, structure(schema)))
    return found


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
