"""The names of the servers: the only server of a cluster, or one of several on one etcd."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from base64 import b32encode
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import orjson

from pinnace.model.objects import Object
from pinnace.process.clock import AlarmClock, to_rfc3339_micro
from pinnace.server.local import LocalApi
from pinnace.store.store import StoreError


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """One server among those of a cluster. Its Lease in kube-system has its name, which a restart does not change."""

    name: str
    host: str


def _identity(host: str, *, text: str) -> ServerIdentity:
    digest = hashlib.sha256(text.encode()).digest()[:16]
    return ServerIdentity("apiserver-" + b32encode(digest).decode().rstrip("=").lower(), host)


ALONE = _identity("localhost", text="localhost")
"""The only server of a cluster."""


def hash_name(name: str) -> str:
    """Return the hash by which metrics name a server."""
    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def identify_server(directory: Path) -> ServerIdentity:
    """Return the identity of one of several servers. Those of one machine differ by their data directories."""
    host = socket.gethostname()
    return _identity(host, text=f"{host}:{directory.resolve()}")


log = logging.getLogger(__name__)

RENEW_EVERY = timedelta(seconds=10)
_RELEASE_SECONDS = 5.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_AGENT = {"user-agent": "kube-apiserver"}


class IdentityLease:
    """Keeps one Lease, which has the name of this server."""

    def __init__(self, api: LocalApi, clock: AlarmClock, lease: Object) -> None:
        self._api = api
        self._clock = clock
        self._lease = lease
        self._target = f"{_LEASES}/{lease['metadata']['name']}"
        self._is_released = False

    async def run(self, *, every: timedelta = RENEW_EVERY) -> None:
        """Renew the Lease until cancelled. A Lease that was deleted is created again."""
        while True:
            try:
                await self._renew()
            except StoreError as error:
                log.warning("the server's lease could not be renewed, trying again in %s: %s", every, error)
            await self._clock.sleep(every.total_seconds())

    async def release(self) -> None:
        """Delete the Lease, because the server stops."""
        self._is_released = True
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._api.request("DELETE", self._target, b"", _AGENT)
        except (StoreError, TimeoutError) as error:
            log.warning("the server's lease could not be deleted; it expires: %s", error)

    async def _renew(self) -> None:
        if self._is_released:
            return
        self._lease["spec"]["renewTime"] = to_rfc3339_micro(self._clock.now())
        metadata = {"annotations": self._lease["metadata"]["annotations"]}
        patch = orjson.dumps({"metadata": metadata, "spec": self._lease["spec"]})
        merge = {"content-type": "application/merge-patch+json", **_AGENT}
        answer = await self._api.request("PATCH", self._target, patch, merge)
        if answer.status == 404 and not self._is_released:
            as_json = {"content-type": "application/json", **_AGENT}
            await self._api.request("POST", _LEASES, orjson.dumps(self._lease), as_json)
