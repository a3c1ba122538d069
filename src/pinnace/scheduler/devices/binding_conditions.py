"""Binding conditions: a device may have to be attached to the node before its pod is bound."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pinnace.model.typed_objects import Condition, DeviceRequestAllocationResult, ResourceClaim


class DeviceBindingFailed(Exception):
    """A driver has reported that a device cannot be used."""


def has_conditions(claim: ResourceClaim) -> bool:
    """Return whether an allocated device has binding conditions."""
    return any(result.get("bindingConditions") for result in _results(claim))


def drivers_of(claim: ResourceClaim) -> Iterator[tuple[str, bool]]:
    """Yield the driver of each allocated device, and whether the device has binding conditions."""
    for result in _results(claim):
        yield result.get("driver", ""), bool(result.get("bindingConditions"))


def is_ready(claim: ResourceClaim) -> bool:
    """Return whether all binding conditions of the allocated devices are true. Raise DeviceBindingFailed."""
    if not (claim.get("status") or {}).get("allocation"):
        return False
    for result in _results(claim):
        if not result.get("bindingConditions"):
            continue
        conditions = _conditions_of(claim, result)
        if conditions is None:
            return False
        for name in result.get("bindingFailureConditions") or ():
            failed = conditions.get(name)
            if failed is not None and failed.get("status") == "True":
                place = f"claim={claim['metadata']['name']}, reason={failed.get('reason', '')}"
                raise DeviceBindingFailed(f'device binding failed: {place}, message="{failed.get("message", "")}"')
        if any((conditions.get(name) or {}).get("status") != "True" for name in result["bindingConditions"]):
            return False
    return True


def is_late(claim: ResourceClaim, now: datetime, seconds: float) -> bool:
    """Return whether the devices of a claim with binding conditions were allocated longer ago than `seconds`."""
    allocated = ((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp")
    if not allocated or not has_conditions(claim):
        return False
    return (now - datetime.fromisoformat(allocated)).total_seconds() > seconds


def _results(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    yield from (allocation.get("devices") or {}).get("results") or ()


def _conditions_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition] | None:
    """Return the conditions that the driver reports of a device, by type; None if it has not reported any."""
    for device in (claim.get("status") or {}).get("devices") or ():
        if all(device.get(name) == result.get(name) for name in ("driver", "pool", "device")):
            return {condition["type"]: condition for condition in device.get("conditions") or ()}
    return None
