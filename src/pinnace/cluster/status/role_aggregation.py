"""Keeps the rules of cluster roles that gather others' rules, as those come, change and go."""

from __future__ import annotations

import asyncio
import logging

from pinnace.auth.authorization.aggregation import gathered_rules
from pinnace.model.resources import Resource
from pinnace.server.cache.fanout import Fanout
from pinnace.server.write.versions import encode
from pinnace.store import store as stores

log = logging.getLogger(__name__)


class RoleAggregation:
    """Looks again after every change of a cluster role; changes that come together are looked at once."""

    def __init__(self, fanout: Fanout, store: stores.Store, cluster_roles: Resource) -> None:
        self._fanout = fanout
        self._store = store
        self._resource = cluster_roles
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        fanout.on_change(cluster_roles.prefix, lambda event: self._look())

    def _look(self) -> None:
        self._is_stale = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._gather())

    async def _gather(self) -> None:
        while self._is_stale:
            self._is_stale = False
            entries = dict(self._fanout.cache(self._resource.prefix).entries)
            roles = {key: entry.decode() for key, entry in entries.items()}
            for key, role in roles.items():
                rules = gathered_rules(role, roles.values())
                if rules is None or rules == (role.get("rules") or []):
                    continue
                value = encode({**role, "rules": rules or None}, self._resource)
                try:
                    await self._store.put(self._resource.prefix + key, value, expected=entries[key].revision)
                except stores.Conflict:
                    continue  # It has changed, which calls for another look by itself.
                except stores.StoreError as error:
                    log.debug("the rules of cluster role %s could not be gathered: %s", key, error)
                    return
