"""Keeps the status of objects as the server itself sees it, where no controller has to be asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.server.cache.fanout import Fanout
from pinnace.server.write.versions import encode
from pinnace.store import store as stores

log = logging.getLogger(__name__)


class StatusWriter:
    """Writes what `status_of` says of a key and its object, unless that is None. Notes that come together are one."""

    def __init__(
        self,
        fanout: Fanout,
        store: stores.Store,
        resource: Resource,
        status_of: Callable[[str, Object], Object | None],
    ) -> None:
        self._fanout = fanout
        self._store = store
        self._resource = resource
        self._status_of = status_of
        self._stale: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def note(self, key: str) -> None:
        """Something has changed that the status of this object may depend on."""
        self._stale.add(key)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._stale:
            key = self._stale.pop()
            entry = self._fanout.cache(self._resource.prefix).entries.get(key)
            if entry is None:
                continue
            obj = entry.decode()
            status = self._status_of(key, obj)
            if status is None or obj.get("status") == status:
                continue
            value = encode({**obj, "status": status}, self._resource)
            try:
                await self._store.put(self._resource.prefix + key, value, expected=entry.revision)
            except stores.Conflict:
                self._stale.add(key)  # Somebody was faster: look again at what is there now.
            except stores.StoreError as error:
                log.debug("the status of %s %s could not be written: %s", self._resource.kind.name, key, error)
                return
