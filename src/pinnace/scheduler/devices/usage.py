"""The devices, shares of devices and counters that allocated claims use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pinnace.model import quantity
from pinnace.model.typed_objects import ResourceClaim
from pinnace.scheduler.devices.capacity import Consumption, add
from pinnace.scheduler.devices.pools import CounterId, DeviceId, DevicePool, OfferedDevice

Counters = dict[CounterId, quantity.Quantity]


@dataclass(slots=True)
class DeviceUsage:
    """All allocations but those for admin access, which use nothing up."""

    taken: set[DeviceId] = field(default_factory=set)
    """Devices that one claim uses alone."""
    shared: dict[DeviceId, Consumption] = field(default_factory=dict)
    """The capacity in use of devices that several claims may share."""
    _free: dict[tuple[str, str], Counters] = field(default_factory=dict)

    def free_counters(self, pool: DevicePool) -> Counters:
        """Return the counters of a pool that allocated devices leave. Below zero counts as none."""
        known = self._free.get(pool.id)
        if known is None:
            known = self._free[pool.id] = dict(pool.counters)
            for device in pool.consumers:
                if device.id in self.taken or device.id in self.shared:
                    for counter, amount in device.consumes.items():
                        known[counter] -= amount
        return known


def usage_of(claims: Iterable[ResourceClaim]) -> DeviceUsage:
    usage = DeviceUsage()
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result.get("adminAccess"):
                continue
            id = (result["driver"], result["pool"], result["device"])
            if result.get("shareID"):
                consumed = {
                    name: quantity.parse(amount) for name, amount in (result.get("consumedCapacity") or {}).items()
                }
                add(usage.shared.setdefault(id, {}), consumed)
            else:
                usage.taken.add(id)
    return usage


def fits_counters(device: OfferedDevice, chosen: Iterable[OfferedDevice], usage: DeviceUsage) -> bool:
    """Return whether the pool of a device has the counters for it besides the devices that are chosen already."""
    free = usage.free_counters(device.pool)
    consumed: Counters = dict(device.consumes)
    for chosen_device in {
        chosen_device.id: chosen_device for chosen_device in chosen if chosen_device.pool is device.pool
    }.values():
        for counter, amount in chosen_device.consumes.items():
            consumed[counter] = consumed.get(counter, quantity.ZERO) + amount
    return all(consumed.get(counter, quantity.ZERO) <= amount for counter, amount in free.items())
