"""The quota usage of one object: resources of pods, storage and devices of claims, ports of services, counts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pinnace.kinds.pods.resource_amounts import qos_class, total_of
from pinnace.kinds.volumes.claims import storage_class_of
from pinnace.model.objects import NOTHING, AnyObject, Object
from pinnace.model.quantity import Quantity, of, parse
from pinnace.model.selectors import from_object
from pinnace.model.typed_objects import (
    Affinity,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    ResourceQuotaSpec,
    ResourceRequirements,
    ScopedResourceSelectorRequirement,
    ServiceSpec,
)
from pinnace.process.clock import later

Amounts = dict[str, Quantity]
Place = tuple[str, str]
"""Group and plural."""

PODS: Place = ("", "pods")
SERVICES: Place = ("", "services")
CLAIMS: Place = ("", "persistentvolumeclaims")
RESOURCE_CLAIMS: Place = ("resource.k8s.io", "resourceclaims")
IGNORED = frozenset((("", "events"), ("events.k8s.io", "events")))
_PLAIN_COUNTS = frozenset(("configmaps", "secrets", "replicationcontrollers", "resourcequotas"))
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = frozenset(
    ("pods", *_COMPUTE, *(f"requests.{name}" for name in _COMPUTE), *(f"limits.{name}" for name in _COMPUTE))
)
_OF_SERVICES = frozenset(("services", "services.nodeports", "services.loadbalancers"))
_OF_CLAIMS = ("persistentvolumeclaims", "requests.storage")
_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_DEVICES = ".deviceclass.resource.k8s.io/devices"
_DEVICES_OF_PODS = "requests.deviceclass.resource.kubernetes.io/"
"""Devices of a class that pods request as an extended resource, without a claim."""
_MOST_DEVICES = 32
"""The devices that one request can get at most: the charge of a request for all devices of a class."""
_TO_BE_SAID = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_ONE = of(1)
_NONE = of(0)


def counted_by(name: str) -> Place | None:
    """Whose objects use up this resource of a quota; None for a name that means nothing."""
    if name.startswith("count/"):
        plural, _, group = name[len("count/") :].partition(".")
        return group, plural
    if name in _OF_PODS or name.startswith(("hugepages-", "requests.hugepages-")):
        return PODS
    if name in _OF_SERVICES:
        return SERVICES
    if name in _OF_CLAIMS or (_STORAGE_CLASS in name and name.endswith(_OF_CLAIMS)):
        return CLAIMS
    if name.endswith(_DEVICES):
        return RESOURCE_CLAIMS
    if name in _PLAIN_COUNTS:
        return "", name
    if name.startswith("requests.") and "/" in name and "kubernetes.io/" not in name:
        return PODS  # An extended resource.
    if name.startswith(_DEVICES_OF_PODS):
        return PODS
    return None


def usage_of(place: Place, obj: Any, now: datetime) -> Amounts:
    """Everything that the object uses, by the names that a quota may have for it."""
    group, plural = place
    used: Amounts = {f"count/{plural}.{group}" if group else f"count/{plural}": _ONE}
    if place == PODS:
        if _is_charged(obj, now):
            used |= _pod_usage(obj.get("spec") or NOTHING)
    elif place == SERVICES:
        used |= _service_usage(obj.get("spec") or NOTHING)
    elif place == CLAIMS:
        used |= _claim_usage(obj)
    elif place == RESOURCE_CLAIMS:
        used |= _device_usage(obj.get("spec") or NOTHING)
    elif not group and plural in _PLAIN_COUNTS:
        used[plural] = _ONE
    return used


def is_in_scope(place: Place, obj: Any, quota_spec: ResourceQuotaSpec) -> bool:
    """Whether a quota is about this object. Only pods have scopes, and claims one."""
    scopes: list[ScopedResourceSelectorRequirement]
    scopes = [{"scopeName": name, "operator": "Exists"} for name in quota_spec.get("scopes") or ()]
    scopes += (quota_spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_matches(place, obj, scope) for scope in scopes)


def unsaid(spec: PodSpec, limited: Iterable[str]) -> str:
    """Return the resources that a quota limits and that the containers of a pod do not set."""
    if spec.get("resources"):
        return ""
    wanted = [name for name in sorted(limited) if name in _TO_BE_SAID]
    missing: dict[str, list[str]] = {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        listed = _names_of(container.get("resources") or NOTHING)
        for name in wanted:
            if name not in listed:
                missing.setdefault(name, []).append(container.get("name", ""))
    if not missing:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(set(who)))}" for name, who in missing.items())


def is_ending(pod: AnyObject) -> bool:
    """Whether a pod has a deadline, which quotas call terminating."""
    deadline = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    return deadline is not None and deadline >= 0


def _is_charged(pod: Pod, now: datetime) -> bool:
    """Neither one that has ended nor one that was to be gone long ago."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    metadata = pod["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds") is None:
        return True
    end = datetime.fromisoformat(metadata["deletionTimestamp"].replace("Z", "+00:00")).astimezone(UTC)
    return now <= later(end, metadata["deletionGracePeriodSeconds"])


