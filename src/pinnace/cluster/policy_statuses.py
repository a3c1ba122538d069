"""Writes into the status of validating policies what their expressions get wrong about the kinds they are about."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from pinnace.admission.expression_checks import type_warnings
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.server.fanout import Fanout
from pinnace.server.pipeline import encoded
from pinnace.store import store as stores

log = logging.getLogger(__name__)
_MOST_KINDS = 10


class PolicyStatuses:
    """Each generation is looked at once."""

    def __init__(self, fanout: Fanout, store: stores.Store, registry: Registry, resource: Resource) -> None:
        self._fanout = fanout
        self._store = store
        self._registry = registry
        self._resource = resource
        self._stale: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        fanout.on_change(resource.prefix, lambda event: self._note(event.key))

    def _note(self, key: str) -> None:
        self._stale.add(key)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._stale:
            key = self._stale.pop()
            entry = self._fanout.shelf(self._resource.prefix).entries.get(key)
            policy = entry.decode() if entry is not None else None
            if entry is None or policy is None or _is_known(policy):
                continue
            warnings = type_warnings(policy, self._kinds(policy))
            status = {**(policy.get("status") or {}), "observedGeneration": policy["metadata"].get("generation", 1)}
            status["typeChecking"] = {"expressionWarnings": warnings} if warnings else {}
            value = encoded({**policy, "status": status}, self._resource)
            try:
                await self._store.put(self._resource.prefix + key, value, expected=entry.revision)
            except stores.Conflict:
                self._stale.add(key)  # Somebody was faster: look again at what is there now.
            except stores.StoreError as problem:
                log.debug("the status of policy %s could not be written: %s", key, problem)
                return

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
