"""The columns of device claims, slices and taints."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import AGE, NAME, NONE, at, integer, number_at, reach, since, string, text
from pinnace.model.objects import Object

_RESOURCE = "io.k8s.api.resource.v1"


def _claim_state(claim: Object, now: datetime) -> str:
    is_deleted = bool(reach(claim, "metadata", "deletionTimestamp"))
    states = ["deleted"] if is_deleted else []
    if reach(claim, "status", "allocation") is None:
        states += [] if is_deleted else ["pending"]
    else:
        states.append("allocated")
        if reach(claim, "status", "reservedFor"):
            states.append("reserved")
    return ",".join(states)


RESOURCE_CLAIM = (
    NAME,
    string("State", "A summary of the current state (allocated, pending, reserved, etc.).", _claim_state),
    AGE,
)
RESOURCE_SLICE = (
    NAME,
    string("Node", f"{_RESOURCE}.ResourceSliceSpec.nodeName", at("spec.nodeName")),
    string("Driver", f"{_RESOURCE}.ResourceSliceSpec.driver", at("spec.driver")),
    string("Pool", f"{_RESOURCE}.ResourcePool.name", at("spec.pool.name")),
    AGE,
)


def _added(rule: Object, now: datetime) -> str:
    moment = reach(rule, "spec", "taint", "timeAdded")
    return since(moment, now) if moment else ""


_TAINT = f"{_RESOURCE}.DeviceTaint"
DEVICE_TAINT_RULE = (
    NAME,
    string("Key", f"{_TAINT}.key", at("spec.taint.key")),
    string("Value", f"{_TAINT}.value", at("spec.taint.value")),
    string("Effect", f"{_TAINT}.effect", at("spec.taint.effect")),
    string("TimeAdded", f"{_TAINT}.timeAdded", _added),
    AGE,
)


def _outcome(request: Object) -> Object | None:
    """Return the condition with the outcome of the request, once there is one."""
    for found in reach(request, "status", "conditions") or ():
        if found.get("type") in ("Complete", "Failed") and found.get("status") == "True":
            return dict(found)
    return None


def _pool_sum(field: str) -> Any:
    def value(request: Object, now: datetime) -> str:
        if request.get("status") is None or (_outcome(request) or {}).get("type") == "Failed":
            return "-"
        pools = reach(request, "status", "pools") or ()
        if field == "validationError":
            return text(sum(pool.get(field) is not None for pool in pools))
        return text(sum(pool.get(field) or 0 for pool in pools))

    return value


def _request_status(request: Object, now: datetime) -> str:
    outcome = (_outcome(request) or {}).get("type", "Pending")
    shown, count = len(reach(request, "status", "pools") or ()), reach(request, "status", "poolCount") or 0
    return f"Complete ({shown}/{count} pools)" if outcome == "Complete" and count > shown else text(outcome)


def _completed(request: Object, now: datetime) -> str:
    outcome = _outcome(request) or {}
    return since(outcome.get("lastTransitionTime"), now) if outcome.get("type") == "Complete" else NONE


RESOURCE_POOL_STATUS_REQUEST = (
    NAME,
    string("Driver", "The driver to query pools for.", at("spec.driver")),
    string("Total", "Total number of devices across all pools.", _pool_sum("totalDevices")),
    string("Available", "Number of available devices across all pools.", _pool_sum("availableDevices")),
    string("Allocated", "Number of allocated devices across all pools.", _pool_sum("allocatedDevices")),
    string("Unavailable", "Number of unavailable devices across all pools.", _pool_sum("unavailableDevices")),
    string("Errors", "Number of pools with validation errors.", _pool_sum("validationError")),
    integer("Pools", "Total number of matching pools.", number_at("status.poolCount")),
    string("Status", "Processing status.", _request_status),
    string("Completed", "Time since the observation completed.", _completed),
)