def _pod_usage(spec: PodSpec) -> Amounts:
    totals = {what: total_of(spec, what) for what in ("requests", "limits")}
    used: Amounts = {"pods": _ONE}
    for name, amount in totals["requests"].items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            used[name] = used[f"requests.{name}"] = amount
        elif "/" in name:
            used[f"requests.{name}"] = amount
    for name in _COMPUTE:
        if name in totals["limits"]:
            used[f"limits.{name}"] = totals["limits"][name]
    return used


def _names_of(resources: ResourceRequirements) -> set[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    return {*requests, *(f"requests.{name}" for name in requests), *(f"limits.{name}" for name in limits)}


def _service_usage(spec: ServiceSpec) -> Amounts:
    ports, kind = spec.get("ports") or [], spec.get("type")
    node_ports = 0
    if kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False):
        node_ports = len(ports)
    elif kind == "LoadBalancer":
        node_ports = sum(1 for port in ports if port.get("nodePort"))
    balancers = _ONE if kind == "LoadBalancer" else _NONE
    return {"services": _ONE, "services.nodeports": of(node_ports), "services.loadbalancers": balancers}


def _claim_usage(claim: PersistentVolumeClaim) -> Amounts:
    used: Amounts = {"persistentvolumeclaims": _ONE}
    requested = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
    if requested is not None:
        storage = parse(requested).round_up_to(0)
        allocated = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage")
        if allocated is not None and parse(allocated) > storage:
            storage = parse(allocated).round_up_to(0)
        used["requests.storage"] = storage
    if name := storage_class_of(claim):
        used |= {f"{name}{_STORAGE_CLASS}{what}": amount for what, amount in used.items()}
    return used


def _device_usage(spec: Object) -> Amounts:
    """Return the devices of each class. Of alternatives, the largest number of one class counts."""
    counts: dict[str, int] = {}
    for request in (spec.get("devices") or {}).get("requests") or ():
        most: dict[str, int] = {}
        # Before v1 the fields of `exactly` are those of the request itself.
        for choice in request.get("firstAvailable") or (request.get("exactly") or request,):
            if name := choice.get("deviceClassName"):
                most[name] = max(most.get(name, 0), _device_count(choice))
        for name, count in most.items():
            counts[name] = counts.get(name, 0) + count
    return {f"{name}{_DEVICES}": of(count) for name, count in counts.items()}


def _device_count(request: Object) -> int:
    match request.get("allocationMode", "ExactCount"):
        case "ExactCount":
            return int(request.get("count", 1))
        case "All":
            return _MOST_DEVICES
    return 0  # A mode of a later version.


def _matches(place: Place, obj: Any, scope: ScopedResourceSelectorRequirement) -> bool:
    name, spec = scope.get("scopeName"), obj.get("spec") or NOTHING
    if place == CLAIMS and name == "VolumeAttributesClass":
        return _selects(scope, "VolumeAttributesClass", _attribute_classes(obj))
    if place != PODS:
        return False
    match name:
        case "Terminating":
            return is_ending(obj)
        case "NotTerminating":
            return not is_ending(obj)
        case "BestEffort":
            return qos_class(spec) == "BestEffort"
        case "NotBestEffort":
            return qos_class(spec) != "BestEffort"
        case "PriorityClass":
            named = spec.get("priorityClassName")
            return _selects(scope, "PriorityClass", [named] if named else [])
        case "CrossNamespacePodAffinity":
            return _looks_across_namespaces(spec.get("affinity") or NOTHING)
    return False


def _selects(scope: ScopedResourceSelectorRequirement, key: str, values: list[str]) -> bool:
    selector = from_object(
        {"matchExpressions": [{"key": key, "operator": scope.get("operator"), "values": scope.get("values") or []}]}
    )
    return any(selector.matches({key: value}) for value in values) if values else selector.matches({})


def _attribute_classes(claim: PersistentVolumeClaim) -> list[str]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    modifying = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    names = (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), modifying)
    return sorted({name for name in names if name})


def _looks_across_namespaces(affinity: Affinity) -> bool:
    for field in ("podAffinity", "podAntiAffinity"):
        side = affinity.get(field) or {}
        terms = list(side.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        weighted = side.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [term.get("podAffinityTerm") or NOTHING for term in weighted]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
