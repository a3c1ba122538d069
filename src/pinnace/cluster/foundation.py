"""The common ground of all parts of the server: kinds, store, caches, clock and supervisor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_network

from pinnace.cluster.cached_objects import CachedObjects
from pinnace.cluster.health.supervisor import Supervisor
from pinnace.cluster.settings import Settings
from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.services.strategy import service_strategy
from pinnace.kinds.services.types import DEFAULT_FAMILIES
from pinnace.model.clock import AlarmClock
from pinnace.model.resources import Registry, Resource
from pinnace.server.cache.fanout import Fanout
from pinnace.store.store import Store


@dataclass(frozen=True, slots=True)
class Foundation:
    """Handed to the builders of all other parts."""

    definitions: Definitions
    registry: Registry
    store: Store
    fanout: Fanout
    clock: AlarmClock
    supervisor: Supervisor

    def objects(self, group: str, plural: str) -> CachedObjects:
        """Return the cached objects of a built-in resource."""
        return CachedObjects(self.fanout, f"/registry/{group or 'core'}/{plural}/")

    def stored_resource(self, group: str, plural: str) -> Resource:
        """Return the resource in the version that is stored. Raise LookupError if this minor does not have it."""
        for resource in self.registry:
            if (resource.group, resource.plural) == (group, plural) and resource.kind == resource.stored:
                return resource
        raise LookupError(f"Kubernetes {self.definitions.minor} has no {plural}.{group}; check the name")

    def is_since(self, minor: int) -> bool:
        """Whether the served Kubernetes is 1.`minor` or later."""
        return int(self.definitions.minor.partition(".")[2]) >= minor


async def lay_foundation(settings: Settings, store: Store, clock: AlarmClock) -> Foundation:
    """Load the definitions of the kinds, and all stored objects into the watch caches."""
    definitions, registry = _kinds(settings)
    fanout = Fanout(store)
    await fanout.load()
    return Foundation(definitions, registry, store, fanout, clock, Supervisor(clock))


def fork_foundation(settings: Settings, store: Store, fanout: Fanout, clock: AlarmClock) -> Foundation:
    """Return the foundation over a fork of a store and of its caches."""
    definitions, registry = _kinds(settings)
    return Foundation(definitions, registry, store, fanout, clock, Supervisor(clock))


def _kinds(settings: Settings) -> tuple[Definitions, Registry]:
    definitions, resources = _built_in(settings.kubernetes_version or minors()[-1], old_versions=settings.old_versions)
    registry = Registry(resources)
    families = tuple(f"IPv{ip_network(text).version}" for text in settings.service_ranges)
    services = registry.find("", "v1", "services")
    if services is not None and families != DEFAULT_FAMILIES:
        registry.add(replace(services, strategy=service_strategy(families)))
    return definitions, registry


@lru_cache(maxsize=4)
def _built_in(minor: str, *, old_versions: bool) -> tuple[Definitions, tuple[Resource, ...]]:
    """Return the built-in kinds, which all clusters of a process share: to read them takes longer than all else."""
    definitions = Definitions.load(minor)
    return definitions, tuple(catalog.resources(definitions, old_versions=old_versions))
