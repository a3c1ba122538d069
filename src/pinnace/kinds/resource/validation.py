"""Defaults and validation of device claims, claim templates, device classes and taint rules. Slices have their own
module."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import partial
from typing import Any

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.resource_amounts import is_extended
from pinnace.kinds.resource.checks import (
    MAX_CONFIGS,
    MAX_REQUESTS,
    MAX_SELECTORS,
    TAINT_EFFECTS,
    default_taint,
    driver_name_errors,
    now,
    validate_binding_condition,
    validate_configuration,
    validate_device_name,
    validate_list,
    validate_opaque_drivers,
    validate_pool_name,
    validate_qualified_attribute,
    validate_raw_object,
    validate_selector,
    validate_set,
    validate_share_id,
    validate_taint,
)
from pinnace.kinds.validation.fields import (
    NOT_POSITIVE,
    validate_choice,
    validate_condition,
    validate_given_choice,
    validate_given_name,
    validate_immutable,
    validate_name,
)
from pinnace.kinds.validation.node_selectors import NODE_SELECTOR_TERM, validate_node_selector
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, not_supported, required, too_long, too_many
from pinnace.model.objects import NOTHING, Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label
from pinnace.model.typed_objects import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    DeviceTaintRule,
    DeviceToleration,
    ExactDeviceRequest,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)

MAX_SUB_REQUESTS = 8
MAX_CONSTRAINTS = 32
MAX_RESERVATIONS = 256
MAX_CONDITIONS = 8
MAX_ADDRESSES = 16
ANY_NUMBER = 2**31
ONE_OF_REQUESTS = "exactly one of `exactly` or `firstAvailable` is required"
NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
NOT_AN_ADDRESS = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"

_TOLERATION = GoStruct("Key='' Operator='' Value='' Effect='' TolerationSeconds")
_SELECTOR = GoStruct("CEL:cel", CEL=GoStruct("Expression=''"))
_CAPACITY = GoStruct("Requests")
_OPAQUE = GoStruct("Driver='' Parameters")
_CLAIM_SPEC = GoStruct(
    "Devices",
    Devices=GoStruct(
        "Requests Constraints Config",
        Requests=GoStruct(
            "Name='' Exactly FirstAvailable",
            Exactly=GoStruct(
                "DeviceClassName='' Selectors AllocationMode='' Count=0 AdminAccess Tolerations Capacity",
                Selectors=_SELECTOR,
                Tolerations=_TOLERATION,
                Capacity=_CAPACITY,
            ),
            FirstAvailable=GoStruct(
                "Name='' DeviceClassName='' Selectors AllocationMode='' Count=0 Tolerations Capacity",
                Selectors=_SELECTOR,
                Tolerations=_TOLERATION,
                Capacity=_CAPACITY,
            ),
        ),
        Constraints=GoStruct("Requests MatchAttribute DistinctAttribute"),
        Config=GoStruct("Requests Opaque", Opaque=_OPAQUE),
    ),
    inline=("Devices",),
)
_ALLOCATION = GoStruct(
    "Devices NodeSelector AllocationTimestamp",
    Devices=GoStruct(
        "Results Config",
        Results=GoStruct(
            "Request='' Driver='' Pool='' Device='' AdminAccess Tolerations BindingConditions "
            "BindingFailureConditions ShareID:shareID ConsumedCapacity",
            Tolerations=_TOLERATION,
        ),
        Config=GoStruct("Source='' Requests Opaque", Opaque=_OPAQUE),
    ),
    NodeSelector=GoStruct("NodeSelectorTerms", NodeSelectorTerms=NODE_SELECTOR_TERM),
    inline=("Devices",),
)

# --- the spec of a claim


def default_claim_spec(spec: Object) -> None:
    """Set the defaults of a claim's spec: exactly one device."""
    devices = spec.setdefault("devices", {})
    devices["requests"] = devices.get("requests") or None  # Kubernetes writes null for an empty list.
    for request in devices["requests"] or []:
        exactly = request.get("exactly")
        for part in [*([] if exactly is None else [exactly]), *(request.get("firstAvailable") or [])]:
            if not part.get("allocationMode"):
                part["allocationMode"] = "ExactCount"
            if part["allocationMode"] == "ExactCount" and not part.get("count"):
                part["count"] = 1
            _default_tolerations(part)


