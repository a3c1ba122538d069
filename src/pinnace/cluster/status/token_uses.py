"""Writes the day of the last use on Secrets with a service account token, which the cleaner of old tokens reads."""

from __future__ import annotations

import asyncio

from pinnace.auth.authentication.service_accounts import LEGACY_LAST_USED
from pinnace.model.clock import Clock
from pinnace.model.resources import Resource
from pinnace.server.cache.fanout import Fanout
from pinnace.server.write.versions import encode
from pinnace.store import store as stores


class LegacyTokenUses:
    """A background part that writes at most once a day for each Secret."""

    def __init__(self, fanout: Fanout, store: stores.Store, secrets: Resource, clock: Clock) -> None:
        self._fanout = fanout
        self._store = store
        self._resource = secrets
        self._clock = clock
        self._used: set[str] = set()
        self._noted = asyncio.Event()

    def note(self, key: str) -> None:
        """Note that the token of a Secret was used today."""
        self._used.add(key)
        self._noted.set()

    async def run(self) -> None:
        """Write until cancelled. Raise StoreError if the store takes no writes; nothing noted is lost by that."""
        while True:
            for key in sorted(self._used):
                await self._write(key)
                self._used.discard(key)
            self._noted.clear()
            await self._noted.wait()

    async def _write(self, key: str) -> None:
        entry = self._fanout.cache(self._resource.prefix).entries.get(key)
        if entry is None:
            return
        secret, today = entry.decode(), self._clock.now().date().isoformat()
        labels = secret["metadata"].get("labels") or {}
        if labels.get(LEGACY_LAST_USED) == today:
            return
        secret["metadata"]["labels"] = {**labels, LEGACY_LAST_USED: today}
        try:
            value = encode(secret, self._resource)
            await self._store.put(self._resource.prefix + key, value, expected=entry.revision)
        except stores.Conflict:
            return  # Another write came first: the next use of the token notes it again.
