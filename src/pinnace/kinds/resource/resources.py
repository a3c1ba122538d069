"""The rows of device classes, claims, slices and taint rules: columns, versions.

In v1alpha3 and v1beta1 requests and devices had another nesting.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from pinnace.kinds import cells
from pinnace.kinds.cells import AGE, NAME, NONE, at, integer, number_at, reach, since, string, text
from pinnace.kinds.resource import pool_requests, slices, validation
from pinnace.kinds.rows import GA, STATUS, Convert, Row, Version, fields, on_request
from pinnace.model.objects import NOTHING, Object
from pinnace.model.typed_objects import Condition, DeviceTaintRule, ResourceClaim, ResourcePoolStatusRequest

_RESOURCE = "io.k8s.api.resource.v1"


def _claim_state(claim: ResourceClaim, now: datetime) -> str:
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


def _added(rule: DeviceTaintRule, now: datetime) -> str:
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


def _outcome(request: ResourcePoolStatusRequest) -> Condition | None:
    """Return the condition with the outcome of the request, once there is one."""
    conditions = reach(request, "status", "conditions") or ()
    ended = (condition for condition in conditions if condition.get("type") in ("Complete", "Failed"))
    return next((outcome for outcome in ended if outcome.get("status") == "True"), None)


def _pool_sum(field: str) -> Any:
    def value(request: ResourcePoolStatusRequest, now: datetime) -> str:
        if request.get("status") is None or (_outcome(request) or NOTHING).get("type") == "Failed":
            return "-"
        pools = reach(request, "status", "pools") or ()
        if field == "validationError":
            return text(sum(pool.get(field) is not None for pool in pools))
        return text(sum(pool.get(field) or 0 for pool in pools))

    return value


def _request_status(request: ResourcePoolStatusRequest, now: datetime) -> str:
    outcome = (_outcome(request) or NOTHING).get("type", "Pending")
    listed, count = len(reach(request, "status", "pools") or ()), reach(request, "status", "poolCount") or 0
    return f"Complete ({listed}/{count} pools)" if outcome == "Complete" and count > listed else text(outcome)


def _completed(request: ResourcePoolStatusRequest, now: datetime) -> str:
    outcome = _outcome(request) or NOTHING
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


EXACT_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)


def _requests(spec: Any) -> list[Object]:
    return list(((spec or {}).get("devices") or {}).get("requests") or ())


def _set_requests(spec: Any, requests: list[Object]) -> None:
    if ((spec or {}).get("devices") or {}).get("requests") is not None:
        spec["devices"]["requests"] = requests


def _nest(request: Object) -> Object:
    exact = {name: request[name] for name in EXACT_FIELDS if name in request}
    rest = {name: value for name, value in request.items() if name not in EXACT_FIELDS}
    return {**rest, "exactly": exact} if exact else rest


def _flatten(request: Object) -> Object:
    rest = {name: value for name, value in request.items() if name != "exactly"}
    return {**rest, **(request.get("exactly") or {})}


def claim_to_v1(claim: Object) -> Object:
    spec = claim.get("spec")
    _set_requests(spec, [_nest(request) for request in _requests(spec)])
    return claim


def claim_from_v1(claim: Object) -> Object:
    spec = claim.get("spec")
    _set_requests(spec, [_flatten(request) for request in _requests(spec)])
    return claim


def template_to_v1(template: Object) -> Object:
    spec = (template.get("spec") or {}).get("spec")
    _set_requests(spec, [_nest(request) for request in _requests(spec)])
    return template


def template_from_v1(template: Object) -> Object:
    spec = (template.get("spec") or {}).get("spec")
    _set_requests(spec, [_flatten(request) for request in _requests(spec)])
    return template


def slice_to_v1(resource_slice: Object) -> Object:
    spec = resource_slice.get("spec") or {}
    if spec.get("devices") is not None:
        spec["devices"] = [
            {"name": device.get("name", ""), **(device.get("basic") or {})} for device in spec["devices"]
        ]
    # Both were plain values and are optional now: empty meant absent.
    if not spec.get("nodeName"):
        spec.pop("nodeName", None)
    if not spec.get("allNodes"):
        spec.pop("allNodes", None)
    return resource_slice


def slice_from_v1(resource_slice: Object) -> Object:
    spec = resource_slice.get("spec") or {}
    if spec.get("devices") is not None:
        spec["devices"] = [
            {"name": device.get("name", ""), "basic": {name: value for name, value in device.items() if name != "name"}}
            for device in spec["devices"]
        ]
    return resource_slice


GROUP = "resource.k8s.io"
_BETA2 = on_request("v1beta2", deprecated="1.36", removed="1.39")


def _versions(to_v1: Convert | None = None, from_v1: Convert | None = None) -> tuple[Version, ...]:
    """Return the versions of a kind whose form differs before v1beta2, and the conversions."""
    convert = partial(on_request, to_stored=to_v1, from_stored=from_v1)
    return GA, _BETA2, convert("v1beta1", deprecated="1.35", removed="1.38"), convert("v1alpha3")


_row = partial(Row, group=GROUP)

ROWS = (
    _row(
        name="DeviceClass",
        plural="deviceclasses",
        columns=cells.NAME_AND_AGE,
        namespaced=False,
        versions=_versions(),
        strategy=validation.DEVICE_CLASS,
    ),
    _row(
        name="ResourceClaim",
        plural="resourceclaims",
        columns=RESOURCE_CLAIM,
        versions=_versions(claim_to_v1, claim_from_v1),
        subresources=(STATUS,),
        strategy=validation.RESOURCE_CLAIM,
    ),
    _row(
        name="ResourceClaimTemplate",
        plural="resourceclaimtemplates",
        columns=cells.NAME_AND_AGE,
        versions=_versions(template_to_v1, template_from_v1),
        strategy=validation.RESOURCE_CLAIM_TEMPLATE,
    ),
    _row(
        name="ResourceSlice",
        plural="resourceslices",
        columns=RESOURCE_SLICE,
        namespaced=False,
        versions=_versions(slice_to_v1, slice_from_v1),
        selectable=fields("spec.nodeName", "spec.driver"),
        strategy=slices.RESOURCE_SLICE,
    ),
    _row(
        name="DeviceTaintRule",
        plural="devicetaintrules",
        columns=DEVICE_TAINT_RULE,
        namespaced=False,
        versions=(
            GA,
            on_request("v1beta2", deprecated="1.39", removed="1.42"),
            on_request("v1alpha3", deprecated="1.36", removed="1.39"),
        ),
        subresources=(STATUS,),
        strategy=validation.DEVICE_TAINT_RULE,
    ),
    _row(
        name="ResourcePoolStatusRequest",
        plural="resourcepoolstatusrequests",
        columns=RESOURCE_POOL_STATUS_REQUEST,
        namespaced=False,
        versions=(on_request("v1alpha3", deprecated="1.39", removed="1.42"),),
        subresources=(STATUS,),
        strategy=pool_requests.RESOURCE_POOL_STATUS_REQUEST,
    ),
)
