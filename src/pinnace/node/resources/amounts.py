"""The resources of pods in the kernel's units: CPU weights and quotas, memory limits, and out-of-memory scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.kinds.pods.resource_amounts import qos_class
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.node.runtime.runtime import Resources

POD_PIDS = 4096
_MINIMUM_SHARES = 2
_MINIMUM_QUOTA = 1000
_GUARANTEED_SCORE, _BEST_EFFORT_SCORE = -997, 1000
_NODE_CRITICAL = 2_000_001_000
"""The priority of system-node-critical."""


def container_resources(pod: Object, container: Object, memory_capacity: int) -> Resources:
    """Return the limits of one container."""
    limits, requests = _stated(container, "limits"), _stated(container, "requests")
    return Resources(
        cpu_shares=_shares(_milli(requests, "cpu") or _milli(limits, "cpu")),
        cpu_quota=_quota(_milli(limits, "cpu")),
        memory_bytes=_bytes(limits, "memory"),
        pids=POD_PIDS,
        oom_score_adjust=_oom_score(pod, container, memory_capacity),
    )


def pod_resources(pod: Object) -> Resources:
    """Return the limits of the whole pod: the sums, where every container has a limit; or the pod's own."""
    spec = pod["spec"]
    own = spec.get("resources") or {}
    containers = list(_at_once(spec))
    limits = {
        name: sum(read(_stated(one, "limits"), name) for one in containers)
        if all(read(_stated(one, "limits"), name) for one in containers)
        else 0
        for name, read in (("cpu", _milli), ("memory", _bytes))
    }
    wanted = sum(_milli(_stated(one, "requests"), "cpu") for one in containers)
    own_limits, own_requests = own.get("limits") or {}, own.get("requests") or {}
    return Resources(
        cpu_shares=_shares(_milli(own_requests, "cpu") or wanted),
        cpu_quota=_quota(_milli(own_limits, "cpu") or limits["cpu"]),
        memory_bytes=_bytes(own_limits, "memory") or limits["memory"],
    )


def _at_once(spec: Object) -> Iterator[Object]:
    """The containers that run at the same time."""
    yield from spec["containers"]
    yield from (one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always")


def _oom_score(pod: Object, container: Object, memory_capacity: int) -> int:
    """Return the adjustment of kubelet: the kernel kills containers that use more than they requested first."""
    if (pod["spec"].get("priority") or 0) >= _NODE_CRITICAL:
        return _GUARANTEED_SCORE
    match qos_class(pod["spec"]):
        case "Guaranteed":
            return _GUARANTEED_SCORE
        case "BestEffort":
            return _BEST_EFFORT_SCORE
    score = 1000 - 1000 * _bytes(_stated(container, "requests"), "memory") // max(1, memory_capacity)
    return max(1000 + _GUARANTEED_SCORE, min(_BEST_EFFORT_SCORE - 1, score))


def _stated(container: Object, what: str) -> Mapping[str, Any]:
    stated: Mapping[str, Any] = (container.get("resources") or {}).get(what) or {}
    return stated


def _milli(amounts: Mapping[str, Any], name: str) -> int:
    return quantity.parse(amounts[name]).milli_value if name in amounts else 0


def _bytes(amounts: Mapping[str, Any], name: str) -> int:
    return quantity.parse(amounts[name]).value if name in amounts else 0


def _shares(milli: int) -> int:
    return max(_MINIMUM_SHARES, milli * 1024 // 1000)


def _quota(milli: int) -> int:
    return max(_MINIMUM_QUOTA, milli * 100) if milli else 0
