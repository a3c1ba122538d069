"""Keeps ServiceCIDRs: sets their Ready condition, and delays their deletion while an address needs them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from pinnace.client.client import Client
from pinnace.model.objects import AnyObject, Key
from pinnace.model.typed_objects import IPAddress, ServiceCIDR
from pinnace.reconcile.conditions import ConditionStatus, condition, set_condition
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.finalizers import ensure_finalizer, is_being_deleted, remove_finalizer
from pinnace.reconcile.manager import Manager

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
GRACE = 10.0
"""Seconds that a range stays after its deletion: an address may be on its way."""
_HELD = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"

_Network = IPv4Network | IPv6Network


class ServiceCidrs:
    """One reconcile per range. The deletion of an address enqueues every range."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._ranges = manager.cache(ServiceCIDR)
        self._addresses = manager.cache(IPAddress)
        self.controller = Controller("service-cidr-controller", self._reconcile)
        self.controller.for_(ServiceCIDR)
        self.controller.watches(ServiceCIDR, self._find_leaving)
        self.controller.watches(IPAddress, self._find_leaving)

    def _find_leaving(self, changed: AnyObject) -> Iterable[Key]:
        return [snapshot.key for snapshot in self._ranges.snapshots() if "deletionTimestamp" in snapshot.metadata]

    async def _reconcile(self, key: Key) -> Result | None:
        service_cidr = self._ranges.get(key)
        if service_cidr is None:
            return None
        if not is_being_deleted(service_cidr):
            service_cidr = await ensure_finalizer(self._client, service_cidr, FINALIZER)
            await self._set_ready(service_cidr, "True", "", "Kubernetes Service CIDR is ready")
            return None
        if self._is_needed(service_cidr):
            await self._set_ready(service_cidr, "False", "Terminating", _HELD)
            return None
        deleted = datetime.fromisoformat(service_cidr["metadata"]["deletionTimestamp"])
        left = GRACE - (self._client.clock.now() - deleted).total_seconds()
        if left > 0:
            return Result(requeue_after=min(left, GRACE))
        await remove_finalizer(self._client, service_cidr, FINALIZER)
        return None

    def _is_needed(self, leaving: ServiceCIDR) -> bool:
        """Whether an address is in this range and in no other."""
        others = [
            network
            for service_cidr in self._ranges.list()
            if service_cidr["metadata"]["name"] != leaving["metadata"]["name"]
            for network in _networks(service_cidr)
        ]
        own = _networks(leaving)
        if all(any(_contains(other, network) for other in others) for network in own):
            return False
        for key in self._addresses:
            address = ip_address(key.name)
            if any(address in network for network in own) and not any(address in network for network in others):
                return True
        return False

    async def _set_ready(self, service_cidr: ServiceCIDR, status: ConditionStatus, reason: str, message: str) -> None:
        known = condition(service_cidr, "Ready") or {}
        if (known.get("status"), known.get("reason"), known.get("message")) == (status, reason, message):
            return
        set_condition(service_cidr, "Ready", status, reason=reason, message=message, clock=self._client.clock)
        ready = condition(service_cidr, "Ready") or {}
        ready.pop("observedGeneration", None)
        identity = {"apiVersion": service_cidr["apiVersion"], "kind": service_cidr["kind"]}
        wanted = {**identity, "metadata": {"name": service_cidr["metadata"]["name"]}, "status": {"conditions": [ready]}}
        await self._client.apply(wanted, field_manager=self.controller.name, force=True, subresource="status")


def _networks(service_cidr: ServiceCIDR) -> list[_Network]:
    return [ip_network(text) for text in (service_cidr.get("spec") or {}).get("cidrs") or ()]


def _contains(outer: _Network, inner: _Network) -> bool:
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]