def _default_tolerations(holder: ExactDeviceRequest | DeviceSubRequest | DeviceRequestAllocationResult) -> None:
    for toleration in holder.get("tolerations") or []:
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def validate_claim_spec(spec: ResourceClaimSpec, path: str) -> Iterator[FieldError]:
    """Return every error of a ResourceClaimSpec, of a claim or a template."""
    devices, path = spec.get("devices", {}), f"{path}.devices"
    known = _request_names(devices)
    yield from validate_set(
        devices.get("requests"),
        MAX_REQUESTS,
        f"{path}.requests",
        _validate_request,
        key=lambda item: item.get("name", ""),
    )
    yield from validate_list(
        devices.get("constraints"), MAX_CONSTRAINTS, f"{path}.constraints", partial(_validate_constraint, known=known)
    )
    yield from validate_list(
        devices.get("config"), MAX_CONFIGS, f"{path}.config", partial(_validate_claim_configuration, known=known)
    )
    yield from validate_opaque_drivers(devices.get("config") or [], f"{path}.config")


def _request_names(devices: DeviceClaim) -> frozenset[str]:
    """Return the names that constraints and configurations may refer to: r, and r/s for a subrequest."""
    requested = set()
    for request in devices.get("requests") or []:
        name = request.get("name", "")
        requested.add(name)
        requested.update(f"{name}/{part.get('name', '')}" for part in request.get("firstAvailable") or [])
    return frozenset(requested)


def _validate_request(request: DeviceRequest, path: str) -> Iterator[FieldError]:
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    yield from validate_name(request.get("name", ""), names.dns_label, f"{path}.name")
    if exactly is None and not alternatives:
        yield required(path, ONE_OF_REQUESTS)
    elif exactly is not None and alternatives:
        yield invalid(path, None, f"{ONE_OF_REQUESTS}, but multiple fields are set")
    elif exactly is not None:
        yield from _validate_wanted_device(exactly, f"{path}.exactly")
    else:
        yield from validate_set(
            alternatives,
            MAX_SUB_REQUESTS,
            f"{path}.firstAvailable",
            _validate_sub_request,
            key=lambda item: item.get("name", ""),
        )


def _validate_sub_request(request: DeviceSubRequest, path: str) -> Iterator[FieldError]:
    yield from validate_name(request.get("name", ""), names.dns_label, f"{path}.name")
    yield from _validate_wanted_device(request, path)


def _validate_wanted_device(wanted: ExactDeviceRequest | DeviceSubRequest, path: str) -> Iterator[FieldError]:
    yield from validate_given_name(wanted.get("deviceClassName"), names.dns_subdomain, f"{path}.deviceClassName")
    yield from validate_list(wanted.get("selectors"), MAX_SELECTORS, f"{path}.selectors", validate_selector)
    mode, count = wanted.get("allocationMode", ""), wanted.get("count", 0)
    if mode == "All" and count:
        yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{path}.count", count, NOT_POSITIVE)
    elif mode not in ("All", "ExactCount"):
        yield not_supported(f"{path}.allocationMode", mode, ["All", "ExactCount"])
    for i, toleration in enumerate(wanted.get("tolerations") or []):
        yield from _validate_toleration(toleration, f"{path}.tolerations[{i}]")


def _validate_toleration(toleration: DeviceToleration, path: str) -> Iterator[FieldError]:
    operator, value = toleration.get("operator", ""), toleration.get("value", "")
    yield from validate_name(toleration.get("key") or None, names.qualified_name, f"{path}.key")
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from validate_name(value, names.label_value, f"{path}.value")
    elif not operator:
        yield required(f"{path}.operator")
    else:
        yield not_supported(f"{path}.operator", operator, ["Equal", "Exists"])
    yield from validate_choice(toleration.get("effect") or None, TAINT_EFFECTS, f"{path}.effect")


