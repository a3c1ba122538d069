"""Resource requirements of pods and containers: sums, quality of service, and validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Literal

from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from pinnace.model.quantity import ZERO, InvalidQuantity, Quantity, parse
from pinnace.model.typed_objects import CoreResourceClaim, PodSpec, ResourceRequirements

HUGE_PAGES = "hugepages-"
Side = Literal["requests", "limits"]
COUNTED = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
"""Resources that exist only in whole numbers."""

_MILLI = -3
_MOST_LISTED = 100
_NO_CLAIMS: frozenset[str] = frozenset()
_NO_AMOUNTS: Mapping[str, str] = {}
_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_POD_LEVEL_RESOURCES = frozenset({"cpu", "memory"})
_STANDARD = COUNTED | {
    "cpu",
    "memory",
    "ephemeral-storage",
    "storage",
    *(f"{what}.{name}" for what in ("requests", "limits") for name in ("cpu", "memory", "ephemeral-storage")),
    "requests.storage",
}


def is_native(name: str) -> bool:
    """Return whether a resource is Kubernetes' own, not an extended resource such as example.com/gpu."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")


def may_overcommit(name: str) -> bool:
    """Return whether the limit may exceed the request."""
    return name in _CONTAINER_RESOURCES or (is_native(name) and not name.startswith(HUGE_PAGES))


def round_up(amounts: dict[str, Any] | None) -> None:
    """Round to the finest amount that is stored, a thousandth."""
    if not amounts:
        return
    for name, amount in amounts.items():
        text = str(amount)
        if text[-1:] in "nu" or "." in text:
            amounts[name] = str(parse(text).round_up_to(_MILLI))


def default_pod_level_requests(spec: PodSpec) -> None:
    """Derive pod-level requests from pod-level limits and the containers' sums."""
    resources = spec["resources"]
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if not limits and not requests:
        return
    for name, amount in sum_of(spec, "limits").items():
        if name.startswith(HUGE_PAGES) and name not in requests and name not in limits:
            limits[name] = str(amount)
    if limits:
        for name, amount in sum_of(spec, "requests").items():
            if name not in requests and name in _POD_LEVEL_RESOURCES:
                requests[name] = str(amount)
        for name, limit in limits.items():
            if name not in requests and (name in _POD_LEVEL_RESOURCES or name.startswith(HUGE_PAGES)):
                requests[name] = limit
        resources["limits"] = limits
    if requests:
        resources["requests"] = requests


