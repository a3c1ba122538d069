"""The devices that ResourceSlices offer to a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.kinds.resource.expressions import compile_selector
from pinnace.model import quantity
from pinnace.model.quantity import Quantity
from pinnace.model.typed_objects import (
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    ResourceSlice,
    ResourceSliceSpec,
)
from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.library.amounts import parse_quantity
from pinnace.schema.cel.program import Program
from pinnace.schema.text_cache import cache_short_texts

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""
CounterId = tuple[str, str]
"""Counter set and counter."""


@dataclass(frozen=True, slots=True, eq=False)
class DevicePool:
    """One pool: its shared counters, and the devices that consume them, also those of other nodes."""

    id: tuple[str, str]
    counters: Mapping[CounterId, Quantity]
    consumers: list[OfferedDevice] = field(default_factory=list)
    has_conditions: bool = False
    """Whether a device has binding conditions. Devices of other pools are preferred."""


@dataclass(frozen=True, slots=True, eq=False)
class OfferedDevice:
    """One device, and the slice that offers it."""

    id: DeviceId
    device: Device
    slice: ResourceSliceSpec
    value: Mapping[str, Any]
    """The variable `device` of CEL selectors."""
    pool: DevicePool
    consumes: Mapping[CounterId, Quantity]

    @property
    def is_shareable(self) -> bool:
        """Whether several claims, or requests of one claim, may use it at the same time."""
        return bool(self.device.get("allowMultipleAllocations"))

    def attribute(self, name: str) -> Any:
        """Return the value of an attribute by its full name, domain/name; None if the device has none."""
        attributes = self.device.get("attributes") or {}
        domain, _, short = name.partition("/")
        attribute = attributes.get(name)
        if attribute is None and domain == self.id[0]:
            attribute = attributes.get(short)
        return next(iter(attribute.items())) if attribute else None

    def is_selected(self, selectors: Iterable[str]) -> bool:
        """Return whether all selectors hold. One that fails for a device does not hold."""
        for expression in selectors:
            try:
                if compiled(expression).evaluate(device=self.value) is not True:
                    return False
            except CelError:
                return False
        return True


@cache_short_texts(1024)
def compiled(expression: str) -> Program:
    return compile_selector(expression)


class _ByDomain(dict[str, dict[str, Any]]):
    """Domains that a device does not know are empty."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


def devices_of(
    slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule] = ()
) -> dict[str, list[OfferedDevice]]:
    """Return the devices by the node that offers them; those of several nodes under the empty name. Rules add taints.

    Of each pool only the newest generation counts, and only when all its slices are there and valid. Pools and their
    slices are in the order of their names, as drivers expect: the first device that fits is taken.
    """
    tainting = [rule["spec"] for rule in rules]
    pools: dict[tuple[str, str], list[ResourceSliceSpec]] = {}
    for slice_ in sorted(slices, key=lambda slice_: str(slice_["metadata"]["name"])):
        spec = slice_["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    offered: dict[str, list[OfferedDevice]] = {}
    for id, specs in sorted(pools.items()):
        newest = max(spec["pool"].get("generation", 0) for spec in specs)
        current = [spec for spec in specs if spec["pool"].get("generation", 0) == newest]
        if len(current) == current[0]["pool"].get("resourceSliceCount", len(current)):
            for device in _devices(id, current, tainting):
                offered.setdefault(device.slice.get("nodeName") or "", []).append(device)
    return offered


def in_order(devices: Sequence[OfferedDevice]) -> Sequence[OfferedDevice]:
    """Return devices in the order in which they are tried: by pool, those with binding conditions last."""
    return sorted(devices, key=lambda device: (device.pool.has_conditions, device.pool.id))


def _devices(
    id: tuple[str, str], specs: Sequence[ResourceSliceSpec], tainting: Sequence[DeviceTaintRuleSpec]
) -> list[OfferedDevice]:
    """Return the devices of a pool; none if names repeat or a device consumes a counter that does not exist."""
    counters: dict[CounterId, Quantity] = {}
    for spec in specs:
        for counter_set in spec.get("sharedCounters") or ():
            counters.update(_counters_of(counter_set["name"], counter_set))
    has_conditions = any(device.get("bindingConditions") for spec in specs for device in spec.get("devices") or ())
    pool = DevicePool(id, counters, has_conditions=has_conditions)
    devices = [
        _offer(pool, spec, _with_taints(id, device, tainting) if tainting else device)
        for spec in specs
        for device in spec.get("devices") or ()
    ]
    is_valid = len({device.id for device in devices}) == len(devices)
    if not is_valid or any(not device.consumes.keys() <= counters.keys() for device in devices):
        return []
    pool.consumers.extend(device for device in devices if device.consumes)
    return devices


def _with_taints(id: tuple[str, str], device: Device, tainting: Sequence[DeviceTaintRuleSpec]) -> Device:
    """Return a device with the taints of the rules that select it. A rule without a selector selects none."""
    names = {"driver": id[0], "pool": id[1], "device": device["name"]}
    added = [
        spec["taint"]
        for spec in tainting
        if spec.get("deviceSelector") is not None
        and all(names[field] == name for field, name in (spec.get("deviceSelector") or {}).items())
    ]
    return {**device, "taints": [*(device.get("taints") or ()), *added]} if added else device


def _counters_of(name: str, counter_set: CounterSet | DeviceCounterConsumption) -> Iterator[tuple[CounterId, Quantity]]:
    for counter, amount in (counter_set.get("counters") or {}).items():
        yield (name, counter), quantity.parse(amount["value"])


def _offer(pool: DevicePool, spec: ResourceSliceSpec, device: Device) -> OfferedDevice:
    driver = spec["driver"]
    attributes, capacity = _ByDomain(), _ByDomain()
    for name, value in (device.get("attributes") or {}).items():
        domain, short = _split(name, driver)
        attributes.setdefault(domain, {})[short] = next(iter(value.values()))
    for name, amount in (device.get("capacity") or {}).items():
        domain, short = _split(name, driver)
        capacity.setdefault(domain, {})[short] = parse_quantity(amount["value"])
    variables = {
        "driver": driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
    }
    consumes = {
        counter: amount
        for counters in device.get("consumesCounters") or ()
        for counter, amount in _counters_of(counters["counterSet"], counters)
    }
    return OfferedDevice((*pool.id, device["name"]), device, spec, variables, pool, consumes)


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)
