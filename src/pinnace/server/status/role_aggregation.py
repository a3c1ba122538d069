"""Keeps the rules of aggregated cluster roles: the union of the rules of all roles that they select."""

from __future__ import annotations

import asyncio

from pinnace.auth.authorization.rules import aggregation_selectors, choose_roles, unite_rules
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.process.clock import Clock
from pinnace.process.work_slices import DECODING, in_turns
from pinnace.server.status.managers import ROLE_AGGREGATOR, entry
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.write.edits import encode
from pinnace.store import store as stores


class RoleAggregation:
    """A background part that checks all cluster roles after every change of one; changes that come together are one."""

    def __init__(self, fanout: Fanout, store: stores.Store, cluster_roles: Resource, clock: Clock) -> None:
        self._clock = clock
        self._fanout = fanout
        self._store = store
        self._resource = cluster_roles
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Write rules until cancelled. Raise StoreError if the store takes no writes."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._aggregate()
            except BaseException:
                self._changed.set()  # The next run begins where this one failed.
                raise

    def note_change(self) -> None:
        """Check the roles again soon."""
        self._changed.set()

    async def _aggregate(self) -> None:
        entries = dict(self._fanout.cache(self._resource.prefix).entries)
        roles = {key: entry.decode() async for some in in_turns(entries.items(), cost=DECODING) for key, entry in some}
        for key, role in roles.items():
            if not aggregation_selectors(role):
                continue
            steps = in_turns(choose_roles(role, roles.values()))
            rules = unite_rules([chosen async for some in steps for chosen in some if chosen is not None])
            if rules == (role.get("rules") or []):
                continue
            value = encode(self._with_rules(role, rules), self._resource)
            try:
                await self._store.put(self._resource.prefix + key, value, expected=entries[key].revision)
            except stores.Conflict:
                continue  # The role has changed, and that change is noted.

    def _with_rules(self, role: Object, rules: list[Object]) -> Object:
        """Return a role with other rules, which belong to the controller alone: no other manager keeps them."""
        own = entry(role, {"f:rules": {}}, self._clock.now(), manager=ROLE_AGGREGATOR, operation="Apply")
        others = [
            {**other, "fieldsV1": {name: value for name, value in other["fieldsV1"].items() if name != "f:rules"}}
            for other in role["metadata"].get("managedFields") or ()
            if other["manager"] != ROLE_AGGREGATOR
        ]
        metadata = {**role["metadata"], "managedFields": [own, *(other for other in others if other["fieldsV1"])]}
        return {**role, "metadata": metadata, "rules": rules or None}
