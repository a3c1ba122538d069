"""Deletes the leases of API servers that no longer run."""

from __future__ import annotations

from datetime import datetime

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Lease
from pinnace.process.clock import later
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

NAMESPACE = "kube-system"
LABELS = "apiserver.kubernetes.io/identity=kube-apiserver"
CHECK_SECONDS = 3600.0


class ServerLeases:
    """Looks at each lease once an hour, whenever it was renewed."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._leases = manager.cache(Lease, namespace=NAMESPACE, labels=LABELS)
        self.controller = Controller("server-lease-garbage", self._reconcile)
        self.controller.for_(Lease, namespace=NAMESPACE, labels=LABELS, when=_is_new)

    async def _reconcile(self, key: Key) -> Result | None:
        lease = self._leases.get(key)
        if lease is None:
            return None
        if not _has_expired(lease, self._client.clock.now()):
            return Result(requeue_after=CHECK_SECONDS)
        metadata = lease["metadata"]
        try:
            await self._client.delete(Lease, key.name, namespace=NAMESPACE, version=metadata["resourceVersion"])
        except errors.NotFound:
            return None
        except errors.Conflict:
            return Result(requeue_after=CHECK_SECONDS)  # Renewed after all.
        return None


def _is_new(old: Lease | None, new: Lease | None) -> bool:
    """Renewals, one every ten seconds, need no look."""
    return old is None


def _has_expired(lease: Lease, now: datetime) -> bool:
    renewed, seconds = lease["spec"].get("renewTime"), lease["spec"].get("leaseDurationSeconds")
    return not renewed or seconds is None or later(datetime.fromisoformat(renewed), seconds) < now
