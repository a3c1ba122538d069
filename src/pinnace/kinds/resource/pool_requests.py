"""Defaults and validation of ResourcePoolStatusRequests: the question about pools, and the answer of a controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pinnace.kinds.resource.checks import MAX_POOL_NAME, validate_qualified_attribute
from pinnace.kinds.validation.fields import validate_condition, validate_given_name, validate_name
from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, FieldError, duplicate, invalid, required, too_long, too_many
from pinnace.model.objects import NOTHING
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    PoolStatus,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestStatus,
    ShareableSummaryStatus,
)

DEFAULT_LIMIT, MAX_LIMIT = 100, 1000
MAX_CONDITIONS = 10
MAX_ITEMS = 32
MAX_ERROR_BYTES = 256
_COUNTS = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")
_PARTITION = ("attribute", "type", "total", "allocatable")


def _default_request(request: ResourcePoolStatusRequest) -> None:
    request.setdefault("spec", {"driver": ""}).setdefault("limit", DEFAULT_LIMIT)


def _validate_request(
    request: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest | None
) -> Iterator[FieldError]:
    spec = request["spec"]
    if old is not None:
        if spec != old.get("spec"):
            yield invalid("spec", None, IMMUTABLE)
        return
    yield from validate_given_name(spec.get("driver", ""), names.dns_subdomain_in_any_case, "spec.driver")
    if (pool := spec.get("poolName")) is not None:
        yield from _validate_pool_name(pool, "spec.poolName")
    limit = spec.get("limit", DEFAULT_LIMIT)
    if limit > MAX_LIMIT:
        yield invalid("spec.limit", limit, f"must be less than or equal to {MAX_LIMIT}")
    yield from _validate_least(limit, 1, "spec.limit")
    if (attribute := spec.get("defaultPartitionTypeAttribute")) is not None:
        yield from validate_qualified_attribute(attribute, "spec.defaultPartitionTypeAttribute")


def _validate_pool_name(name: str, path: str) -> Iterator[FieldError]:
    if len(name) > MAX_POOL_NAME:
        yield too_long(path, MAX_POOL_NAME)
    for number, part in enumerate(name.split("/")):
        for error in names.long_name(part) if part else ("must not be empty",):
            yield invalid(path, part or name, f"segment {number}: {error}")


def _validate_least(value: int | None, least: int, path: str) -> Iterator[FieldError]:
    if value is not None and value < least:
        yield invalid(path, value, f"must be greater than or equal to {least}")


def _validate_number(holder: Mapping[str, Any], field: str, path: str) -> Iterator[FieldError]:
    """Check a number that must be given, and not negative."""
    if holder.get(field) is None:
        yield required(f"{path}.{field}")
    else:
        yield from _validate_least(holder[field], 0, f"{path}.{field}")


def _validate_status(request: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest | None) -> Iterator[FieldError]:
    status: ResourcePoolStatusRequestStatus | None = request.get("status")
    if status is None or status == (old or NOTHING).get("status"):
        return
    conditions, pools = status.get("conditions") or [], status.get("pools") or []
    yield from validate_condition(conditions, "status.conditions")
    yield from _validate_number(status, "poolCount", "status")
    if len(pools) > MAX_LIMIT:
        yield too_many("status.pools", len(pools), MAX_LIMIT)
    else:
        for number, pool in enumerate(pools):
            yield from _validate_pool(pool, f"status.pools[{number}]")
    if len(conditions) > MAX_CONDITIONS:
        yield too_many("status.conditions", len(conditions), MAX_CONDITIONS)


def _validate_pool(pool: PoolStatus, path: str) -> Iterator[FieldError]:
    yield from validate_given_name(pool.get("driver", ""), names.dns_subdomain_in_any_case, f"{path}.driver")
    if name := pool.get("poolName", ""):
        yield from _validate_pool_name(name, f"{path}.poolName")
    else:
        yield required(f"{path}.poolName")
    yield from _validate_number({"generation": pool.get("generation") or None}, "generation", path)
    yield from _validate_least(pool.get("resourceSliceCount"), 1, f"{path}.resourceSliceCount")
    counts: Mapping[str, Any] = pool
    for count in _COUNTS:
        yield from _validate_least(counts.get(count), 0, f"{path}.{count}")
    yield from validate_name(pool.get("nodeName"), names.long_name, f"{path}.nodeName")
    if len(pool.get("validationError", "").encode()) > MAX_ERROR_BYTES:
        yield too_long(f"{path}.validationError", MAX_ERROR_BYTES)
    yield from _validate_partitions(pool.get("partitionSummary") or [], f"{path}.partitionSummary")
    if (summary := pool.get("shareableSummary")) is not None:
        yield from _validate_shares(summary, f"{path}.shareableSummary")


def _validate_partitions(partitions: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    if len(partitions) > MAX_ITEMS:
        yield too_many(path, len(partitions), MAX_ITEMS)
        return
    seen = set()
    for number, partition in enumerate(partitions):
        key = (partition.get("attribute", ""), partition.get("type", ""))
        if key in seen:
            printed = {field: partition[field] for field in _PARTITION if field in partition}
            yield duplicate(f"{path}[{number}]", printed)
        seen.add(key)
    for number, partition in enumerate(partitions):
        yield from _validate_texts(partition, ("attribute", "type"), f"{path}[{number}]")
        for field in ("total", "allocatable"):
            yield from _validate_number(partition, field, f"{path}[{number}]")


def _validate_texts(holder: Mapping[str, Any], fields: Iterable[str], path: str) -> Iterator[FieldError]:
    for field in fields:
        if not holder.get(field):
            yield required(f"{path}.{field}")


def _validate_shares(summary: ShareableSummaryStatus, path: str) -> Iterator[FieldError]:
    for field in ("fullyAvailableDevices", "partiallyAvailableDevices"):
        yield from _validate_number(summary, field, path)
    capacity = summary.get("capacity") or []
    if len(capacity) > MAX_ITEMS:
        yield too_many(f"{path}.capacity", len(capacity), MAX_ITEMS)
        return
    for number, each in enumerate(capacity):
        yield from _validate_texts(each, ("name", "total", "consumed", "available"), f"{path}.capacity[{number}]")


RESOURCE_POOL_STATUS_REQUEST = Strategy(
    answers_with_deleted=True,
    default=_default_request,
    validate=_validate_request,
    validate_status=_validate_status,
    may_update_unconditionally=False,
)
