"""Deletes pods that use devices with NoExecute taints which their claims do not tolerate, or no longer tolerate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import (
    DEVICE_TAINT_DELETION_SECONDS,
    DEVICE_TAINT_DELETIONS,
    ControllerMetrics,
)
from pinnace.controllers.nodes.device_taint_rules import DeviceTaintRules, results_of, selects
from pinnace.controllers.nodes.pod_disruption import disrupt
from pinnace.controllers.nodes.taints import NO_EXECUTE
from pinnace.controllers.pods import pod_or_none
from pinnace.model.objects import Key
from pinnace.model.typed_objects import (
    DeviceTaint,
    DeviceTaintRule,
    Pod,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceSlice,
    Taint,
    Toleration,
)
from pinnace.process.clock import later
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

_COMPONENT = "device-taint-eviction-controller"
_BY_POOL, _BY_USER = "device pool", "pod that has reserved it"
_NO_EXECUTE = b'"NoExecute"'
DeviceName = tuple[str, str, str]
"""Driver, pool and device."""


class _Plan(NamedTuple):
    """The time at which a pod is evicted, None for never, and the rules that want it."""

    due: datetime | None = None
    rules: tuple[DeviceTaintRule, ...] = ()

    def with_end(self, due: datetime | None, rule: DeviceTaintRule | None = None) -> _Plan:
        """Return the plan with the end of one more toleration; None if it does not end."""
        if due is None:
            return self
        rules = self.rules if rule is None or rule in self.rules else (*self.rules, rule)
        return _Plan(due if self.due is None else min(self.due, due), rules)


class DeviceTaintEviction:
    """One reconcile per pod that uses a tainted device. Without such taints there is no work."""

    def __init__(self, manager: Manager, client: Client, *, has_rules: bool) -> None:
        """`has_rules` is DRADeviceTaintRules, on since 1.37: taints also come from DeviceTaintRules."""
        self._client = client
        self._recorder = manager.recorder
        self._pods = manager.cache(Pod)
        self._claims = manager.cache(ResourceClaim)
        self._claims.add_index(_BY_POOL, _pools_of)
        self._claims.add_index(_BY_USER, _users_of)
        self._tainted: dict[str, dict[DeviceName, list[DeviceTaint]]] = {}
        """The NoExecute taints of devices, by slice."""
        self._planned: set[Key] = set()
        self._metrics = ControllerMetrics(manager.metrics, DEVICE_TAINT_DELETIONS, DEVICE_TAINT_DELETION_SECONDS)
        self.controller = Controller("device-taint-eviction", self._reconcile, workers=8)
        self._rules: DeviceTaintRules | None = None
        if has_rules:
            self._rules = DeviceTaintRules(
                manager, client, self._claims, changed=self._hear_rule, evicted_by=self._evicted_by
            )
        manager.informer(ResourceSlice).on_change(self._hear_slice)
        manager.informer(ResourceClaim).on_change(self._hear_claim)
        manager.informer(Pod).on_change(self._hear_pod)

    @property
    def controllers(self) -> Sequence[Controller]:
        return (self.controller,) if self._rules is None else (self.controller, self._rules.controller)

    @property
    def _has_taints(self) -> bool:
        return bool(self._tainted) or (self._rules is not None and self._rules.are_evicting)

    def _hear_rule(self, claim: ResourceClaim) -> None:
        self._enqueue_users(claim, "rule")

    def _hear_slice(self, old: Snapshot[ResourceSlice] | None, new: Snapshot[ResourceSlice] | None) -> None:
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

    def _hear_claim(self, old: Snapshot[ResourceClaim] | None, new: Snapshot[ResourceClaim] | None) -> None:
        if self._has_taints or self._planned:
            for snapshot in (old, new):
                self._enqueue_users(snapshot.object if snapshot is not None else None, "claim")

    def _hear_pod(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        seen = new or old
        if seen is not None and (self._has_taints or seen.key in self._planned) and b'"resourceClaims"' in seen.body:
            self.controller.enqueue(seen.key, "pod")

    def _enqueue_users(self, claim: ResourceClaim | None, reason: str) -> None:
        for user in _users(claim):
            assert claim is not None
            self.controller.enqueue(Key(claim["metadata"]["namespace"], user["name"]), reason)

    async def _reconcile(self, key: Key) -> Result | None:
        pod = pod_or_none(self._pods.snapshot(key))
        plan = _Plan()
        if pod is not None and pod.spec.nodeName and not pod.is_terminating:
            plan = self._plan(pod.metadata.uid)
        due = plan.due
        if pod is None or due is None:
            if key in self._planned:
                self._planned.discard(key)
                if pod is not None and not pod.is_terminating:
                    self._record(key, "Cancelling deletion")
            return None
        left = (due - self._client.clock.now()).total_seconds()
        if left > 0:
            self._planned.add(key)
            if self._rules is not None:
                self._rules.note_plan(plan.rules)
            return Result(requeue_after=left)
        self._planned.discard(key)
        self._record(key, "Marking for deletion")
        message = "Device Taint manager: deleting due to NoExecute taint"
        await disrupt(self._client, key, pod, reason="DeletionByDeviceTaintManager", message=message)
        if self._rules is not None:
            self._rules.note_eviction(plan.rules)
        self._metrics.count(DEVICE_TAINT_DELETIONS)
        seconds = (self._client.clock.now() - due).total_seconds()
        self._metrics.observe(DEVICE_TAINT_DELETION_SECONDS, max(0.0, seconds))
        return None

    def _plan(self, uid: str) -> _Plan:
        """Return when the first claim that a pod has reserved no longer tolerates a taint, and the rules that evict."""
        plan = _Plan()
        for claim in self._claims.by_index(_BY_USER, uid):
            for result in results_of(claim):
                tolerations = result.get("tolerations") or ()
                device = (result["driver"], result["pool"], result["device"])
                for devices in self._tainted.values():
                    for taint in devices.get(device, ()):
                        plan = plan.with_end(_end_of_toleration(taint, tolerations))
                for rule in self._rules.taints_of(result) if self._rules is not None else ():
                    plan = plan.with_end(_end_of_toleration(rule["spec"]["taint"], tolerations), rule)
        return plan

    def _evicted_by(self, claim: ResourceClaim, rule: DeviceTaintRule) -> Iterator[Key]:
        taint: Taint = {**rule["spec"]["taint"], "effect": NO_EXECUTE}
        ends = (
            _end_of_toleration(taint, result.get("tolerations") or ())
            for result in results_of(claim)
            if selects(rule, (result["driver"], result["pool"], result["device"]))
        )
        if all(end is None for end in ends):
            return
        for user in _users(claim):
            key = Key(claim["metadata"]["namespace"], user["name"])
            pod = pod_or_none(self._pods.snapshot(key))
            if pod is not None and pod.metadata.uid == user["uid"] and pod.spec.nodeName and not pod.is_terminating:
                yield key

    def _record(self, key: Key, message: str) -> None:
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": key.name, "namespace": key.namespace}}
        self._recorder.record(about, "Normal", "DeviceTaintManagerEviction", message, component=_COMPONENT)


def _end_of_toleration(taint: Taint, tolerations: Iterable[Toleration]) -> datetime | None:
    """Return when a taint evicts; None if it is tolerated for ever. The shortest toleration counts."""
    added = datetime.fromisoformat(taint["timeAdded"])
    seconds: float | None = None
    for toleration in tolerations:
        if toleration.get("effect") != NO_EXECUTE or not _tolerates(toleration, taint):
            continue
        if toleration.get("tolerationSeconds") is None:
            return None
        limit = max(0.0, float(toleration["tolerationSeconds"]))
        seconds = limit if seconds is None else min(seconds, limit)
    return later(added, seconds or 0.0)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _taints_of(obj: ResourceSlice) -> dict[DeviceName, list[DeviceTaint]]:
    spec, by_device = obj["spec"], {}
    for device in spec.get("devices") or ():
        taints = [
            taint
            for taint in device.get("taints") or ()
            if taint.get("effect") == NO_EXECUTE and taint.get("timeAdded")
        ]
        if taints:
            by_device[spec["driver"], spec["pool"]["name"], device["name"]] = taints
    return by_device


def _users(claim: ResourceClaim | None) -> Iterator[ResourceClaimConsumerReference]:
    status = (claim.get("status") if claim is not None else None) or {}
    for consumer in status.get("reservedFor") or ():
        if consumer.get("resource") == "pods" and not consumer.get("apiGroup"):
            yield consumer


def _pools_of(claim: ResourceClaim) -> list[str]:
    return sorted({f"{result['driver']}/{result['pool']}" for result in results_of(claim)})


def _users_of(claim: ResourceClaim) -> list[str]:
    return [user["uid"] for user in _users(claim)]
