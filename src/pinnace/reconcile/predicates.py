"""Predicates that select the changes that need a reconcile, for `for_`, `owns` and `watches`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import AnyObject

Predicate = Callable[[Any, Any], bool]
"""Called with the old and the new object: old is None for a new one, new for a deleted one."""

EncodedPredicate = Callable[[Snapshot | None, Snapshot | None], bool]
"""The same for objects that are not decoded, for kinds whose status changes often."""


class _WithSpec(msgspec.Struct, gc=False):
    spec: msgspec.Raw = msgspec.Raw()


_decode_spec = msgspec.json.Decoder(_WithSpec).decode


def spec_changed(old: Snapshot | None, new: Snapshot | None) -> bool:
    """Return whether the spec is encoded in another way. New and deleted objects count as changed."""
    if old is None or new is None:
        return True
    return bytes(_decode_spec(old.body).spec) != bytes(_decode_spec(new.body).spec)


def generation_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Return whether the generation has changed: anything but metadata and status, or the start of a deletion.

    New and deleted objects count as changed.
    """
    if old is None or new is None:
        return True
    return bool(old["metadata"].get("generation") != new["metadata"].get("generation"))


def labels_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Return whether the labels have changed. New and deleted objects count as changed."""
    return _differs(old, new, "labels")


def annotations_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Return whether the annotations have changed. New and deleted objects count as changed."""
    return _differs(old, new, "annotations")


def _differs(old: AnyObject | None, new: AnyObject | None, field: str) -> bool:
    if old is None or new is None:
        return True
    return bool((old["metadata"].get(field) or {}) != (new["metadata"].get(field) or {}))
