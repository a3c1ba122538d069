"""Writes into the status of validating policies what their expressions get wrong about the kinds they are about."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.admission.policies.type_checks import type_warnings
from pinnace.cluster.status.writer import StatusWriter
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.server.cache.fanout import Fanout
from pinnace.store import store as stores

_MOST_KINDS = 10


class PolicyStatuses:
    """Each generation is looked at once."""

    def __init__(self, fanout: Fanout, store: stores.Store, registry: Registry, resource: Resource) -> None:
        self._registry = registry
        writer = StatusWriter(fanout, store, resource, self._status)
        fanout.on_change(resource.prefix, lambda event: writer.note(event.key))

    def _status(self, key: str, policy: Object) -> Object | None:
        if _is_known(policy):
            return None
        warnings = type_warnings(policy, self._kinds(policy))
        status = {**(policy.get("status") or {}), "observedGeneration": policy["metadata"].get("generation", 1)}
        status["typeChecking"] = {"expressionWarnings": warnings} if warnings else {}
        return status

    def _kinds(self, policy: Object) -> Iterator[Resource]:
        """Those that are named; who means everything is not held to anything."""
        found: dict[object, Resource] = {}
        constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
        for rule in constraints.get("resourceRules") or ():
            for group in rule.get("apiGroups") or ():
                for version in rule.get("apiVersions") or ():
                    for plural in rule.get("resources") or ():
                        resource = self._registry.find(group, version, plural)
                        if resource is not None:
                            found[resource.kind] = resource
        yield from list(found.values())[:_MOST_KINDS]


def _is_known(policy: Object) -> bool:
    status = policy.get("status") or {}
    return "typeChecking" in status and status.get("observedGeneration") == policy["metadata"].get("generation", 1)
