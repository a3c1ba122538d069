"""Device claims and slices as v1alpha3 and v1beta1 wrote them: requests and devices had another nesting."""

from __future__ import annotations

from typing import Any

from pinnace.model.objects import Object

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