def sum_of(spec: PodSpec, what: Side) -> dict[str, Quantity]:
    """Return the sum of the requests (or limits) of all containers: init containers run before, sidecars beside."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers", ()):
        _add(total, container.get("resources", {}).get(what))
    beside: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers", ()):
        amounts = container.get("resources", {}).get(what)
        moment: dict[str, Quantity] = {}
        if container.get("restartPolicy") == "Always":
            _add(total, amounts)
            _add(beside, amounts)
            moment.update(beside)
        else:
            _add(moment, amounts)
            for name, amount in beside.items():
                moment[name] = moment[name] + amount if name in moment else amount
        _raise_to(peak, moment)
    _raise_to(total, peak)
    return total


def total_of(spec: PodSpec, what: Side) -> dict[str, Quantity]:
    """Return the requests (or limits) of a pod: amounts of the whole pod replace sums, and overhead is added.

    Overhead adds to limits only where there is a limit.
    """
    total = sum_of(spec, what)
    for name, amount in ((spec.get("resources") or {}).get(what) or {}).items():
        total[name] = parse(amount)
    for name, amount in (spec.get("overhead") or {}).items():
        if what == "requests" or name in total:
            total[name] = total[name] + parse(amount) if name in total else parse(amount)
    return total


def _add(total: dict[str, Quantity], amounts: Mapping[str, Any] | None) -> None:
    for name, amount in (amounts or {}).items():
        total[name] = total[name] + parse(amount) if name in total else parse(amount)


def _raise_to(total: dict[str, Quantity], least: Mapping[str, Quantity]) -> None:
    for name, amount in least.items():
        if name not in total or total[name] < amount:
            total[name] = amount


def qos_class(spec: PodSpec) -> str:
    """Return Guaranteed if every limit equals its request, BestEffort if there are none, else Burstable."""
    own = spec.get("resources")
    if own is not None:
        stated = [own]
        everyone_limited = not own.get("limits") or _limits_cpu_and_memory(own)
    else:
        containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
        stated = [resources for container in containers if (resources := container.get("resources"))]
        everyone_limited = len(stated) == len(containers) and all(map(_limits_cpu_and_memory, stated))
    if not any(_asks_for_compute(resources) for resources in stated):
        return "BestEffort"
    if everyone_limited and _qos_sum(stated, "requests") == _qos_sum(stated, "limits"):
        return "Guaranteed"
    return "Burstable"


def _is_positive(amount: Any) -> bool:
    return amount is not None and amount != "0" and parse(amount) > ZERO


def _asks_for_compute(resources: ResourceRequirements) -> bool:
    for what in ("requests", "limits"):
        amounts = resources.get(what)
        if amounts and (_is_positive(amounts.get("cpu")) or _is_positive(amounts.get("memory"))):
            return True
    return False


def _limits_cpu_and_memory(resources: ResourceRequirements) -> bool:
    limits = resources.get("limits") or {}
    return _is_positive(limits.get("cpu")) and _is_positive(limits.get("memory"))


def _qos_sum(stated: list[ResourceRequirements], what: Side) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for resources in stated:
        amounts = resources.get(what)
        for name in ("cpu", "memory"):
            if amounts and name in amounts:
                amount = parse(amounts[name])
                if amount > ZERO:
                    total[name] = total[name] + amount if name in total else amount
    return total


def validate_container_resource(
    resources: ResourceRequirements, path: str, errs: list[FieldError], claims: Collection[str] = _NO_CLAIMS
) -> None:
    _validate_requirement(resources, path, errs, claims, is_pod_level=False)


def validate_overhead(overhead: dict[str, str], path: str, errs: list[FieldError]) -> None:
    _validate_requirement({"limits": overhead}, path, errs, _NO_CLAIMS, is_pod_level=False)


def validate_pod_level(spec: PodSpec, path: str, errs: list[FieldError], claims: Collection[str]) -> None:
    resources = spec["resources"]
    if spec.get("os", {}).get("name") == "windows":
        errs.append(forbidden(path, "may not be set for a windows pod"))
        return
    if "claims" in resources:
        errs.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    _validate_requirement(resources, path, errs, claims, is_pod_level=True)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, total in sum_of(spec, "requests").items():
        if name in requests and total > parse(requests[name]):
            detail = f"must be greater than or equal to aggregate container requests of {total}"
            errs.append(invalid(f"{path}.requests[{name}]", str(parse(requests[name])), detail))
    for name, total in sum_of(spec, "limits").items():
        if name.startswith(HUGE_PAGES) and name in limits and total > parse(limits[name]):
            detail = f"must be greater than or equal to aggregate container limits of {total}"
            errs.append(invalid(f"{path}.limits[{name}]", str(parse(limits[name])), detail))
    for index, container in enumerate(spec.get("containers", ())):
        for name, limit in (container.get("resources", {}).get("limits") or {}).items():
            if name in limits and parse(limit) > parse(limits[name]):
                where = f"{path}.containers[{index}][{name}].limits"
                detail = f"must be less than or equal to pod limits of {parse(limits[name])}"
                errs.append(invalid(where, str(parse(limit)), detail))


def _validate_requirement(
    resources: ResourceRequirements, path: str, errs: list[FieldError], claims: Collection[str], *, is_pod_level: bool
) -> None:
    limits, requests = resources.get("limits") or _NO_AMOUNTS, resources.get("requests") or _NO_AMOUNTS
    needs_compute = False
    for name, amount in limits.items():
        if is_pod_level or name not in _CONTAINER_RESOURCES or str(amount)[0] == "-":
            needs_compute = needs_compute or name.startswith(HUGE_PAGES)
            _validate_amount(name, amount, f"{path}.limits", errs, is_pod_level=is_pod_level)
    for name, amount in requests.items():
        if is_pod_level or name not in _CONTAINER_RESOURCES or str(amount)[0] == "-":
            needs_compute = needs_compute or name.startswith(HUGE_PAGES)
            _validate_amount(name, amount, f"{path}.requests", errs, is_pod_level=is_pod_level)
        limit = limits.get(name)
        if limit is None:
            if not may_overcommit(name):
                errs.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif amount != limit and not (may_overcommit(name) and _is_within(amount, limit)):
            _compare(name, parse(amount), parse(limit), f"{path}.requests", errs)
    if needs_compute and _POD_LEVEL_RESOURCES.isdisjoint(limits) and _POD_LEVEL_RESOURCES.isdisjoint(requests):
        errs.append(forbidden(path, "HugePages require cpu or memory"))
    if "claims" in resources:
        _validate_claim(resources["claims"], f"{path}.claims", errs, claims)


def _is_within(request: Any, limit: Any) -> bool:
    is_short = isinstance(request, str) and isinstance(limit, str) and len(request) + len(limit) <= _LONGEST_PAIR
    return _remembered_order(request, limit) if is_short else parse(request) <= parse(limit)


@lru_cache(maxsize=4096)
def _remembered_order(request: str, limit: str) -> bool:
    """Cached, because the pods of a workload have the same few pairs."""
    return parse(request) <= parse(limit)


_LONGEST_PAIR = 64  # Longer texts are rare, and could fill the memory.


def _compare(name: str, request: Quantity, limit: Quantity, path: str, errs: list[FieldError]) -> None:
    if request != limit and not may_overcommit(name):
        errs.append(invalid(path, str(request), f"must be equal to {name} limit of {limit}"))
    elif request > limit:
        errs.append(invalid(path, str(request), f"must be less than or equal to {name} limit of {limit}"))


def _validate_amount(name: str, amount: Any, path: str, errs: list[FieldError], *, is_pod_level: bool) -> None:
    if name not in _CONTAINER_RESOURCES or is_pod_level:
        _validate_name(name, f"{path}[{name}]", errs, is_pod_level=is_pod_level)
    parsed = parse(amount)
    if parsed < ZERO:
        errs.append(invalid(f"{path}[{name}]", str(parsed), "must be greater than or equal to 0"))
    if name in _CONTAINER_RESOURCES:
        return
    if (name in COUNTED or is_extended(name)) and parsed.milli_value % 1000:
        errs.append(invalid(f"{path}[{name}]", str(parsed), "must be an integer"))
    if name.startswith(HUGE_PAGES) and not _is_whole_pages(name, parsed):
        detail = f"{parsed} is not positive integer multiple of {name}"
        errs.append(invalid(f"{path}[{name}]", str(parsed), detail))


def _is_whole_pages(name: str, quantity: Quantity) -> bool:
    try:
        page = parse(name.removeprefix(HUGE_PAGES))
    except InvalidQuantity:
        return False
    return page > ZERO and page.milli_value % 1000 == 0 and quantity.value % page.value == 0


def validate_container_resource_name(name: str, path: str, errs: list[FieldError]) -> None:
    """Check the name of a resource that a container may request."""
    if name not in _CONTAINER_RESOURCES:
        _validate_name(name, path, errs, is_pod_level=False)


def _validate_name(name: str, path: str, errs: list[FieldError], *, is_pod_level: bool) -> None:
    malformed = names.qualified_name(name)
    errs.extend(invalid(path, name, err) for err in malformed)
    if not malformed and "/" not in name and name not in _STANDARD and not _is_any_huge_page(name):
        errs.append(invalid(path, name, "must be a standard resource type or fully qualified"))
        malformed = [name]
    if is_pod_level:
        if not malformed and name not in _POD_LEVEL_RESOURCES and not name.startswith(HUGE_PAGES):
            errs.append(not_supported(path, name, ["cpu", HUGE_PAGES, "memory"]))
    elif "/" not in name:
        if name not in _CONTAINER_RESOURCES and not name.startswith(HUGE_PAGES):
            errs.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        errs.append(invalid(path, name, "doesn't follow extended resource name standard"))


def _is_any_huge_page(name: str) -> bool:
    return name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def _validate_claim(claims: list[CoreResourceClaim], path: str, errs: list[FieldError], known: Collection[str]) -> None:
    seen: set[str] = set()
    requested: Counter[str] = Counter()
    listed = f": {_list_names(known)}" if known else " which is empty"
    for index, claim in enumerate(claims):
        where = f"{path}[{index}]"
        name, request = claim.get("name", ""), claim.get("request", "")
        if not name:
            errs.append(required(where))
            continue
        if name in seen:
            errs.append(duplicate(where, name))
        else:
            if request:
                errs.extend(invalid(f"{where}.request", request, err) for err in names.dns_label(request))
            key = f"{name}/{request}" if request else name
            if key in seen:
                errs.append(duplicate(where, key))
            elif request:
                requested[name] += 1
            else:
                errs.extend([duplicate(where, name)] * requested[name])
            seen.add(key)
        if name not in known:
            message = f'Not found: "{name}": must be one of the names in pod.spec.resourceClaims{listed}'
            errs.append(FieldError(where, "FieldValueNotFound", message))


def _list_names(names: Collection[str]) -> str:
    """Return the names in order. Beyond a limit of our own they are cut: each error lists them."""
    listed = sorted(names)
    return ", ".join(listed if len(listed) <= _MOST_LISTED else (*listed[:_MOST_LISTED], "..."))
