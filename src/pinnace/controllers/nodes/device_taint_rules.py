"""The DeviceTaintRules of administrators: their taints on devices, and the condition that reports what they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.nodes.taints import NO_EXECUTE
from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import (
    Condition,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from pinnace.process.clock import to_rfc3339
from pinnace.process.work_slices import Turns
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.conditions import condition
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

IN_PROGRESS = "EvictionInProgress"
_STATUS_SECONDS = 10.0
"""The status of a rule that has not changed is written at most once in this time."""
_MANAGER = "device-taint-eviction-controller"


class DeviceTaintRules:
    """`changed` is called for each claim whose devices a new, changed or deleted rule selects."""

    def __init__(
        self,
        manager: Manager,
        client: Client,
        claims: Cache[ResourceClaim],
        *,
        changed: Callable[[ResourceClaim], None],
        evicted_by: Callable[[ResourceClaim, DeviceTaintRule], Iterable[Key]],
    ) -> None:
        """`evicted_by` returns the pods of a claim that a rule evicts, now or later, if its effect is NoExecute."""
        self._client = client
        self._claims = claims
        self._changed = changed
        self._evicted_by = evicted_by
        self._rules = manager.cache(DeviceTaintRule)
        self._slices = manager.cache(ResourceSlice)
        self._evicting: dict[str, DeviceTaintRule] = {}
        self._to_apply: dict[Key, list[DeviceTaintRule]] = {}
        """The rules whose effect on claims has begun or ended since the last reconcile."""
        self._evicted: Counter[str] = Counter()
        """The pods that were evicted, by the uid of the rule."""
        self.controller = Controller("device-taint-rules", self._reconcile)
        manager.informer(DeviceTaintRule).on_change(self._hear)

    def taints_of(self, result: DeviceRequestAllocationResult) -> Iterator[DeviceTaintRule]:
        """Yield the rules that evict the users of a device."""
        device = (result["driver"], result["pool"], result["device"])
        return (rule for rule in self._evicting.values() if selects(rule, device))

    @property
    def are_evicting(self) -> bool:
        return bool(self._evicting)

    def note_eviction(self, rules: Iterable[DeviceTaintRule]) -> None:
        """Count a pod that was evicted because of these rules."""
        for rule in rules:
            self._evicted[rule["metadata"]["uid"]] += 1
            self.controller.enqueue(Key("", rule["metadata"]["name"]), "eviction", after=_STATUS_SECONDS)

    def note_plan(self, rules: Iterable[DeviceTaintRule]) -> None:
        for rule in rules:
            self.controller.enqueue(Key("", rule["metadata"]["name"]), "pod", after=_STATUS_SECONDS)

    def _hear(self, old: Snapshot[DeviceTaintRule] | None, new: Snapshot[DeviceTaintRule] | None) -> None:
        before, after = old.object if old is not None else None, new.object if new is not None else None
        seen = after or before
        assert seen is not None, "an event has an old object or a new one"
        is_same = before is not None and after is not None and before["metadata"]["uid"] == after["metadata"]["uid"]
        if is_same and before is not None and after is not None and before["spec"] == after["spec"]:
            return
        if before is not None:
            self._evicting.pop(before["metadata"]["name"], None)
            if not is_same:
                self._evicted.pop(before["metadata"]["uid"], None)
        if after is not None and after["spec"]["taint"].get("effect") == NO_EXECUTE:
            self._evicting[after["metadata"]["name"]] = after
        key = Key("", seen["metadata"]["name"])
        evicting = [rule for rule in (before, after) if rule and rule["spec"]["taint"].get("effect") == NO_EXECUTE]
        self._to_apply.setdefault(key, []).extend(evicting)
        self.controller.enqueue(key, "rule")

    async def _reconcile(self, key: Key) -> Result | None:
        for rule in self._to_apply.pop(key, ()):
            async for claim, _ in self._selected(rule):
                self._changed(claim)
        current = self._rules.get(key)
        return None if current is None else await self._report(current)

    async def _report(self, rule: DeviceTaintRule) -> Result | None:
        generation, now = rule["metadata"].get("generation", 0), self._client.clock.now()
        known = condition(rule, IN_PROGRESS)
        if known is not None and known.get("observedGeneration") == generation:
            since = (now - datetime.fromisoformat(known["lastTransitionTime"])).total_seconds()
            if since < _STATUS_SECONDS:
                return Result(requeue_after=_STATUS_SECONDS - since)
        status, reason, message = await self._outcome(rule)
        if evicted := self._evicted[rule["metadata"]["uid"]]:
            message = f"{message} {_count(evicted, 'pod')} evicted since starting the controller.".strip()
        wanted: Condition = {
            "type": IN_PROGRESS,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            "lastTransitionTime": to_rfc3339(now),
        }
        if known is not None and all(known.get(name) == wanted.get(name) for name in _COMPARED):
            return None
        metadata = rule["metadata"]
        applied: Object = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "status": {"conditions": [wanted]},
        }
        await self._client.apply(applied, subresource="status", field_manager=_MANAGER, force=True)
        return None

    async def _outcome(self, rule: DeviceTaintRule) -> tuple[str, str, str]:
        """Return status, reason and message of the condition."""
        match rule["spec"]["taint"].get("effect"):
            case "NoExecute":
                pods, _ = await self._pending(rule)
                if pods:
                    needs = f"{_count(len(pods), 'pod')} {'needs' if len(pods) == 1 else 'need'}"
                    return "True", "PodsPendingEviction", f"{needs} to be evicted in {_namespaces(pods)}."
                has_evicted = bool(self._evicted[rule["metadata"]["uid"]])
                return "False", "Completed" if has_evicted else "NotStarted", ""
            case "None":
                pods, allocated = await self._pending(rule)
                published = await self._count_published(rule)
                message = (
                    f"{_count(published, 'published device')} selected. "
                    f"{_count(allocated, 'allocated device')} selected. "
                    f"{_count(len(pods), 'pod')} would be evicted in {_namespaces(pods)} if the effect was NoExecute. "
                    "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
                )
                return "False", "NoEffect", message
        return "False", "OtherEffect", "Eviction only happens for the NoExecute effect."

    async def _pending(self, rule: DeviceTaintRule) -> tuple[set[Key], int]:
        """Return the pods that a rule evicts or would evict, and the number of allocated devices that it selects."""
        pods: set[Key] = set()
        devices = 0
        async for claim, selected in self._selected(rule):
            devices += selected
            pods.update(self._evicted_by(claim, rule))
        return pods, devices

    async def _count_published(self, rule: DeviceTaintRule) -> int:
        newest: dict[tuple[str, str], int] = {}
        published: list[tuple[tuple[str, str], int, int]] = []
        turns = Turns()
        for key in list(self._slices):
            await turns.pause()
            offered = self._slices.get(key)
            if offered is None:
                continue
            spec = offered["spec"]
            pool, generation = (spec["driver"], spec["pool"]["name"]), spec["pool"].get("generation", 0)
            newest[pool] = max(newest.get(pool, generation), generation)
            selected = sum(selects(rule, (*pool, device["name"])) for device in spec.get("devices") or ())
            published.append((pool, generation, selected))
        return sum(selected for pool, generation, selected in published if generation == newest[pool])

    async def _selected(self, rule: DeviceTaintRule) -> AsyncIterator[tuple[ResourceClaim, int]]:
        """Yield the claims with devices that a rule selects, and the number of these devices."""
        turns = Turns()
        for key in list(self._claims):
            await turns.pause()
            claim = self._claims.get(key)
            results = results_of(claim) if claim is not None else ()
            selected = sum(selects(rule, (result["driver"], result["pool"], result["device"])) for result in results)
            if claim is not None and selected:
                yield claim, selected


_COMPARED = ("status", "reason", "message", "observedGeneration")


def selects(rule: DeviceTaintRule, device: tuple[str, str, str]) -> bool:
    """Return whether a rule taints a device: driver, pool and name. A rule without a selector taints none."""
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    wanted = (selector.get("driver"), selector.get("pool"), selector.get("device"))
    return all(name in (None, of_device) for name, of_device in zip(wanted, device, strict=True))


def results_of(claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _namespaces(pods: set[Key]) -> str:
    number = len({key.namespace for key in pods})
    return "1 namespace" if number == 1 else f"{number} different namespaces"
