"""The common ground of all parts of the server: kinds, store, caches, clock and supervisor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pinnace.kinds.definitions import Definitions
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.process.clock import AlarmClock
from pinnace.process.supervisor import Supervisor
from pinnace.serving.cache.fanout import Fanout
from pinnace.store.store import Store


class CachedObjects:
    """The objects below one prefix, decoded when they are asked for."""

    def __init__(self, fanout: Fanout, prefix: str) -> None:
        self._fanout = fanout
        self._prefix = prefix

    def get(self, key: str) -> Object | None:
        entry = self._fanout.cache(self._prefix).entries.get(key)
        return entry.decode() if entry is not None else None

    def items(self) -> Iterator[tuple[str, Object]]:
        for key, entry in list(self._fanout.cache(self._prefix).entries.items()):
            yield key, entry.decode()

    def in_namespace(self, namespace: str) -> Iterator[tuple[str, Object]]:
        cache = self._fanout.cache(self._prefix)
        for key in cache.keys_of(namespace):
            yield key, cache.entries[key].decode()

    def on_change(self, changed: Callable[[str], None]) -> None:
        self._fanout.on_change(self._prefix, lambda event: changed(event.key))


@dataclass(frozen=True, slots=True)
class Foundation:
    """Handed to the builders of all other parts."""

    definitions: Definitions
    registry: Registry
    store: Store
    fanout: Fanout
    clock: AlarmClock
    supervisor: Supervisor
    gates: FeatureGates

    def objects(self, group: str, plural: str) -> CachedObjects:
        """Return the cached objects of a built-in resource."""
        return CachedObjects(self.fanout, f"/registry/{group or 'core'}/{plural}/")

    def stored_resource(self, group: str, plural: str) -> Resource:
        """Return the resource in the version that is stored. Raise LookupError if this minor does not have it."""
        for resource in self.registry:
            if (resource.group, resource.plural) == (group, plural) and resource.kind == resource.stored:
                return resource
        raise LookupError(f"Kubernetes {self.definitions.minor} has no {plural}.{group}; check the name")
