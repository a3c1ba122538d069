"""The checks that claims, classes, slices and taint rules of devices share."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from pinnace.kinds.validation.fields import name_faults
from pinnace.kinds.volumes.sources import csi_driver_name_faults
from pinnace.model import names
from pinnace.model.clock import SystemClock, to_rfc3339
from pinnace.model.field_errors import Cause, duplicate, invalid, not_supported, required, too_long, too_many
from pinnace.model.objects import Object

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

ItemFaults = Callable[[Any, str], Iterator[Cause]]

driver_name_faults = csi_driver_name_faults

_hexadecimal_form = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


def now() -> str:
    return to_rfc3339(SystemClock().now())


def list_faults(items: Sequence[Any] | None, most: int, path: str, item_faults: ItemFaults) -> Iterator[Cause]:
    """Too many items are told alone; else each item's own faults."""
    items = items or []
    if len(items) > most:
        yield too_many(path, len(items), most)
        return
    for i, item in enumerate(items):
        yield from item_faults(item, f"{path}[{i}]")


def set_faults(
    items: Sequence[Any] | None,
    most: int,
    path: str,
    item_faults: ItemFaults,
    *,
    key: Callable[[Any], Any] = lambda item: item,
) -> Iterator[Cause]:
    """As for a list; then each item that has the key of an earlier one."""
    items = items or []
    yield from list_faults(items, most, path, item_faults)
    if len(items) > most:
        return
    seen: set[Hashable] = set()
    for i, item in enumerate(items):
        shown = key(item)
        hashable = tuple(shown.values()) if isinstance(shown, dict) else shown
        if hashable in seen:
            yield duplicate(f"{path}[{i}]", shown)
        seen.add(hashable)


def pool_name_faults(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
        return
    if len(name) > MAX_POOL_NAME:
        yield too_long(path, MAX_POOL_NAME)
    for part in name.split("/"):
        yield from name_faults(part, names.dns_subdomain, path)


def device_name_faults(name: str, path: str) -> Iterator[Cause]:
    return name_faults(name, names.dns_label, path)


def share_id_faults(uid: str, path: str) -> Iterator[Cause]:
    if not _hexadecimal_form(uid):
        reason = "invalid UUID format" if len(uid) == 36 else f"invalid UUID length: {len(uid)}"
        yield invalid(path, uid, f"error validating uid: {reason}")
    elif uid != uid.lower():
        detail = (
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase "
            "hexadecimal characters"
        )
        yield invalid(path, uid, detail)


def attribute_name_faults(name: str, path: str) -> Iterator[Cause]:
    """The name of an attribute or capacity: an identifier, perhaps with the domain that it belongs to."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier_faults(name, path)
    elif len(parts) == 2:
        domain, identifier = parts
        if not domain:
            yield invalid(path, "", "the domain must not be empty")
        else:
            yield from driver_name_faults(domain, path)
        if not identifier:
            yield invalid(path, "", "the name must not be empty")
        else:
            yield from _identifier_faults(identifier, path)


def _identifier_faults(identifier: str, path: str) -> Iterator[Cause]:
    if len(identifier) > MAX_IDENTIFIER:
        yield too_long(path, MAX_IDENTIFIER)
    yield from name_faults(identifier, names.c_identifier, path)


def qualified_attribute_faults(name: str, path: str) -> Iterator[Cause]:
    yield from attribute_name_faults(name, path)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def selector_faults(selector: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if (cel := selector.get("cel")) is None:
        yield required(f"{path}.cel")
    elif len((expression := cel.get("expression", "")).encode()) > MAX_EXPRESSION:
        yield too_long(f"{path}.cel.expression", MAX_EXPRESSION)
    else:
        # CEL is imported with the first selector: no cluster should wait for it when it starts.
        from pinnace.kinds.resource.expressions import expression_faults  # noqa: PLC0415

        yield from expression_faults(expression, f"{path}.cel.expression")


def configuration_faults(config: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if (opaque := config.get("opaque")) is None:
        yield required(f"{path}.opaque")
        return
    yield from driver_name_faults(opaque.get("driver", ""), f"{path}.opaque.driver")
    yield from raw_object_faults(opaque.get("parameters"), f"{path}.opaque.parameters")


def raw_object_faults(value: Any, path: str) -> Iterator[Cause]:
    """Any JSON object, if it is not too large."""
    if value is None:
        yield required(path)
    elif len(orjson.dumps(value)) > MAX_OPAQUE_BYTES:
        yield too_long(path, MAX_OPAQUE_BYTES)
    elif not isinstance(value, dict):
        yield invalid(path, OMITTED, "must be a valid JSON object")


def default_taint(taint: Object) -> None:
    taint.setdefault("timeAdded", now())


def taint_faults(taint: Mapping[str, Any], path: str, *, effect_before: str | None = None) -> Iterator[Cause]:
    yield from name_faults(taint.get("key", ""), names.qualified_name, f"{path}.key")
    if taint.get("value"):
        yield from name_faults(taint["value"], names.label_value, f"{path}.value")
    effect = taint.get("effect", "")
    if effect == effect_before:
        return
    if not effect:
        yield required(f"{path}.effect")
    elif effect not in TAINT_EFFECTS:
        yield not_supported(f"{path}.effect", effect, TAINT_EFFECTS)


def binding_condition_faults(holder: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """What a device waits for before pods are bound, and what makes it give up: both or neither."""
    awaited, failures = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    awaited_path, failures_path = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    for conditions, place in ((awaited, awaited_path), (failures, failures_path)):
        yield from list_faults(conditions, MAX_BINDING_CONDITIONS, place, _label_key_faults)
    for i, condition in enumerate(awaited):
        if condition in awaited[:i]:
            yield duplicate(f"{awaited_path}[{i}]", condition)
    for i, condition in enumerate(failures):
        if condition in failures[:i]:
            yield duplicate(f"{failures_path}[{i}]", condition)
        if condition in awaited:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{failures_path}[{i}]", condition, detail)
    if failures and not awaited:
        detail = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(awaited_path, holder.get("bindingConditions"), detail)
    if awaited and not failures:
        detail = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(failures_path, holder.get("bindingFailureConditions"), detail)


def _label_key_faults(key: str, path: str) -> Iterator[Cause]:
    return name_faults(key, names.qualified_name, path)
