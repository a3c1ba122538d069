"""Defaults and validation of resource slices: the devices of a driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pinnace.kinds.resource.checks import (
    default_taint,
    driver_name_errors,
    validate_attribute_name,
    validate_binding_condition,
    validate_device_name,
    validate_list,
    validate_pool_name,
    validate_set,
    validate_taint,
)
from pinnace.kinds.validation.fields import NOT_POSITIVE, validate_given_name, validate_immutable, validate_name
from pinnace.kinds.validation.node_selectors import NODE_SELECTOR_TERM, validate_node_selector
from pinnace.model import names, quantity
from pinnace.model.field_errors import FieldError, forbidden, invalid, required, too_long, too_many
from pinnace.model.objects import NOTHING, Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

MAX_DEVICES = 128
MAX_ADVANCED_DEVICES = 64
MAX_COUNTER_SETS = 8
MAX_COUNTERS = 32
MAX_CONSUMPTIONS = 2
MAX_ATTRIBUTES = 32
MAX_TAINTS = 16
MAX_VALUE_LENGTH = 64
MAX_VALID_VALUES = 10
ATTRIBUTE_VALUES = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_ANY_VALUE = ", ".join(f"`{field}`" for field in ATTRIBUTE_VALUES)
ONE_OF_NODES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
ONE_OF_DEVICE_NODES = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
NO_DEVICE_NODES = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)

_pre_release = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_is_semantic_version = re.compile(
    rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-{_pre_release}(\.{_pre_release})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
).fullmatch


def _default_slice(resource_slice: Object) -> None:
    spec = resource_slice.setdefault("spec", {})
    for device in spec.get("devices") or []:
        for taint in device.get("taints") or []:
            default_taint(taint)
        for amount in (device.get("capacity") or {}).values():
            amount.setdefault("value", "0")
    consumers = [device.get("consumesCounters") or [] for device in spec.get("devices") or []]
    for counter_set in chain(spec.get("sharedCounters") or [], *consumers):
        for counter in (counter_set.get("counters") or {}).values():
            counter.setdefault("value", "0")


def _validate_slice(resource_slice: ResourceSlice, old: ResourceSlice | None) -> Iterator[FieldError]:
    spec, before = resource_slice.get("spec", {}), None if old is None else old.get("spec", {})
    yield from driver_name_errors(spec.get("driver", ""), "spec.driver")
    yield from _validate_pool(spec.get("pool", {}), "spec.pool")
    if before is not None:
        pool_name, pool_before = spec.get("pool", {}).get("name", ""), before.get("pool", {}).get("name", "")
        yield from validate_immutable(pool_name, pool_before, "spec.pool.name")
        yield from validate_immutable(spec.get("driver", ""), before.get("driver", ""), "spec.driver")
        yield from validate_immutable(spec.get("nodeName"), before.get("nodeName"), "spec.nodeName")
    yield from _validate_node(spec, "spec")
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    yield from _validate_devices(spec, before or NOTHING)
    yield from validate_set(
        counters, MAX_COUNTER_SETS, "spec.sharedCounters", _validate_counter_set, key=lambda item: item.get("name", "")
    )


def _validate_devices(spec: ResourceSliceSpec, before: ResourceSliceSpec) -> Iterator[FieldError]:
    devices = spec.get("devices") or []
    devices_before = {device.get("name"): device for device in before.get("devices") or []}

    def validate_device(device: Device, path: str) -> Iterator[FieldError]:
        taints_before = devices_before.get(device.get("name"), {}).get("taints")
        per_device = bool(spec.get("perDeviceNodeSelection"))
        return _validate_device(device, path, taints_before=taints_before, per_device=per_device)

    is_advanced = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = MAX_ADVANCED_DEVICES if is_advanced else MAX_DEVICES
    yield from validate_set(devices, most, "spec.devices", validate_device, key=lambda device: device.get("name", ""))


def _validate_pool(pool: ResourcePool, path: str) -> Iterator[FieldError]:
    yield from validate_pool_name(pool.get("name", ""), f"{path}.name")
    if pool.get("resourceSliceCount", 0) <= 0:
        yield invalid(f"{path}.resourceSliceCount", pool.get("resourceSliceCount", 0), NOT_POSITIVE)
    if pool.get("generation", 0) < 0:
        yield invalid(f"{path}.generation", pool["generation"], "must be greater than or equal to zero")


def _validate_node(spec: ResourceSliceSpec, path: str) -> Iterator[FieldError]:
    fields = []
    if (node := spec.get("nodeName")) is not None:
        if node:
            fields.append("`nodeName`")
            yield from validate_name(node, names.dns_subdomain, f"{path}.nodeName")
        else:
            yield invalid(f"{path}.nodeName", node, "must be either unset or set to a non-empty string")
    if (selector := spec.get("nodeSelector")) is not None:
        fields.append("`nodeSelector`")
        terms = selector.get("nodeSelectorTerms") or []
        yield from validate_node_selector(selector, f"{path}.nodeSelector")
        if len(terms) != 1:
            view = [NODE_SELECTOR_TERM.view(term) for term in terms] or None
            detail = "must have exactly one node selector term"
            yield invalid(f"{path}.nodeSelector.nodeSelectorTerms", view, detail)
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field):
            fields.append(f"`{field}`")
        elif spec.get(field) is not None:
            yield invalid(f"{path}.{field}", False, "must be either unset or set to true")
    if not fields:
        yield required(path, ONE_OF_NODES)
    elif len(fields) > 1:
        yield invalid(path, f"{{{', '.join(fields)}}}", f"{ONE_OF_NODES}, but multiple fields are set")


def _validate_device(
    device: Device, path: str, *, taints_before: Sequence[Any] | None, per_device: bool
) -> Iterator[FieldError]:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    yield from validate_device_name(device.get("name", ""), f"{path}.name")
    total = len(attributes) + len(capacity)
    if total > MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}"
        yield invalid(path, total, detail)
    for name, attribute in attributes.items():
        yield from validate_attribute_name(name, f"{path}.attributes")
        yield from _validate_attribute(attribute, f"{path}.attributes[{name}]")
    for name, amount in capacity.items():
        yield from validate_attribute_name(name, f"{path}.capacity")
        if (policy := amount.get("requestPolicy")) is None:
            continue
        place = f"{path}.capacity[{name}].requestPolicy"
        if device.get("allowMultipleAllocations"):
            yield from _validate_request_policy(policy, amount.get("value", "0"), place)
        else:
            yield forbidden(place, "allowMultipleAllocations must be true")
    if device.get("taints") != taints_before:
        yield from validate_list(device.get("taints"), MAX_TAINTS, f"{path}.taints", validate_taint)
    yield from validate_set(
        device.get("consumesCounters"),
        MAX_CONSUMPTIONS,
        f"{path}.consumesCounters",
        _validate_consumption,
        key=lambda item: item.get("counterSet", ""),
    )
    yield from _validate_device_node(device, path, per_device=per_device)
    yield from validate_binding_condition(device, path)


def _validate_device_node(device: Device, path: str, *, per_device: bool) -> Iterator[FieldError]:
    if not per_device:
        if any(device.get(field) is not None for field in ("nodeName", "nodeSelector", "allNodes")):
            yield invalid(path, None, NO_DEVICE_NODES)
        return
    fields = []
    if (node := device.get("nodeName")) is not None:
        if node:
            fields.append("`nodeName`")
            yield from validate_name(node, names.dns_subdomain, f"{path}.nodeName")
        else:
            yield invalid(f"{path}.nodeName", node, "must not be empty")
    if (selector := device.get("nodeSelector")) is not None:
        fields.append("`nodeSelector`")
        yield from validate_node_selector(selector, f"{path}.nodeSelector")
    if device.get("allNodes"):
        fields.append("`allNodes`")
    elif device.get("allNodes") is not None:
        yield invalid(f"{path}.allNodes", False, "must be either unset or set to true")
    if not fields:
        yield required(path, ONE_OF_DEVICE_NODES)
    elif len(fields) > 1:
        yield invalid(path, f"{{{', '.join(fields)}}}", ONE_OF_DEVICE_NODES)


def _validate_text(text: str, path: str) -> Iterator[FieldError]:
    if len(text.encode()) > MAX_VALUE_LENGTH:
        yield too_long(path, MAX_VALUE_LENGTH)


def _validate_version(version: str, path: str) -> Iterator[FieldError]:
    if not _is_semantic_version(version):
        yield invalid(path, version, "must be a string compatible with semver.org spec 2.0.0")
    yield from _validate_text(version, path)


def _validate_attribute(attribute: DeviceAttribute, path: str) -> Iterator[FieldError]:
    if (text := attribute.get("string")) is not None:
        yield from _validate_text(text, f"{path}.string")
    if (version := attribute.get("version")) is not None:
        yield from _validate_version(version, f"{path}.version")
    for field in ("bools", "ints", "strings", "versions"):
        if (values := attribute.get(field)) is not None and not values:
            yield invalid(f"{path}.{field}", values, "must not be empty if specified")
    for index, text in enumerate(attribute.get("strings") or ()):
        yield from _validate_text(text, f"{path}.strings[{index}]")
    for index, version in enumerate(attribute.get("versions") or ()):
        yield from _validate_version(version, f"{path}.versions[{index}]")
    fields = [field for field in ATTRIBUTE_VALUES if attribute.get(field) is not None]
    if not fields:
        yield invalid(path, "", f"must specify one of: {_ANY_VALUE}")
    elif len(fields) > 1:
        yield invalid(path, f"{{{', '.join(fields)}}}", f"must specify exactly one of: {_ANY_VALUE}")


def _validate_counter_set(counter_set: CounterSet, path: str) -> Iterator[FieldError]:
    yield from _validate_counter_name(counter_set.get("name", ""), f"{path}.name")
    yield from _validate_counter(counter_set.get("counters") or {}, f"{path}.counters")


def _validate_consumption(consumption: DeviceCounterConsumption, path: str) -> Iterator[FieldError]:
    yield from _validate_counter_name(consumption.get("counterSet", ""), f"{path}.counterSet")
    yield from _validate_counter(consumption.get("counters") or {}, f"{path}.counters")


def _validate_counter_name(name: str, path: str) -> Iterator[FieldError]:
    yield from validate_given_name(name, names.dns_label, path)


def _validate_counter(counters: Mapping[str, Counter], path: str) -> Iterator[FieldError]:
    if not counters:
        yield required(path)
    elif len(counters) > MAX_COUNTERS:
        yield too_many(path, len(counters), MAX_COUNTERS)
    else:
        for name in counters:
            yield from validate_name(name, names.dns_label, path)


# --- request policies of a capacity


def _validate_request_policy(policy: CapacityRequestPolicy, capacity: str, path: str) -> Iterator[FieldError]:
    values, bounds, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if values and bounds is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden(path, detail)
    elif values:
        if default is None:
            yield required(f"{path}.default", "required when validValues is defined")
        else:
            yield from _validate_valid_value(values, default, capacity, f"{path}.validValues")
    elif bounds is not None:
        if default is None:
            yield required(f"{path}.default", "required when validRange is defined")
        else:
            yield from _validate_valid_range(bounds, default, capacity, f"{path}.validRange")


def _validate_valid_value(values: Sequence[str], default: str, capacity: str, path: str) -> Iterator[FieldError]:
    def validate_option(option: str, place: str) -> Iterator[FieldError]:
        if quantity.parse(option) > quantity.parse(capacity):
            yield invalid(place, option, f"option is larger than capacity value: {capacity}")

    for i, value in enumerate(values[1:], start=1):
        if quantity.parse(values[i - 1]) > quantity.parse(value):
            yield invalid(f"{path}[{i}]", value, "values must be sorted in ascending order")
    yield from validate_set(
        values, MAX_VALID_VALUES, path, validate_option, key=lambda value: str(quantity.parse(value).value)
    )
    if all(quantity.parse(value) != quantity.parse(default) for value in values):
        yield invalid(path, default, "default value is not valid according to the requestPolicy")


def _validate_valid_range(
    bounds: CapacityRequestPolicyRange, default: str, capacity: str, path: str
) -> Iterator[FieldError]:
    least, most, step = bounds.get("min"), bounds.get("max"), bounds.get("step")
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    whole = quantity.parse(capacity)
    if quantity.parse(least) > whole:
        yield invalid(f"{path}.min", least, f"min is larger than capacity value: {capacity}")
    if quantity.parse(default) < quantity.parse(least):
        yield invalid(f"{path}.min", default, f"default is less than min: {least}")
    if most is not None:
        if quantity.parse(least) > quantity.parse(most):
            yield invalid(f"{path}.max", least, f"min is larger than max: {most}")
        if quantity.parse(most) > whole:
            yield invalid(f"{path}.max", most, f"max is larger than capacity value: {capacity}")
        if quantity.parse(default) > quantity.parse(most):
            yield invalid(f"{path}.max", default, f"default is more than max: {most}")
    if step is None:
        return
    one_step = quantity.parse(least) + quantity.parse(step)
    if one_step > whole:
        detail = f"one step {one_step} is larger than capacity value: {capacity}"
        yield invalid(f"{path}.step", step, detail)
    for value in (default, most):
        if value is not None and not _is_on_a_step(value, least, step):
            detail = f"value is not a multiple of a given step ({step}) from ({least})"
            yield invalid(f"{path}.step", value, detail)


def _is_on_a_step(value: str, least: str, step: str) -> bool:
    size = quantity.parse(step).value
    return size != 0 and (quantity.parse(value).value - quantity.parse(least).value) % size == 0


def _slice_warnings(resource_slice: ResourceSlice, old: ResourceSlice | None) -> Iterator[str]:
    driver = resource_slice.get("spec", {}).get("driver", "")
    if old is None and driver != driver.lower():
        yield f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters'


RESOURCE_SLICE = Strategy(
    answers_with_deleted=True,
    default=_default_slice,
    validate=_validate_slice,
    warnings=_slice_warnings,
    tracks_generation=True,
)
