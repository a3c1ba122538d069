"""Deletes pods that use devices with NoExecute taints which their claims do not tolerate, or no longer tolerate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import (
    DEVICE_TAINT_DELETION_SECONDS,
    DEVICE_TAINT_DELETIONS,
    ControllerMetrics,
)
from pinnace.controllers.nodes.pod_disruption import disrupt
from pinnace.controllers.nodes.taints import NO_EXECUTE
from pinnace.controllers.pods import POD, pod_or_none
from pinnace.model.clock import later
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

CLAIM, SLICE = "resource.k8s.io/v1/ResourceClaim", "resource.k8s.io/v1/ResourceSlice"
_COMPONENT = "device-taint-eviction-controller"
_BY_POOL, _BY_USER = "device pool", "pod that has reserved it"
_NO_EXECUTE = b'"NoExecute"'
DeviceName = tuple[str, str, str]
"""Driver, pool and device."""


class DeviceTaintEviction:
    """One reconcile per pod that uses a tainted device. Without such taints there is no work."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._pods = manager.cache(POD)
        self._claims = manager.cache(CLAIM)
        self._claims.add_index(_BY_POOL, _pools_of)
        self._claims.add_index(_BY_USER, _users_of)
        self._tainted: dict[str, dict[DeviceName, list[Object]]] = {}
        """The NoExecute taints of devices, by slice."""
        self._planned: set[Key] = set()
        self._metrics = ControllerMetrics(manager.metrics, DEVICE_TAINT_DELETIONS, DEVICE_TAINT_DELETION_SECONDS)
        self.controller = Controller("device-taint-eviction", self._reconcile, workers=8)
        manager.informer(SLICE).on_change(self._hear_slice)
        manager.informer(CLAIM).on_change(self._hear_claim)
        manager.informer(POD).on_change(self._hear_pod)

    def _hear_slice(self, old: Snapshot | None, new: Snapshot | None) -> None:
        seen = new or old
        assert seen is not None
        before = self._tainted.pop(seen.key.name, {})
        after = _taints_of(new.object) if new is not None and _NO_EXECUTE in new.body else {}
        if after:
            self._tainted[seen.key.name] = after
        if before == after:
            return
        for driver, pool, _ in {*before, *after}:
            for key in self._claims.keys_by_index(_BY_POOL, f"{driver}/{pool}"):
                self._enqueue_users(self._claims.get(key), "taints")

    def _hear_claim(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if self._tainted or self._planned:
            for snapshot in (old, new):
                self._enqueue_users(snapshot.object if snapshot is not None else None, "claim")

    def _hear_pod(self, old: Snapshot | None, new: Snapshot | None) -> None:
        seen = new or old
        if seen is not None and (self._tainted or seen.key in self._planned) and b'"resourceClaims"' in seen.body:
            self.controller.enqueue(seen.key, "pod")

    def _enqueue_users(self, claim: Object | None, reason: str) -> None:
        for user in _users(claim or {}):
            assert claim is not None
            self.controller.enqueue(Key(claim["metadata"]["namespace"], user["name"]), reason)

    async def _reconcile(self, key: Key) -> Result | None:
        pod = pod_or_none(self._pods.snapshot(key))
        due = None
        if pod is not None and pod.spec.nodeName and not pod.is_terminating:
            due = self._eviction_time(pod.metadata.uid)
        if pod is None or due is None:
            if key in self._planned:
                self._planned.discard(key)
                if pod is not None and not pod.is_terminating:
                    self._record(key, "Cancelling deletion")
            return None
        left = (due - self._client.clock.now()).total_seconds()
        if left > 0:
            self._planned.add(key)
            return Result(requeue_after=left)
        self._planned.discard(key)
        self._record(key, "Marking for deletion")
        message = "Device Taint manager: deleting due to NoExecute taint"
        await disrupt(self._client, key, pod, reason="DeletionByDeviceTaintManager", message=message)
        self._metrics.count(DEVICE_TAINT_DELETIONS)
        seconds = (self._client.clock.now() - due).total_seconds()
        self._metrics.observe(DEVICE_TAINT_DELETION_SECONDS, max(0.0, seconds))
        return None

    def _eviction_time(self, uid: str) -> datetime | None:
        """Return when the first claim that a pod has reserved no longer tolerates a taint; None if all do for ever."""
        times = [
            due
            for claim in self._claims.by_index(_BY_USER, uid)
            for result in _results(claim)
            for taint in self._taints_on((result["driver"], result["pool"], result["device"]))
            if (due := _end_of_toleration(taint, result.get("tolerations") or ())) is not None
        ]
        return min(times, default=None)

    def _taints_on(self, device: DeviceName) -> Iterator[Object]:
        for devices in self._tainted.values():
            yield from devices.get(device, ())

    def _record(self, key: Key, message: str) -> None:
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": key.name, "namespace": key.namespace}}
        self._recorder.record(about, "Normal", "DeviceTaintManagerEviction", message, component=_COMPONENT)


def _end_of_toleration(taint: Object, tolerations: Iterable[Object]) -> datetime | None:
    """Return when a taint evicts; None if it is tolerated for ever. The shortest toleration counts."""
    added = datetime.fromisoformat(taint["timeAdded"])
    seconds: float | None = None
    for one in tolerations:
        if one.get("effect") != NO_EXECUTE or not _tolerates(one, taint):
            continue
        if one.get("tolerationSeconds") is None:
            return None
        limit = max(0.0, float(one["tolerationSeconds"]))
        seconds = limit if seconds is None else min(seconds, limit)
    return later(added, seconds or 0.0)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _taints_of(obj: Object) -> dict[DeviceName, list[Object]]:
    spec, found = obj["spec"], {}
    for device in spec.get("devices") or ():
        taints = [one for one in device.get("taints") or () if one.get("effect") == NO_EXECUTE and one.get("timeAdded")]
        if taints:
            found[spec["driver"], spec["pool"]["name"], device["name"]] = taints
    return found


def _results(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results: list[Object] = (allocation.get("devices") or {}).get("results") or []
    return results


def _users(claim: Object) -> Iterator[Object]:
    for one in (claim.get("status") or {}).get("reservedFor") or ():
        if one.get("resource") == "pods" and not one.get("apiGroup"):
            yield one


def _pools_of(claim: Object) -> list[str]:
    return sorted({f"{one['driver']}/{one['pool']}" for one in _results(claim)})


def _users_of(claim: Object) -> list[str]:
    return [one["uid"] for one in _users(claim)]
