"""The strategy of each built-in kind, and what Kubernetes 1.36 drops of it, by the name of the kind."""

from __future__ import annotations

from functools import cache

from pinnace.kinds.catalog import ROWS, resources
from pinnace.kinds.definitions import Definitions
from pinnace.kinds.runtime_config import RuntimeConfig
from pinnace.model.objects import Object
from pinnace.model.resources import Resource, Strategy

STRATEGIES: dict[str, Strategy] = {row.name: row.strategy for row in ROWS}


def drop_disabled(kind: str, new: Object, old: Object | None) -> None:
    """Drop the fields of features that are off, as the server does before the strategy prepares an object."""
    inert = _stored()[kind].inert
    if inert is not None and inert.drop is not None:
        inert.drop(new, old)


@cache
def _stored() -> dict[str, Resource]:
    served = resources(Definitions.load("1.36"), old_versions=False, runtime_config=RuntimeConfig({"api/all": True}))
    return {resource.kind.name: resource for resource in served if resource.kind == resource.stored}
