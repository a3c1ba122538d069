"""Finds writes that change nothing: they are answered with the stored object, without a new revision."""

from __future__ import annotations

from pinnace.model.objects import Object

_NAMES_OF_KIND = frozenset(("kind", "apiVersion"))


def is_unchanged(new: Object, old: Object | None) -> bool:
    """Whether two objects are equal, except for revisions and the times of field managers."""
    if old is None or new.keys() - _NAMES_OF_KIND != old.keys() - _NAMES_OF_KIND:
        return False
    for name, value in new.items():
        if name not in _NAMES_OF_KIND and name != "metadata" and value != old[name]:
            return False
    before, after = dict(old["metadata"]), dict(new["metadata"])
    owned_before, owned_after = before.pop("managedFields", []), after.pop("managedFields", [])
    before.pop("resourceVersion", None)
    after.pop("resourceVersion", None)
    return before == after and [_timeless(one) for one in owned_before] == [_timeless(one) for one in owned_after]


def _timeless(entry: Object) -> Object:
    return {name: value for name, value in entry.items() if name != "time"}
