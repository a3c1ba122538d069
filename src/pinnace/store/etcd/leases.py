"""Leases: keys that etcd deletes by itself. Keys written at about the same time share one lease."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pinnace.store.etcd import wire
from pinnace.store.etcd.client import EtcdClient

_SHARED_PART = 0.05
_SHORTEST_SHARED = 10.0
_SHORT_LIFE = 60
"""Keys that live for less seconds have leases of their own, which end on time."""
_MOST_KEYS = 1000


class Leases:
    """Gives out leases by the prefix of a key. A key lives for at least its seconds, and at most 5 % longer."""

    def __init__(self, client: EtcdClient, seconds: Mapping[str, int]) -> None:
        self._client = client
        self._seconds = seconds
        self._prefixes = tuple(seconds)
        self._current: dict[str, tuple[int, float, int]] = {}  # By prefix: lease, its last use, keys so far.
        self._lock = asyncio.Lock()

    def applies_to(self, key: str) -> bool:
        """Whether keys with this prefix expire."""
        return bool(self._prefixes) and key.startswith(self._prefixes)

    async def lease_for(self, key: str) -> int:
        """Return the lease for a key that is written now. Raise EtcdError."""
        prefix = next(prefix for prefix in self._prefixes if key.startswith(prefix))
        async with self._lock:
            now = asyncio.get_running_loop().time()
            lease, until, keys = self._current.get(prefix, (0, 0.0, 0))
            if not lease or now >= until or keys >= _MOST_KEYS:
                seconds = self._seconds[prefix]
                shared = max(_SHORTEST_SHARED, seconds * _SHARED_PART) if seconds >= _SHORT_LIFE else 0.0
                request = wire.lease_request(seconds + int(shared))
                lease, until, keys = (
                    wire.lease_answer(await self._client.call(wire.LEASE_GRANT, request)),
                    now + shared,
                    0,
                )
            self._current[prefix] = (lease, until, keys + 1)
            return lease

    def forget(self) -> None:
        """Ask for new leases: those of before may be gone."""
        self._current.clear()
