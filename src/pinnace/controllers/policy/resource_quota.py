"""Computes the status of resource quotas: their limits, and the usage of all objects that they count."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.garbage.monitors import Monitors
from pinnace.kinds.core.quota_account import QuotaAccount, open_account, places_of
from pinnace.kinds.core.quota_usage import CLAIMS, PODS, RESOURCE_CLAIMS, SERVICES, Place
from pinnace.model.objects import Key, Kind
from pinnace.model.typed_objects import ResourceQuota, ResourceQuotaSpec
from pinnace.process.work_slices import DECODING, in_turns
from pinnace.reconcile.controller import LOW, Controller, Result
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.manager import Manager

RESYNC_SECONDS = 300.0
"""How often all objects are counted again: the usage of a pod past its grace period ends without an event."""

_SYNC_SECONDS = 1.0
"""How long a reconcile waits for the objects of a kind that it has just begun to watch."""
_WHOLE = (PODS, SERVICES, CLAIMS, RESOURCE_CLAIMS)
"""Resources of which more than the number is counted."""


@dataclass(slots=True)
class _Counted:
    """The account of a quota, and when its objects were last counted from the start."""

    account: QuotaAccount
    counted_at: float


class ResourceQuotas:
    """One reconcile per quota. An account for each quota follows the changes of the objects that it counts."""

    def __init__(self, manager: Manager, client: Client, monitors: Monitors) -> None:
        self._manager = manager
        self._client = client
        self._monitors = monitors
        self._quotas = manager.cache(ResourceQuota)
        self._counted: dict[str, dict[Key, _Counted]] = {}
        """By namespace."""
        self._followed: dict[Place, Informer] = {}
        self.controller = Controller("resourcequota", self._reconcile, workers=5, resync=RESYNC_SECONDS)
        self.controller.for_(ResourceQuota)
        monitors.on_kinds(self._kinds_changed)

    # Changes

    def _kinds_changed(self, gone: set[Kind]) -> None:
        """Count all quotas again: the objects of other kinds can be counted now."""
        self._followed = {
            place: informer for place, informer in self._followed.items() if informer.scope.kind not in gone
        }
        self._counted.clear()
        for key in self._quotas:
            self.controller.enqueue(key, "kinds", priority=LOW)

    def _object_changed(self, place: Place, old: Snapshot | None, new: Snapshot | None) -> None:
        changed = new or old
        assert changed is not None
        quotas = self._counted.get(changed.key.namespace)
        if not quotas:
            return
        obj = new.object if new is not None else None
        now = self._client.clock.now()
        for key, counted in quotas.items():
            if place in counted.account.places and counted.account.count(place, str(changed.key), obj, now):
                self.controller.enqueue(key, place[1])

    # Reconcile

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._quotas.snapshot(key)
        if snapshot is None:
            self._forget(key)
            return None
        quota = snapshot.object
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        sources = {place: source for place in places_of(spec) if (source := self._follow(place)) is not None}
        with suppress(TimeoutError):
            async with asyncio.timeout(_SYNC_SECONDS):
                for source in sources.values():
                    await source.synced()
        complete = {place: source for place, source in sources.items() if source.is_synced}
        account = await self._account(key, spec, complete)
        hard = {name: str(amount) for name, amount in sorted(account.hard.items())}
        # As in Kubernetes, the usage of a resource that cannot be counted stays as it is.
        used = {name: amount for name, amount in (status.get("used") or {}).items() if name in hard}
        used |= {name: str(amount) for name, amount in account.used.items()}
        wanted = {"hard": hard, "used": dict(sorted(used.items()))} if hard else {}
        if status != wanted:
            await self._client.update_status({**quota, "status": wanted})
        return Result(requeue_after=_SYNC_SECONDS) if len(complete) < len(sources) else None

    async def _account(self, key: Key, spec: ResourceQuotaSpec, sources: dict[Place, Informer]) -> QuotaAccount:
        """Return the account of a quota; count all objects if it is new, changed or old."""
        known = self._counted.get(key.namespace, {}).get(key)
        now = self._client.clock.monotonic()
        if (
            known is not None
            and known.account.spec == spec
            and known.account.places == sources.keys()
            and now - known.counted_at < RESYNC_SECONDS
        ):
            return known.account
        account = open_account(spec, sources)
        # From here on it follows the changes, also while all objects are counted.
        entry = self._counted.setdefault(key.namespace, {})[key] = _Counted(account, -math.inf)
        for place, source in sources.items():
            async for keys in in_turns(source.cache.keys(namespace=key.namespace), cost=DECODING):
                for counted in keys:
                    snapshot = source.cache.snapshot(counted)
                    if snapshot is not None:
                        account.count(place, str(counted), snapshot.object, self._client.clock.now())
        entry.counted_at = now
        return account

    def _forget(self, key: Key) -> None:
        quotas = self._counted.get(key.namespace, {})
        quotas.pop(key, None)
        if not quotas:
            self._counted.pop(key.namespace, None)

    def _follow(self, place: Place) -> Informer | None:
        """Return the informer of a counted resource; None if it is not served."""
        known = self._followed.get(place)
        if known is None:
            kind = self._monitors.find(*place)
            if kind is None:
                return None
            informers = self._manager.informers
            known = informers.get(kind) if place in _WHOLE else informers.of_metadata(kind)
            self._followed[place] = known
            known.on_change(partial(self._object_changed, place))
        return known
