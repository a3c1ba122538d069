"""The amounts that a pod requests and a node offers, as integers: thousandths of a cpu, whole units of all else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from pinnace.model.quantity import parse
from pinnace.model.typed_objects import Container, ContainerStatus
from pinnace.model.typed_objects import Pod as PodObject

Amounts = Mapping[str, int]
DEFAULT_CPU = 100
"""Thousandths of a cpu that a container without a request counts for when nodes are scored."""
DEFAULT_MEMORY = 200 * 1024 * 1024
LARGEST = 2**53
"""The largest amount of a pod or node: a thousand of them fit into the 64 bits of a node's sum, and one into a float.
Users may request more, which no node has."""
_NON_ZERO = {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY}
_POD_LEVEL = ("cpu", "memory")
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")


def requests_of(pod: PodObject) -> dict[str, int]:
    """Return the sum of the containers, or the largest moment of the init containers, plus overhead.

    Requests of the pod as a whole replace those of its containers. For a pod that is being resized the larger of
    desired, allocated and actual requests count.
    """
    return _with_pod_level(pod, _of_containers(pod, {}, uses_status=True), uses_status=True)


def non_zero_requests_of(pod: PodObject) -> tuple[int, int]:
    """Return cpu and memory of a pod on a node as scores count them: containers without requests have a default."""
    requests = requests_of(pod)
    missing = _NON_ZERO
    if is_pod_level(pod):
        missing = {name: amount for name, amount in _NON_ZERO.items() if name not in requests}
    if missing:
        requests = _with_pod_level(pod, _of_containers(pod, missing, uses_status=True), uses_status=True)
    return requests.get("cpu", 0), requests.get("memory", 0)


def scored_requests_of(pod: PodObject) -> dict[str, int]:
    """Return the requests of a waiting pod as NodeResourcesFit scores them: defaults for containers, no pod level."""
    return _sum((_of_containers(pod, _NON_ZERO, uses_status=False), amounts_of(pod["spec"].get("overhead") or {})))


def is_pod_level(pod: PodObject) -> bool:
    """Return whether cpu, memory or huge pages are requested for the pod as a whole."""
    return any(map(_is_pod_level_name, (pod["spec"].get("resources") or {}).get("requests") or {}))


def _is_pod_level_name(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def _with_pod_level(pod: PodObject, total: dict[str, int], *, uses_status: bool) -> dict[str, int]:
    spec, status = pod["spec"], pod.get("status") or {}
    stated = (spec.get("resources") or {}).get("requests") or {}
    effective = stated
    if uses_status and status.get("resources") is not None and stated:
        effective = _effective(
            pod, stated, (status["resources"] or {}).get("requests") or {}, status.get("allocatedResources") or {}
        )
    for name in stated:
        if _is_pod_level_name(name):
            total[name] = amount_of(name, effective.get(name, 0))
    return _sum((total, amounts_of(spec.get("overhead") or {})))


def _of_containers(pod: PodObject, missing: Amounts, *, uses_status: bool) -> dict[str, int]:
    spec = pod["spec"]
    statuses = _statuses_of(pod) if uses_status else {}
    total = _sum(_requests(pod, container, statuses, missing) for container in spec.get("containers") or ())
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        is_sidecar = container.get("restartPolicy") == "Always"
        wanted = _requests(pod, container, statuses if is_sidecar else {}, missing)
        if is_sidecar:
            total = _sum((total, wanted))
            sidecars = _sum((sidecars, wanted))
            wanted = sidecars
        else:
            wanted = _sum((sidecars, wanted))
        peak = _largest(peak, wanted)
    return _largest(total, peak)


def _statuses_of(pod: PodObject) -> dict[str, ContainerStatus]:
    status = pod.get("status") or {}
    return {
        container["name"]: container
        for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
        if container.get("resources") is not None
    }


def has_status_resources(pod: PodObject) -> bool:
    """Return whether the status states resources, which may differ from those of the spec during a resize."""
    return bool((pod.get("status") or {}).get("resources") or _statuses_of(pod))


def amounts_of(resources: Mapping[str, str | int]) -> dict[str, int]:
    return {name: amount_of(name, amount) for name, amount in resources.items()}


def is_counted(name: str) -> bool:
    """Return whether the scheduler counts a resource: cpu, memory, storage, or one that a node offers as a number."""
    return name in _NATIVE or is_scalar(name)


def is_extended(name: str) -> bool:
    """Return whether a resource is neither native nor reserved for quotas."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def is_scalar(name: str) -> bool:
    """Return whether a resource is extended, huge pages, prefixed native, or counts attached volumes."""
    return (
        is_extended(name)
        or name.startswith("hugepages-")
        or "kubernetes.io/" in name
        or name.startswith("attachable-volumes-")
    )


def _requests(
    pod: PodObject, container: Container, statuses: Mapping[str, ContainerStatus], missing: Amounts
) -> dict[str, int]:
    stated = (container.get("resources") or {}).get("requests") or {}
    status = statuses.get(container.get("name", ""))
    if status is not None:
        actual = status["resources"].get("requests") or {}
        stated = _effective(pod, stated, actual, status.get("allocatedResources") or {})
    return {**missing, **amounts_of(stated)}


def _effective(
    pod: PodObject, desired: Mapping[str, str], actual: Mapping[str, str], allocated: Mapping[str, str]
) -> dict[str, str]:
    """Return the larger of the amounts; the desired ones do not count if the node cannot grant them."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    pending = next((condition for condition in conditions if condition.get("type") == "PodResizePending"), None)
    parts = [actual, allocated]
    if pending is None or pending.get("reason") != "Infeasible":
        parts.append(desired)
    largest: dict[str, str] = {}
    for part in parts:
        for name, amount in part.items():
            if name not in largest or amount_of(name, amount) > amount_of(name, largest[name]):
                largest[name] = amount
    return largest


def amount_of(name: str, amount: str | int) -> int:
    is_long = isinstance(amount, str) and len(amount) > _LONGEST_REMEMBERED
    return _amount_of(name, amount) if is_long else _remembered_amount(name, amount)


def _amount_of(name: str, amount: str | int) -> int:
    parsed = parse(amount)
    return min(LARGEST, parsed.milli_value if name == "cpu" else parsed.value)


_remembered_amount = lru_cache(maxsize=4096)(_amount_of)
_LONGEST_REMEMBERED = 64  # Longer texts are rare, and could fill the memory.


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = min(LARGEST, total.get(name, 0) + amount)
    return total


def _largest(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
