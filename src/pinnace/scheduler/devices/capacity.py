"""The capacity that an allocation consumes of a device: as requested, rounded to the values that the device allows."""

from __future__ import annotations

from collections.abc import Mapping

from pinnace.model import quantity
from pinnace.model.quantity import Format, Quantity
from pinnace.model.typed_objects import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
    ExactDeviceRequest,
)

Consumption = dict[str, Quantity]


def consumption_of(wanted: ExactDeviceRequest, device: Device) -> Consumption | None:
    """Return what a request consumes of each capacity of a device; None if the device does not allow the request.

    `wanted` is the request, `device` as in a ResourceSlice.
    """
    requests: Mapping[str, str] = (wanted.get("capacity") or {}).get("requests") or {}
    capacities: Mapping[str, DeviceCapacity] = device.get("capacity") or {}
    if not requests.keys() <= capacities.keys():
        return None
    consumed: Consumption = {}
    for name, capacity in capacities.items():
        policy = capacity.get("requestPolicy") or {}
        amount = _round_up(requests.get(name), capacity, policy)
        if _violates(amount, policy):
            return None
        consumed[name] = amount
    return consumed


def has_room(device: Device, consumed: Consumption, in_use: Consumption) -> bool:
    """Return whether a device has the capacity besides the capacity that is in use."""
    capacities = device.get("capacity") or {}
    return all(
        in_use.get(name, quantity.ZERO) + amount <= quantity.parse(capacities[name]["value"])
        for name, amount in consumed.items()
    )


def add(total: Consumption, consumed: Mapping[str, Quantity]) -> None:
    for name, amount in consumed.items():
        total[name] = total.get(name, quantity.ZERO) + amount


def _round_up(requested: str | None, capacity: DeviceCapacity, policy: CapacityRequestPolicy) -> Quantity:
    """Return the default without a request; else the next value that the policy allows."""
    if requested is None:
        return quantity.parse(policy.get("default") or capacity["value"])
    wanted = quantity.parse(requested)
    if (policy.get("validRange") or {}).get("min") is not None:
        return _round_up_range(wanted, policy["validRange"])
    for value in policy.get("validValues") or ():
        if wanted <= (allowed := quantity.parse(value)):
            return allowed
    return wanted


def _round_up_range(wanted: Quantity, valid: CapacityRequestPolicyRange) -> Quantity:
    least = quantity.parse(valid["min"])
    if wanted < least:
        return least
    if valid.get("step") is None:
        return wanted
    step = quantity.parse(valid["step"]).value
    steps = -((least.value - wanted.value) // step)
    return quantity.of(least.value + step * steps, Format.BINARY_SI)


def _violates(amount: Quantity, policy: CapacityRequestPolicy) -> bool:
    if policy.get("default") is not None and amount == quantity.parse(policy["default"]):
        return False
    valid = policy.get("validRange")
    if valid:
        if valid.get("max") is not None and amount > quantity.parse(valid["max"]):
            return True
        if valid.get("step") is None:
            return False
        least = quantity.parse(valid.get("min") or "0").value
        return (amount.value - least) % quantity.parse(valid["step"]).value != 0
    values = policy.get("validValues") or ()
    return bool(values) and all(amount != quantity.parse(value) for value in values)
