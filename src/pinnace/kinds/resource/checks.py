"""Checks shared by device claims, classes, slices and taint rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import orjson

from pinnace.kinds.validation.fields import find_repeats, validate_given_choice, validate_name
from pinnace.kinds.volumes.sources import validate_csi_driver_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, invalid, required, too_long, too_many
from pinnace.model.typed_objects import (
    Device,
    DeviceAllocationConfiguration,
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceTaint,
)
from pinnace.process.clock import server_now, to_rfc3339

MAX_REQUESTS = 32
MAX_SELECTORS = 32
MAX_CONFIGS = 32
MAX_EXPRESSION = 10 * 1024
MAX_OPAQUE_BYTES = 10 * 1024
MAX_POOL_NAME = 253
MAX_IDENTIFIER = 32
MAX_BINDING_CONDITIONS = 4
TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")
OMITTED = "<value omitted>"

ItemErrors = Callable[[Any, str], Iterator[FieldError]]

driver_name_errors = validate_csi_driver_name

_hexadecimal_form = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


def now() -> str:
    return to_rfc3339(server_now())


def validate_list(items: Sequence[Any] | None, most: int, path: str, validate_item: ItemErrors) -> Iterator[FieldError]:
    """Check the length of a list, then its items. If it is too long, that is the only error."""
    items = items or []
    if len(items) > most:
        yield too_many(path, len(items), most)
        return
    for i, item in enumerate(items):
        yield from validate_item(item, f"{path}[{i}]")


def validate_set(
    items: Sequence[Any] | None,
    most: int,
    path: str,
    validate_item: ItemErrors,
    *,
    key: Callable[[Any], Any] = lambda item: item,
) -> Iterator[FieldError]:
    """Check a list, then that no item repeats the key of an earlier one."""
    items = items or []
    yield from validate_list(items, most, path, validate_item)
    if len(items) > most:
        return
    seen: set[Hashable] = set()
    for i, item in enumerate(items):
        item_key = key(item)
        hashable = tuple(item_key.values()) if isinstance(item_key, dict) else item_key
        if hashable in seen:
            yield duplicate(f"{path}[{i}]", item_key)
        seen.add(hashable)


def validate_pool_name(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    if len(name) > MAX_POOL_NAME:
        yield too_long(path, MAX_POOL_NAME)
    for part in name.split("/"):
        yield from validate_name(part, names.dns_subdomain, path)


def validate_device_name(name: str, path: str) -> Iterator[FieldError]:
    yield from validate_name(name, names.dns_label, path)


def validate_share_id(uid: str, path: str) -> Iterator[FieldError]:
    if not _hexadecimal_form(uid):
        reason = "invalid UUID format" if len(uid) == 36 else f"invalid UUID length: {len(uid)}"
        yield invalid(path, uid, f"error validating uid: {reason}")
    elif uid != uid.lower():
        detail = (
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase "
            "hexadecimal characters"
        )
        yield invalid(path, uid, detail)


def validate_attribute_name(name: str, path: str) -> Iterator[FieldError]:
    """Check the name of an attribute or capacity: an identifier, optionally with its domain."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from _validate_identifier(name, path)
    elif len(parts) == 2:
        domain, identifier = parts
        if not domain:
            yield invalid(path, "", "the domain must not be empty")
        else:
            yield from driver_name_errors(domain, path)
        if not identifier:
            yield invalid(path, "", "the name must not be empty")
        else:
            yield from _validate_identifier(identifier, path)


def _validate_identifier(identifier: str, path: str) -> Iterator[FieldError]:
    if len(identifier) > MAX_IDENTIFIER:
        yield too_long(path, MAX_IDENTIFIER)
    yield from validate_name(identifier, names.c_identifier, path)


def validate_qualified_attribute(name: str, path: str) -> Iterator[FieldError]:
    yield from validate_attribute_name(name, path)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def validate_selector(selector: DeviceSelector, path: str) -> Iterator[FieldError]:
    if (cel := selector.get("cel")) is None:
        yield required(f"{path}.cel")
    elif len((expression := cel.get("expression", "")).encode()) > MAX_EXPRESSION:
        yield too_long(f"{path}.cel.expression", MAX_EXPRESSION)
    else:
        # CEL is imported with the first selector, so that starting a cluster does not wait for it.
        from pinnace.kinds.resource.expressions import validate_expression  # noqa: PLC0415

        yield from validate_expression(expression, f"{path}.cel.expression")


def validate_configuration(
    config: DeviceClassConfiguration | DeviceClaimConfiguration | DeviceAllocationConfiguration, path: str
) -> Iterator[FieldError]:
    if (opaque := config.get("opaque")) is None:
        yield required(f"{path}.opaque")
        return
    yield from validate_raw_object(opaque.get("parameters"), f"{path}.opaque.parameters")


def validate_opaque_drivers(
    configs: Sequence[DeviceClassConfiguration | DeviceClaimConfiguration], path: str
) -> Iterator[FieldError]:
    for index, config in enumerate(configs[:MAX_CONFIGS]):
        if (opaque := config.get("opaque")) is not None:
            driver, place = opaque.get("driver", ""), f"{path}[{index}].opaque.driver"
            yield from driver_name_errors(driver, place, names.dns_subdomain_in_any_case)


def validate_raw_object(value: Any, path: str) -> Iterator[FieldError]:
    """Check that this is a JSON object and not too large."""
    if value is None:
        yield required(path)
    elif len(orjson.dumps(value)) > MAX_OPAQUE_BYTES:
        yield too_long(path, MAX_OPAQUE_BYTES)
    elif not isinstance(value, dict):
        yield invalid(path, OMITTED, "must be a valid JSON object")


def default_taint(taint: DeviceTaint) -> None:
    taint.setdefault("timeAdded", now())


def validate_taint(taint: DeviceTaint, path: str, *, effect_before: str | None = None) -> Iterator[FieldError]:
    yield from validate_name(taint.get("key", ""), names.qualified_name, f"{path}.key")
    yield from validate_name(taint.get("value") or None, names.label_value, f"{path}.value")
    effect = taint.get("effect", "")
    if effect == effect_before:
        return
    yield from validate_given_choice(effect, TAINT_EFFECTS, f"{path}.effect")


def validate_binding_condition(holder: Device | DeviceRequestAllocationResult, path: str) -> Iterator[FieldError]:
    """Check the conditions that a device waits for before pods are bound, and those that end the waiting: both or
    neither."""
    awaited, failures = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    awaited_path, failures_path = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    for conditions, place in ((awaited, awaited_path), (failures, failures_path)):
        yield from validate_list(conditions, MAX_BINDING_CONDITIONS, place, _validate_label_key)
    repeated, awaited_set = find_repeats(awaited), set(awaited)
    for i, condition in enumerate(awaited):
        if repeated[i]:
            yield duplicate(f"{awaited_path}[{i}]", condition)
    repeated = find_repeats(failures)
    for i, condition in enumerate(failures):
        if repeated[i]:
            yield duplicate(f"{failures_path}[{i}]", condition)
        if condition in awaited_set:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{failures_path}[{i}]", condition, detail)
    if failures and not awaited:
        detail = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(awaited_path, holder.get("bindingConditions"), detail)
    if awaited and not failures:
        detail = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(failures_path, holder.get("bindingFailureConditions"), detail)


def _validate_label_key(key: str, path: str) -> Iterator[FieldError]:
    yield from validate_name(key, names.qualified_name, path)