def _validate_request_reference(name: str, path: str, *, known: frozenset[str]) -> Iterator[FieldError]:
    segments = name.split("/")
    if len(segments) <= 2:
        for segment in segments:
            yield from validate_name(segment, names.dns_label, path)
    if name not in known:
        yield invalid(path, name, NOT_A_REQUEST)


def _validate_constraint(constraint: DeviceConstraint, path: str, *, known: frozenset[str]) -> Iterator[FieldError]:
    reference_errors = partial(_validate_request_reference, known=known)
    yield from validate_set(constraint.get("requests"), MAX_REQUESTS, f"{path}.requests", reference_errors)
    for field in ("matchAttribute", "distinctAttribute"):
        if constraint.get(field) is not None:
            yield from validate_qualified_attribute(constraint[field], f"{path}.{field}")
            return
    detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    yield required(path, detail)  # The message is wrong, but it is Kubernetes' own.


def _validate_claim_configuration(
    config: DeviceClaimConfiguration | DeviceAllocationConfiguration, path: str, *, known: frozenset[str]
) -> Iterator[FieldError]:
    reference_errors = partial(_validate_request_reference, known=known)
    yield from validate_set(config.get("requests"), MAX_REQUESTS, f"{path}.requests", reference_errors)
    yield from validate_configuration(config, path)


def _default_claim(claim: Object) -> None:
    default_claim_spec(claim.setdefault("spec", {}))
    status = claim.setdefault("status", {})
    for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or []:
        _default_tolerations(result)
    for device in status.get("devices") or []:
        device["conditions"] = device.get("conditions") or None


def _validate_claim(claim: ResourceClaim, old: ResourceClaim | None) -> Iterator[FieldError]:
    spec = claim.get("spec", {})
    if old is None:
        yield from validate_claim_spec(spec, "spec")
    else:
        yield from validate_immutable(_CLAIM_SPEC.view(spec), _CLAIM_SPEC.view(old.get("spec", {})), "spec")


# --- the status of a claim


def _device_id(device: AllocatedDeviceStatus | DeviceRequestAllocationResult) -> dict[str, str]:
    return {
        "Driver": device.get("driver") or "",
        "Pool": device.get("pool") or "",
        "Device": device.get("device") or "",
        "ShareID": device.get("shareID") or "",
    }


def _allocations(status: ResourceClaimStatus) -> set[tuple[str, ...]]:
    allocation = status.get("allocation") or {}
    return {tuple(_device_id(result).values()) for result in (allocation.get("devices") or {}).get("results") or []}


def _prepare_claim_status(claim: ResourceClaim, old: ResourceClaim | None) -> None:
    """Drop the status of devices that are no longer allocated."""
    status, before = claim.setdefault("status", {}), (old or NOTHING).get("status", NOTHING)
    gone = _allocations(before) - _allocations(status)
    kept = [device for device in status.get("devices") or [] if tuple(_device_id(device).values()) not in gone]
    if kept:
        status["devices"] = kept
    else:
        status.pop("devices", None)


def _validate_claim_status(claim: ResourceClaim, old: ResourceClaim | None) -> Iterator[FieldError]:
    status, before = claim.get("status", {}), (old or NOTHING).get("status", NOTHING)
    reservations, allocation = status.get("reservedFor") or [], status.get("allocation")
    yield from validate_set(
        reservations,
        MAX_RESERVATIONS,
        "status.reservedFor",
        _validate_reservation,
        key=lambda item: item.get("uid", ""),
    )
    yield from validate_set(
        status.get("devices"),
        ANY_NUMBER,
        "status.devices",
        partial(_validate_device_status, allocated=_allocations(status)),
        key=_device_id,
    )
    if reservations and allocation is None:
        yield forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    reserved = {frozenset(consumer.items()) for consumer in before.get("reservedFor") or []}
    is_new = any(frozenset(consumer.items()) not in reserved for consumer in reservations)
    if allocation is not None and is_new and claim["metadata"].get("deletionTimestamp"):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden("status.reservedFor", detail)
    if allocation is not None and before.get("allocation") is not None:
        view, view_before = _ALLOCATION.view(allocation), _ALLOCATION.view(before["allocation"])
        yield from validate_immutable(view, view_before, "status.allocation")
    elif allocation is not None:
        known = _request_names(claim.get("spec", {}).get("devices", {}))
        yield from _validate_allocation(allocation, "status.allocation", known=known)


