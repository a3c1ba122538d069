"""The devices that ResourceSlices offer to a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pinnace.kinds.resource.expressions import compile_selector
from pinnace.model.objects import Object
from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.library.amounts import parse_quantity
from pinnace.schema.cel.program import Program

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """One device, and the slice that offers it."""

    id: DeviceId
    device: Object
    slice: Object
    value: Mapping[str, Any]
    """The variable `device` of CEL selectors."""

    def attribute(self, name: str) -> Any:
        """Return the value of an attribute by its full name, domain/name; None if the device has none."""
        attributes = self.device.get("attributes") or {}
        domain, _, short = name.partition("/")
        found = attributes.get(name)
        if found is None and domain == self.id[0]:
            found = attributes.get(short)
        return next(iter(found.items())) if found else None

    def is_selected(self, selectors: Iterable[str]) -> bool:
        """Return whether all selectors hold. One that fails for a device does not hold."""
        for expression in selectors:
            try:
                if compiled(expression).evaluate(device=self.value) is not True:
                    return False
            except CelError:
                return False
        return True


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Program:
    return compile_selector(expression)


class _ByDomain(dict[str, dict[str, Any]]):
    """Domains that a device does not know are empty."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


def devices_of(slices: Iterable[Object]) -> dict[str, list[OfferedDevice]]:
    """Return the devices by the node that offers them; those of several nodes under the empty name.

    Of each pool only the newest generation counts, and only when all its slices are there.
    """
    pools: dict[tuple[str, str], list[Object]] = {}
    for one in slices:
        spec = one["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    found: dict[str, list[OfferedDevice]] = {}
    for specs in pools.values():
        newest = max(spec["pool"].get("generation", 0) for spec in specs)
        current = [spec for spec in specs if spec["pool"].get("generation", 0) == newest]
        if len(current) == current[0]["pool"].get("resourceSliceCount", len(current)):
            for spec in current:
                found.setdefault(spec.get("nodeName") or "", []).extend(_devices(spec))
    return found


def _devices(spec: Object) -> Iterator[OfferedDevice]:
    driver, pool = spec["driver"], spec["pool"]["name"]
    for device in spec.get("devices") or ():
        if device.get("consumesCounters"):
            continue  # Partitionable devices are not allocated here.
        attributes, capacity = _ByDomain(), _ByDomain()
        for name, value in (device.get("attributes") or {}).items():
            domain, short = _split(name, driver)
            attributes.setdefault(domain, {})[short] = next(iter(value.values()))
        for name, amount in (device.get("capacity") or {}).items():
            domain, short = _split(name, driver)
            capacity.setdefault(domain, {})[short] = parse_quantity(amount["value"])
        value = {
            "driver": driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
        }
        yield OfferedDevice((driver, pool, device["name"]), device, spec, value)


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)
