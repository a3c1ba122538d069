"""The servers that live on one etcd: each keeps a master lease, and all of them write the endpoints of the API.

A master lease is a key that etcd deletes 15 seconds after its last renewal. So a server that was killed vanishes from
the endpoints of the kubernetes Service, and one that stops removes its lease itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

import orjson

from pinnace.cluster.bootstrap.endpoints import EndpointsTarget, Server, write_endpoints
from pinnace.cluster.files.storage import MASTER_LEASE_SECONDS, MASTER_LEASES
from pinnace.model.clock import AlarmClock
from pinnace.server.cache.watch_cache import CacheEvent
from pinnace.store.store import Conflict, StoreError

log = logging.getLogger(__name__)

RENEW_SECONDS = 10.0
_RETRY_SECONDS = 1.0
_WITHDRAW_SECONDS = 5.0


class SharedPlane(EndpointsTarget, Protocol):
    """A control plane whose store other servers share."""

    @property
    def clock(self) -> AlarmClock: ...


class MasterLeases:
    """The lease of this server among those of all, and the endpoints that follow from them."""

    def __init__(self, plane: SharedPlane, name: str, server: Server) -> None:
        """`name`: that of this server among all on one etcd."""
        self._plane = plane
        self._key = MASTER_LEASES + name
        self._server = server
        self._turn = asyncio.Lock()
        self._is_withdrawn = False
        self._renewals = 0
        self._changed = asyncio.Event()
        plane.fanout.on_change(MASTER_LEASES, self._wake)

    async def publish(self) -> None:
        """Write the lease, and the endpoints with this server. Raise a StoreError."""
        await self._renew()
        await write_endpoints(self._plane, self._live_servers)

    async def run_renewal(self) -> None:
        """Renew the lease until cancelled."""
        while True:
            await self._plane.clock.sleep(RENEW_SECONDS)
            try:
                await self._renew()
            except StoreError as error:
                log.warning("the master lease could not be renewed, trying again in %d s: %s", RENEW_SECONDS, error)

    async def run_endpoints(self) -> None:
        """Write the endpoints whenever the lease of a server comes, goes or is renewed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await write_endpoints(self._plane, self._live_servers)
            except StoreError as error:
                log.warning("the endpoints of the API could not be written, trying again: %s", error)
                self._changed.set()
                await self._plane.clock.sleep(_RETRY_SECONDS)

    async def withdraw(self) -> None:
        """Remove the lease and the endpoints of this server, which stops. Errors are logged: the stop goes on."""
        try:
            async with asyncio.timeout(_WITHDRAW_SECONDS), self._turn:
                self._is_withdrawn = True
                try:
                    await self._plane.store.delete(self._key, expected=None)
                except Conflict:
                    log.info("the master lease of this server had expired")
                await write_endpoints(self._plane, self._live_servers)
        except (StoreError, TimeoutError) as error:
            log.warning("the master lease could not be removed and expires in %d s: %s", MASTER_LEASE_SECONDS, error)

    def _wake(self, event: CacheEvent) -> None:
        self._changed.set()

    async def _renew(self) -> None:
        async with self._turn:
            if self._is_withdrawn:
                return
            self._renewals += 1
            address, port = self._server
            lease = {
                "kind": "Endpoints",
                "apiVersion": "v1",
                "metadata": {"generation": self._renewals},
                "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": port}]}],
            }
            await self._plane.store.put(self._key, orjson.dumps(lease), expected=None)

    def _live_servers(self) -> Iterable[Server]:
        """Return the servers with a lease. This one lives though its lease may have expired while etcd was away."""
        found = set() if self._is_withdrawn else {self._server}
        for entry in self._plane.fanout.cache(MASTER_LEASES).entries.values():
            for subset in entry.decode()["subsets"]:
                found.add((subset["addresses"][0]["ip"], subset["ports"][0]["port"]))
        return found
