"""Answers ResourcePoolStatusRequests: how many devices the pools of a driver have, and how many of them are free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pinnace.client.client import Client
from pinnace.controllers.nodes.device_taint_rules import results_of, selects
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.model.quantity import ZERO, Quantity, parse
from pinnace.model.typed_objects import (
    Device,
    DeviceCounterConsumption,
    DeviceTaintRule,
    ResourceClaim,
    ResourcePoolStatusRequest,
    ResourceSlice,
)
from pinnace.process.clock import to_rfc3339
from pinnace.process.work_slices import SliceQueue
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

COMPLETE_LIVE = timedelta(hours=1)
PENDING_LIVE = timedelta(hours=24)
_BY_DRIVER = "driver"
_UNAVAILABLE = frozenset(("NoSchedule", "NoExecute"))
_MOST_POOLS = 100
"""The default of spec.limit."""
_MOST_ITEMS = 32
"""The most items of a list in the status of a pool."""
_LONGEST_ERROR = 256
_AT_ONCE = 20
"""The number of slices or claims that are counted before other work may run."""
_INCOMPLETE = "PoolIncomplete:"

Counters = dict[tuple[str, str], Quantity]
"""Amounts by counter set and counter."""


@dataclass(slots=True)
class _Pool:
    """The facts about a pool, from its slices of the newest generation and from the claims."""

    driver: str
    name: str
    node: str
    expected: int
    generation: int
    is_on_one_node: bool = True
    slices: int = 0
    unavailable: int = 0
    devices: list[tuple[Device, str]] = field(default_factory=list)
    """Each with the attribute by which its slice groups partitions, or an empty text."""
    counters: Counters = field(default_factory=dict)
    in_use: set[str] = field(default_factory=set)
    consumed: dict[str, Quantity] = field(default_factory=dict)


class ResourcePools:
    """Answers each request once, when all slices of its pools are published, and deletes it later."""

    def __init__(self, manager: Manager, client: Client, *, has_rules: bool, has_views: bool) -> None:
        """`has_rules`: DeviceTaintRules make devices unavailable. `has_views`: report partitions and shares."""
        self._client = client
        self._has_views = has_views
        self._requests = manager.cache(ResourcePoolStatusRequest)
        self._requests.add_index(_BY_DRIVER, _pending_driver)
        self._slices = manager.cache(ResourceSlice)
        self._claims = manager.cache(ResourceClaim)
        self._rules = manager.cache(DeviceTaintRule) if has_rules else None
        self.controller = Controller("resource-pool-status", self._reconcile)
        self.controller.for_(ResourcePoolStatusRequest)
        self.controller.watches(ResourceSlice, self._waiting_for)

    def _waiting_for(self, slice: ResourceSlice) -> Iterable[Key]:
        return self._requests.keys_by_index(_BY_DRIVER, slice["spec"]["driver"])

    async def _reconcile(self, key: Key) -> Result | None:
        request = self._requests.get(key)
        if request is None:
            return None
        left = (_end_of(request) - self._client.clock.now()).total_seconds()
        if left < 0:
            try:
                await self._client.delete(ResourcePoolStatusRequest, key.name, uid=request["metadata"]["uid"])
            except (errors.NotFound, errors.Conflict):
                return None
            return None
        if "status" not in request or not request["status"]:
            pools, now = await self._pools(request), to_rfc3339(self._client.clock.now())
            status = status_of(request, pools, now, has_views=self._has_views)
            if any(pool.get("validationError", "").startswith(_INCOMPLETE) for pool in status.get("pools") or ()):
                return Result(requeue_after=left + 1)  # The next slice comes first, or never.
            answered: Any = {**request, "status": status}
            await self._client.update_status(answered)
            left = COMPLETE_LIVE.total_seconds()
        return Result(requeue_after=left + 1)

    async def _pools(self, request: ResourcePoolStatusRequest) -> list[_Pool]:
        """Return the pools of the request, in the order of their names."""
        driver, only = request["spec"]["driver"], request["spec"].get("poolName")
        rules = [rule for rule in self._rules.list() if _taints(rule)] if self._rules is not None else []
        pools: dict[str, _Pool] = {}
        for number, snapshot in enumerate(self._slices.snapshots(), 1):
            if number % _AT_ONCE == 0:
                await SliceQueue.of_loop().wait()
            spec = snapshot.object["spec"]
            if spec["driver"] == driver and only in (None, spec["pool"]["name"]):
                _count_slice(pools, snapshot.object, rules)
        for number, claimed in enumerate(self._claims.snapshots(), 1):
            if number % _AT_ONCE == 0:
                await SliceQueue.of_loop().wait()
            _count_claim(pools, driver, claimed.object)
        return [pools[name] for name in sorted(pools)]


def _pending_driver(request: ResourcePoolStatusRequest) -> tuple[str, ...]:
    return () if request.get("status") else (request["spec"]["driver"],)


def _end_of(request: ResourcePoolStatusRequest) -> datetime:
    """Return when a request is deleted."""
    status = request.get("status")
    made = datetime.fromisoformat(request["metadata"]["creationTimestamp"])
    if not status:
        return made + PENDING_LIVE
    for condition in status.get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("lastTransitionTime"):
            return datetime.fromisoformat(condition["lastTransitionTime"]) + COMPLETE_LIVE
    return made + COMPLETE_LIVE


def _taints(rule: DeviceTaintRule) -> bool:
    return rule["spec"]["taint"].get("effect") in _UNAVAILABLE


def _count_slice(pools: dict[str, _Pool], slice: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> None:
    spec = slice["spec"]
    name, generation = spec["pool"]["name"], spec["pool"].get("generation", 0)
    pool, node = pools.get(name), spec.get("nodeName", "")
    if pool is not None and generation < pool.generation:
        return
    if pool is None or generation > pool.generation:
        expected = spec["pool"].get("resourceSliceCount", 0)
        pool = pools[name] = _Pool(spec["driver"], name, node, expected, generation)
    pool.slices += 1
    pool.is_on_one_node = pool.is_on_one_node and node == pool.node
    attribute = spec.get("partitionTypeAttribute", "")
    for device in spec.get("devices") or ():
        pool.devices.append((device, attribute))
        is_tainted = any(taint.get("effect") in _UNAVAILABLE for taint in device.get("taints") or ())
        if is_tainted or any(selects(rule, (pool.driver, name, device["name"])) for rule in rules):
            pool.unavailable += 1
    for counters in spec.get("sharedCounters") or ():
        for counter, amount in counters["counters"].items():
            pool.counters[counters["name"], counter] = parse(amount["value"])


def _count_claim(pools: Mapping[str, _Pool], driver: str, claim: ResourceClaim) -> None:
    for result in results_of(claim):
        pool = pools.get(result["pool"]) if result["driver"] == driver else None
        if pool is None or result.get("adminAccess"):
            continue
        pool.in_use.add(result["device"])
        for name, amount in (result.get("consumedCapacity") or {}).items():
            pool.consumed[name] = pool.consumed.get(name, ZERO) + parse(amount)


def status_of(request: ResourcePoolStatusRequest, pools: Sequence[_Pool], now: str, *, has_views: bool) -> Any:
    """Return the answer to a request."""
    default = request["spec"].get("defaultPartitionTypeAttribute", "")
    limit = request["spec"].get("limit", _MOST_POOLS)
    listed = [_pool_status(pool, default, has_views=has_views) for pool in pools[:limit]]
    wrong = sum("validationError" in pool for pool in listed)
    message = f"Calculated status for {len(listed)} pools" + (f" ({wrong} incomplete)" if wrong else "")
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": now, "reason": "CalculationComplete"}
    status: Object = {"poolCount": len(pools), "conditions": [{**condition, "message": message}]}
    return {**status, "pools": listed} if listed else status


def _pool_status(pool: _Pool, default: str, *, has_views: bool) -> Object:
    status: Object = {"driver": pool.driver, "poolName": pool.name, "generation": pool.generation}
    if pool.node and pool.is_on_one_node:
        status["nodeName"] = pool.node
    if pool.slices < pool.expected:
        slices = f"observed {pool.slices}/{pool.expected} slices at generation {pool.generation}"
        error = f"{_INCOMPLETE} pool {pool.driver}/{pool.name} is incomplete: {slices}"
        return {**status, "validationError": error[:_LONGEST_ERROR]}
    status |= {
        "resourceSliceCount": pool.slices,
        "totalDevices": len(pool.devices),
        "allocatedDevices": len(pool.in_use),
        "availableDevices": max(0, len(pool.devices) - len(pool.in_use) - pool.unavailable),
        "unavailableDevices": pool.unavailable,
    }
    return status | _views(pool, default) if has_views else status


class _NoView(Exception):
    """A view of a pool cannot be computed; the message says why."""


def _views(pool: _Pool, default: str) -> Object:
    """Return the summaries of partitions and of shared capacity, and the first error that keeps from one."""
    views: Object = {}
    reasons: list[str] = []
    for name, compute in (("partitionSummary", _partitions), ("shareableSummary", _shared_capacity)):
        try:
            view = compute(pool, default)
        except _NoView as error:
            reasons.append(str(error))
        else:
            if view:
                views[name] = view
    if reasons:
        views.pop("partitionSummary", None)
        views["validationError"] = reasons[0][:_LONGEST_ERROR]
    return views


@dataclass(slots=True)
class _Partitions:
    """The devices of one type of partition."""

    cost: Counters
    total: int = 0
    free: int = 0


def _partitions(pool: _Pool, default: str) -> list[Object]:
    where = f"pool {pool.driver}/{pool.name}"
    if any(attribute for _, attribute in pool.devices):
        default = ""  # A driver that declares its attribute knows better than the request.
    grouped = [(device, attribute or default) for device, attribute in pool.devices if attribute or default]
    if not grouped:
        return []
    if not pool.counters:
        reason = "declares partitionTypeAttribute but publishes no sharedCounters"
        raise _NoView(f"PartitionTypeMissing: {where} {reason}")
    groups: dict[tuple[str, str], _Partitions] = {}
    for device, attribute in grouped:
        if not (cost := _cost(device.get("consumesCounters") or ())):
            continue
        type_ = _partition_type(pool.driver, device, attribute)
        if type_ is None:
            reason = f"does not carry partition type attribute {_quoted(attribute)}"
            raise _NoView(f"PartitionTypeMissing: device {_quoted(device['name'])} in {where} {reason}")
        group = groups.setdefault((attribute, type_), _Partitions(cost))
        if group.cost != cost:
            reason = f"devices of partition type {_quoted(type_)} in {where} consume different counters"
            raise _NoView(f"PartitionCostMismatch: {reason}")
        group.total += 1
        group.free += device["name"] not in pool.in_use
    if len(groups) > _MOST_ITEMS:
        most = f"exceeding the maximum of {_MOST_ITEMS}"
        raise _NoView(f"PartitionSummaryOverCap: {where} has {len(groups)} partition types, {most}")
    left = _left_counters(pool)
    return [
        {"attribute": attribute, "type": type_, "total": group.total, "allocatable": _fitting(group, left)}
        for (attribute, type_), group in sorted(groups.items())
    ]


def _quoted(text: str) -> str:
    return f'"{text}"'


def _partition_type(driver: str, device: Device, attribute: str) -> str | None:
    attributes = device.get("attributes") or {}
    value = attributes.get(attribute)
    if value is None and attribute.startswith(f"{driver}/"):
        value = attributes.get(attribute.removeprefix(f"{driver}/"))
    return value.get("string") if value is not None else None


def _cost(consumed: Iterable[DeviceCounterConsumption]) -> Counters:
    return {
        (each["counterSet"], name): parse(amount["value"])
        for each in consumed
        for name, amount in each["counters"].items()
    }


def _left_counters(pool: _Pool) -> Counters:
    left = dict(pool.counters)
    for device, _ in pool.devices:
        if device["name"] in pool.in_use:
            for counter, amount in _cost(device.get("consumesCounters") or ()).items():
                if counter in left:
                    left[counter] = left[counter] - amount
    return left


def _fitting(group: _Partitions, left: Counters) -> int:
    """Return how many more devices of a group fit into the counters that are left."""
    fitting = group.free
    for counter, amount in group.cost.items():
        have = left.get(counter)
        if have is None or have < amount:
            return 0
        if amount:
            fitting = min(fitting, int(have.ratio_to(amount).amount))
    return fitting


def _shared_capacity(pool: _Pool, default: str) -> Object:
    shared = [device for device, _ in pool.devices if device.get("allowMultipleAllocations")]
    if not shared:
        return {}
    used = sum(device["name"] in pool.in_use for device in shared)
    totals: dict[str, Quantity] = {}
    for device in shared:
        for name, capacity in (device.get("capacity") or {}).items():
            totals[name] = totals.get(name, ZERO) + parse(capacity["value"])
    if len(totals) > _MOST_ITEMS:
        most = f"shareable capacity keys, exceeding the maximum of {_MOST_ITEMS}"
        raise _NoView(f"ShareableSummaryOverCap: pool {pool.driver}/{pool.name} has {len(totals)} {most}")
    capacities = list(_capacities(totals, pool.consumed))
    summary: Object = {"fullyAvailableDevices": len(shared) - used, "partiallyAvailableDevices": used}
    return {**summary, "capacity": capacities} if capacities else summary


def _capacities(totals: Mapping[str, Quantity], consumed: Mapping[str, Quantity]) -> Iterator[Object]:
    for name, total in sorted(totals.items()):
        used = consumed.get(name, ZERO)
        available = total - used if total > used else ZERO
        yield {"name": name, "total": str(total), "consumed": str(used), "available": str(available)}