def _validate_reservation(consumer: ResourceClaimConsumerReference, path: str) -> Iterator[FieldError]:
    for field in ("resource", "name", "uid"):
        if not consumer.get(field):
            yield required(f"{path}.{field}")


def _validate_allocation(allocation: AllocationResult, path: str, *, known: frozenset[str]) -> Iterator[FieldError]:
    devices = allocation.get("devices") or {}
    result_errors, config_errors = partial(_validate_result, known=known), partial(_validate_source, known=known)
    yield from validate_list(devices.get("results"), MAX_REQUESTS, f"{path}.devices.results", result_errors)
    yield from validate_list(devices.get("config"), 2 * MAX_CONFIGS, f"{path}.devices.config", config_errors)
    if (selector := allocation.get("nodeSelector")) is not None:
        yield from validate_node_selector(selector, f"{path}.nodeSelector")


def _validate_result(
    result: DeviceRequestAllocationResult, path: str, *, known: frozenset[str]
) -> Iterator[FieldError]:
    yield from _validate_request_reference(result.get("request", ""), f"{path}.request", known=known)
    yield from driver_name_errors(result.get("driver", ""), f"{path}.driver")
    yield from validate_pool_name(result.get("pool", ""), f"{path}.pool")
    yield from validate_device_name(result.get("device", ""), f"{path}.device")
    yield from validate_binding_condition(result, path)
    if result.get("shareID") is not None:
        yield from validate_share_id(result["shareID"], f"{path}.shareID")


def _validate_source(
    config: DeviceAllocationConfiguration, path: str, *, known: frozenset[str]
) -> Iterator[FieldError]:
    source = config.get("source", "")
    yield from validate_given_choice(source, ("FromClaim", "FromClass"), f"{path}.source")
    yield from _validate_claim_configuration(config, path, known=known)


def _validate_device_status(
    device: AllocatedDeviceStatus, path: str, *, allocated: set[tuple[str, ...]]
) -> Iterator[FieldError]:
    yield from driver_name_errors(device.get("driver", ""), f"{path}.driver")
    yield from validate_pool_name(device.get("pool", ""), f"{path}.pool")
    yield from validate_device_name(device.get("device", ""), f"{path}.device")
    if device.get("shareID") is not None:
        yield from validate_share_id(device["shareID"], f"{path}.shareID")
    if tuple(_device_id(device).values()) not in allocated:
        yield invalid(path, _device_id(device), "must be an allocated device in the claim")
    conditions = device.get("conditions") or []
    if len(conditions) > MAX_CONDITIONS:
        yield too_many(f"{path}.conditions", len(conditions), MAX_CONDITIONS)
    yield from validate_condition(conditions, f"{path}.conditions")
    if device.get("data") is not None:
        yield from validate_raw_object(device["data"], f"{path}.data")
    yield from _validate_network(device.get("networkData") or {}, f"{path}.networkData")


def _validate_network(network: NetworkDeviceData, path: str) -> Iterator[FieldError]:
    if len(network.get("interfaceName", "")) > 256:
        yield too_long(f"{path}.interfaceName", 256)
    if len(network.get("hardwareAddress", "")) > 128:
        yield too_long(f"{path}.hardwareAddress", 128)
    yield from validate_set(network.get("ips"), MAX_ADDRESSES, f"{path}.ips", _validate_address)


def _validate_address(address: str, path: str) -> Iterator[FieldError]:
    try:
        interface = ipaddress.ip_interface(address if "/" in address else "")
    except ValueError:
        yield invalid(path, address, NOT_AN_ADDRESS)
        return
    if address != str(interface):
        yield invalid(path, address, f'must be in canonical form ("{interface}")')


# --- templates, classes and taint rules


def _default_template(template: Object) -> None:
    spec = template.setdefault("spec", {})
    spec.setdefault("metadata", {})
    default_claim_spec(spec.setdefault("spec", {}))


