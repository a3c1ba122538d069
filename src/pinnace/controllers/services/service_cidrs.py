"""Keeps ServiceCIDRs: sets their Ready condition, and delays their deletion while an address needs them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from pinnace.client.client import Client
from pinnace.model.objects import Key, Object
from pinnace.reconcile.conditions import ConditionStatus, condition, set_condition
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.finalizers import ensure_finalizer, is_being_deleted, remove_finalizer
from pinnace.reconcile.manager import Manager

RANGE, ADDRESS = "networking.k8s.io/v1/ServiceCIDR", "networking.k8s.io/v1/IPAddress"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"
GRACE = 10.0
"""Seconds that a range stays after its deletion: an address may be on its way."""
_HELD = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"

_Network = IPv4Network | IPv6Network


class ServiceCidrs:
    """One reconcile per range. The deletion of an address enqueues every range."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._ranges = manager.cache(RANGE)
        self._addresses = manager.cache(ADDRESS)
        self.controller = Controller("service-cidr-controller", self._reconcile)
        self.controller.for_(RANGE)
        self.controller.watches(RANGE, self._find_leaving)
        self.controller.watches(ADDRESS, self._find_leaving)

    def _find_leaving(self, changed: Object) -> Iterable[Key]:
        return [one.key for one in self._ranges.snapshots() if "deletionTimestamp" in one.metadata]

    async def _reconcile(self, key: Key) -> Result | None:
        found = self._ranges.get(key)
        if found is None:
            return None
        if not is_being_deleted(found):
            found = await ensure_finalizer(self._client, found, FINALIZER)
            await self._set_ready(found, "True", "", "Kubernetes Service CIDR is ready")
            return None
        if self._is_needed(found):
            await self._set_ready(found, "False", "Terminating", _HELD)
            return None
        deleted = datetime.fromisoformat(found["metadata"]["deletionTimestamp"])
        left = GRACE - (self._client.clock.now() - deleted).total_seconds()
        if left > 0:
            return Result(requeue_after=min(left, GRACE))
        await remove_finalizer(self._client, found, FINALIZER)
        return None

    def _is_needed(self, leaving: Object) -> bool:
        """Whether an address is in this range and in no other."""
        others = [
            network
            for one in self._ranges.list()
            if one["metadata"]["name"] != leaving["metadata"]["name"]
            for network in _networks(one)
        ]
        own = _networks(leaving)
        if all(any(_contains(other, network) for other in others) for network in own):
            return False
        for key in self._addresses:
            address = ip_address(key.name)
            if any(address in network for network in own) and not any(address in network for network in others):
                return True
        return False

    async def _set_ready(self, found: Object, status: ConditionStatus, reason: str, message: str) -> None:
        known = condition(found, "Ready") or {}
        if (known.get("status"), known.get("reason"), known.get("message")) == (status, reason, message):
            return
        set_condition(found, "Ready", status, reason=reason, message=message, clock=self._client.clock)
        ready = condition(found, "Ready") or {}
        ready.pop("observedGeneration", None)
        identity = {"apiVersion": found["apiVersion"], "kind": found["kind"]}
        wanted = {**identity, "metadata": {"name": found["metadata"]["name"]}, "status": {"conditions": [ready]}}
        await self._client.apply(wanted, field_manager=self.controller.name, force=True, subresource="status")


def _networks(found: Object) -> list[_Network]:
    return [ip_network(text) for text in (found.get("spec") or {}).get("cidrs") or ()]


def _contains(outer: _Network, inner: _Network) -> bool:
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]
