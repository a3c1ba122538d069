"""Which changes are worth a reconcile: functions of the old object and the new, for `for_`, `owns` and `watches`."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.model.objects import Object

Predicate = Callable[[Object | None, Object | None], bool]
"""Old is None for what is new, new is None for what is gone."""


def generation_changed(old: Object | None, new: Object | None) -> bool:
    """What is wanted has changed: anything but metadata and status. What comes and goes counts, too, and a deletion
    that has begun, which is a new generation."""
    if old is None or new is None:
        return True
    return bool(old["metadata"].get("generation") != new["metadata"].get("generation"))


def labels_changed(old: Object | None, new: Object | None) -> bool:
    return _differs(old, new, "labels")


def annotations_changed(old: Object | None, new: Object | None) -> bool:
    return _differs(old, new, "annotations")


def _differs(old: Object | None, new: Object | None, field: str) -> bool:
    if old is None or new is None:
        return True
    return bool((old["metadata"].get(field) or {}) != (new["metadata"].get(field) or {}))
