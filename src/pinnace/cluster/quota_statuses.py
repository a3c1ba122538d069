"""Writes what the quotas' accounts say into the quotas' status."""

from __future__ import annotations

import asyncio
import logging

from pinnace.admission.quotas import ResourceQuota
from pinnace.model.resources import Resource
from pinnace.server.fanout import Fanout
from pinnace.server.pipeline import encoded
from pinnace.store import store as stores

log = logging.getLogger(__name__)


class QuotaStatuses:
    """Changes that come together are written once."""

    def __init__(self, quotas: ResourceQuota, fanout: Fanout, store: stores.Store, resource: Resource) -> None:
        self._quotas = quotas
        self._fanout = fanout
        self._store = store
        self._resource = resource
        self._stale: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        quotas.on_change(self._note)

    def _note(self, key: str) -> None:
        self._stale.add(key)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._stale:
            key = self._stale.pop()
            entry = self._fanout.shelf(self._resource.prefix).entries.get(key)
            status = self._quotas.status_of(key)
            if entry is None or status is None:
                continue
            quota = entry.decode()
            if quota.get("status") == status:
                continue
            value = encoded({**quota, "status": status}, self._resource)
            try:
                await self._store.put(self._resource.prefix + key, value, expected=entry.revision)
            except stores.Conflict:
                self._stale.add(key)  # Somebody was faster: look again at what is there now.
            except stores.StoreError as problem:
                log.debug("the status of quota %s could not be written: %s", key, problem)
                return
