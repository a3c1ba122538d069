"""Field managers of the replicas: from the managedFields of a workload to those of its Scale, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinnace.model.objects import Object
from pinnace.model.patches.managed_field_entries import FieldManager, OwnedFields, decode, write
from pinnace.schema.merge import field_sets

SCALE_VERSION = "autoscaling/v1"
_IN_SCALE = field_sets.of_paths(("f:spec", "f:replicas"))

ReplicasIn = Callable[[str], tuple[str, ...] | None]
"""The path of the replicas in one version of a workload: () if it has none, None if the version is unknown."""


def owners_of_scale(entries: Any, replicas_in: ReplicasIn) -> list[Object]:
    """Return the entries that own the replicas, as entries of a Scale. Raise ValueError for a malformed entry."""
    found = {}
    for manager, entry in decode(entries).items():
        path = replicas_in(entry.api_version)
        if path and field_sets.contains(entry.owned, _elements(path)):
            version = SCALE_VERSION if manager.operation == "Update" else ""
            found[manager._replace(api_version=version)] = OwnedFields(_IN_SCALE, SCALE_VERSION, entry.time)
    scale: Object = {"metadata": {}}
    write(scale, found)
    return list(scale["metadata"].get("managedFields", ()))


def own_replicas(workload: Object, entries: Any, of_scale: Any, replicas_in: ReplicasIn, api_version: str) -> None:
    """Set the managedFields of a workload from the entries `of_scale` of its Scale.

    As in Kubernetes, an Update entry is identified by its version, so that the replicas of an existing manager become
    a new entry, and a new entry has no time.
    """
    before, scalers = decode(entries), decode(of_scale)
    found: dict[FieldManager, OwnedFields] = {}
    for manager, entry in before.items():
        path = replicas_in(entry.api_version)
        if path is None:
            continue
        if not path or not field_sets.contains(entry.owned, _elements(path)):
            found[manager] = entry
        elif manager in scalers:
            found[manager] = entry
            del scalers[manager]
        elif left := field_sets.difference(entry.owned, field_sets.of_paths(_elements(path))):
            found[manager] = entry.holding(left)
    here = field_sets.of_paths(_elements(replicas_in(api_version) or ()))
    for manager, entry in scalers.items():
        if field_sets.contains(entry.owned, ("f:spec", "f:replicas")):
            known = before.get(manager)
            found[manager] = OwnedFields(here, api_version, known.time if known is not None else "")
    write(workload, found)


def _elements(path: tuple[str, ...]) -> field_sets.Path:
    return tuple(f"f:{name}" for name in path)
