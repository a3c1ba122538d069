"""The resources of pods in the kernel's units: CPU weights and quotas, memory limits, and out-of-memory scores."""

from __future__ import annotations

from collections.abc import Mapping

from pinnace.kinds.pods.resource_amounts import Side, qos_class, sum_of, total_of
from pinnace.model import quantity
from pinnace.model.quantity import ZERO, Quantity
from pinnace.model.typed_objects import Container, Pod, PodSpec
from pinnace.node.resources.huge_pages import limits_of_pages
from pinnace.node.runtime.runtime import Resources

POD_PIDS = 4096
"""The most processes of a pod, and of each of its containers."""
_MINIMUM_SHARES = 2
_MINIMUM_QUOTA = 1000
_GUARANTEED_SCORE, _BEST_EFFORT_SCORE = -997, 1000
_NODE_CRITICAL = 2_000_001_000
"""The priority of system-node-critical."""


def container_resources(pod: Pod, container: Container, memory_capacity: int) -> Resources:
    """Return the limits of one container. One without a limit of its own has that of the whole pod."""
    limits = {**_of_pod(pod["spec"], "limits"), **_stated(container, "limits")}
    cpu = _milli(limits, "cpu")
    return Resources(
        cpu_shares=_shares(_milli(_stated(container, "requests"), "cpu") or cpu),
        cpu_quota=_quota(cpu),
        memory_bytes=_bytes(limits, "memory"),
        pids=POD_PIDS,
        oom_score_adjust=_oom_score(pod, container, memory_capacity),
        huge_pages=limits_of_pages(limits),
    )


def pod_resources(pod: Pod) -> Resources:
    """Return the limits of the whole pod: the sums, where every container has a limit; or the pod's own.

    The overhead of its runtime class is added.
    """
    spec = pod["spec"]
    limits, requests = limits_of_pod(spec), total_of(spec, "requests")
    return Resources(
        cpu_shares=_shares(requests.get("cpu", ZERO).milli_value),
        cpu_quota=_quota(limits.get("cpu", ZERO).milli_value),
        memory_bytes=limits.get("memory", ZERO).value,
        pids=POD_PIDS,
        huge_pages=limits_of_pages({name: str(amount) for name, amount in requests.items()}),
    )


def limits_of_pod(spec: PodSpec) -> dict[str, Quantity]:
    """Return the limits of CPU and memory that hold for a pod as a whole."""
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    stated = [_stated(container, "limits") for container in containers]
    own, total = _of_pod(spec, "limits"), total_of(spec, "limits")
    return {
        name: total[name]
        for name in ("cpu", "memory")
        if _bytes(own, name) or all(_bytes(amounts, name) for amounts in stated)
    }


def _oom_score(pod: Pod, container: Container, memory_capacity: int) -> int:
    """Return the adjustment of kubelet: the kernel kills containers that use more than they requested first."""
    if (pod["spec"].get("priority") or 0) >= _NODE_CRITICAL:
        return _GUARANTEED_SCORE
    match qos_class(pod["spec"]):
        case "Guaranteed":
            return _GUARANTEED_SCORE
        case "BestEffort":
            return _BEST_EFFORT_SCORE
    requested = _bytes(_stated(container, "requests"), "memory")
    if whole := _bytes(_of_pod(pod["spec"], "requests"), "memory"):
        requested += _share_of_rest(pod["spec"], whole)
    score = 1000 - 1000 * requested // max(1, memory_capacity)
    return max(1000 + _GUARANTEED_SCORE, min(_BEST_EFFORT_SCORE - 1, score))


def _share_of_rest(spec: PodSpec, whole: int) -> int:
    """Return the share of each container in the memory that the pod as a whole requests beyond their sum."""
    rest = whole - sum_of(spec, "requests").get("memory", ZERO).value
    return max(0, rest) // (len(spec["containers"]) + len(spec.get("initContainers") or ()))


def _of_pod(spec: PodSpec, what: Side) -> Mapping[str, str]:
    return (spec.get("resources") or {}).get(what) or {}


def _stated(container: Container, what: Side) -> Mapping[str, str]:
    resources = container.get("resources") or {}
    return resources.get(what) or {}


def _milli(amounts: Mapping[str, str], name: str) -> int:
    return quantity.parse(amounts[name]).milli_value if name in amounts else 0


def _bytes(amounts: Mapping[str, str], name: str) -> int:
    return quantity.parse(amounts[name]).value if name in amounts else 0


def _shares(milli: int) -> int:
    return max(_MINIMUM_SHARES, milli * 1024 // 1000)


def _quota(milli: int) -> int:
    return max(_MINIMUM_QUOTA, milli * 100) if milli else 0