def _validate_template(template: ResourceClaimTemplate, old: ResourceClaimTemplate | None) -> Iterator[FieldError]:
    spec = template.get("spec", {})
    metadata = spec.get("metadata") or {}
    for key in metadata.get("annotations") or {}:
        yield from validate_name(key.lower(), names.qualified_name, "spec.metadata.annotations")
    yield from validate_label(metadata.get("labels"), "spec.metadata.labels")
    for field in metadata:
        if field not in ("labels", "annotations"):
            yield forbidden(f"spec.metadata.{field}", "cannot be set")
    yield from validate_claim_spec(spec.get("spec", {}), "spec.spec")
    if old is not None:
        yield from validate_immutable(_template_view(spec), _template_view(old.get("spec", {})), "spec")


def _template_view(spec: ResourceClaimTemplateSpec) -> dict[str, Any]:
    return {**(spec.get("metadata") or {}), "Spec": _CLAIM_SPEC.view(spec.get("spec", {}))}


def _default_class(device_class: Object) -> None:
    device_class.setdefault("spec", {})


def _validate_class(device_class: DeviceClass, old: DeviceClass | None) -> Iterator[FieldError]:
    spec = device_class.get("spec", {})
    yield from validate_list(spec.get("selectors"), MAX_SELECTORS, "spec.selectors", validate_selector)
    yield from validate_list(spec.get("config"), MAX_CONFIGS, "spec.config", validate_configuration)
    yield from validate_opaque_drivers(spec.get("config") or [], "spec.config")
    resource = spec.get("extendedResourceName")
    if resource is not None and not is_extended(resource):
        yield invalid("spec.extendedResourceName", resource, "must be a valid extended resource name")


def _default_taint_rule(rule: Object) -> None:
    default_taint(rule.setdefault("spec", {}).setdefault("taint", {}))
    rule.setdefault("status", {})


def _prepare_taint_rule(rule: DeviceTaintRule, old: DeviceTaintRule | None) -> None:
    taint, before = rule["spec"].get("taint", {}), (old or NOTHING).get("spec", NOTHING).get("taint", NOTHING)
    changed = taint.get("effect") != before.get("effect")
    if old is not None and changed and taint.get("timeAdded") == before.get("timeAdded"):
        taint["timeAdded"] = now()


def _validate_taint_rule(rule: DeviceTaintRule, old: DeviceTaintRule | None) -> Iterator[FieldError]:
    spec = rule.get("spec", {})
    selector = spec.get("deviceSelector") or {}
    for field, value, errs in (
        ("driver", selector.get("driver"), driver_name_errors),
        ("pool", selector.get("pool"), validate_pool_name),
        ("device", selector.get("device"), validate_device_name),
    ):
        if value is not None:
            yield from errs(value, f"spec.deviceSelector.{field}")
    effect_before = None if old is None else old.get("spec", {}).get("taint", {}).get("effect", "")
    yield from validate_taint(spec.get("taint", {}), "spec.taint", effect_before=effect_before)


def _validate_taint_rule_status(rule: DeviceTaintRule, old: DeviceTaintRule | None) -> Iterator[FieldError]:
    conditions = rule.get("status", {}).get("conditions") or []
    yield from validate_condition(conditions, "status.conditions")
    if len(conditions) > MAX_CONDITIONS:
        yield too_many("status.conditions", len(conditions), MAX_CONDITIONS)


RESOURCE_CLAIM = Strategy(
    answers_with_deleted=True,
    default=_default_claim,
    prepare_status=_prepare_claim_status,
    validate=_validate_claim,
    validate_status=_validate_claim_status,
)
RESOURCE_CLAIM_TEMPLATE = Strategy(answers_with_deleted=True, default=_default_template, validate=_validate_template)
DEVICE_CLASS = Strategy(
    answers_with_deleted=True, default=_default_class, validate=_validate_class, tracks_generation=True
)
DEVICE_TAINT_RULE = Strategy(
    answers_with_deleted=True,
    default=_default_taint_rule,
    prepare=_prepare_taint_rule,
    validate=_validate_taint_rule,
    validate_status=_validate_taint_rule_status,
    tracks_generation=True,
)
