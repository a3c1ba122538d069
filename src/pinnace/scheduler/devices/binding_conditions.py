"""Binding conditions: a device may have to be attached to the node before its pod is bound."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pinnace.model.objects import Object


class DeviceBindingFailed(Exception):
    """A driver has reported that a device cannot be used."""


def has_conditions(claim: Object) -> bool:
    """Return whether an allocated device has binding conditions."""
    return any(one.get("bindingConditions") for one in _results(claim))


def drivers_of(claim: Object) -> Iterator[tuple[str, bool]]:
    """Yield the driver of each allocated device, and whether the device has binding conditions."""
    for one in _results(claim):
        yield one.get("driver", ""), bool(one.get("bindingConditions"))


def is_ready(claim: Object) -> bool:
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
                found = f"claim={claim['metadata']['name']}, reason={failed.get('reason', '')}"
                raise DeviceBindingFailed(f'device binding failed: {found}, message="{failed.get("message", "")}"')
        if any((conditions.get(name) or {}).get("status") != "True" for name in result["bindingConditions"]):
            return False
    return True


def is_late(claim: Object, now: datetime, seconds: float) -> bool:
    """Return whether the devices of a claim with binding conditions were allocated longer ago than `seconds`."""
    allocated = ((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp")
    if not allocated or not has_conditions(claim):
        return False
    return (now - datetime.fromisoformat(allocated)).total_seconds() > seconds


def _results(claim: Object) -> Iterator[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    yield from (allocation.get("devices") or {}).get("results") or ()


def _conditions_of(claim: Object, result: Object) -> dict[str, Object] | None:
    """Return the conditions that the driver reports of a device, by type; None if it has not reported any."""
    for one in (claim.get("status") or {}).get("devices") or ():
        if all(one.get(name) == result.get(name) for name in ("driver", "pool", "device")):
            return {condition["type"]: condition for condition in one.get("conditions") or ()}
    return None
