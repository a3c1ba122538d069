"""The requests of a pod, as the managers of CPUs and memory read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pinnace.kinds.pods.resource_amounts import HUGE_PAGES, qos_class
from pinnace.model import quantity
from pinnace.model.typed_objects import Container, Pod


def containers_of(pod: Pod) -> Sequence[Container]:
    """Return the containers that get resources, init containers first."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def is_sidecar(container: Container) -> bool:
    return container.get("restartPolicy") == "Always"


def is_init(pod: Pod, container: Container) -> bool:
    """Return whether a container ends before the others start, so that they can have its resources."""
    names = {init["name"] for init in pod["spec"].get("initContainers") or () if not is_sidecar(init)}
    return container["name"] in names


def is_guaranteed(pod: Pod) -> bool:
    """Return whether the containers of a pod may get resources of their own.

    As in kubelet, they get none if the pod states resources as a whole, unless PodLevelResourceManagers is on, which it
    is not by default.
    """
    return not (pod["spec"].get("resources") or {}) and qos_class(pod["spec"]) == "Guaranteed"


def exclusive_cpus(pod: Pod, container: Container) -> int:
    """Return how many CPUs a container gets for itself: its request, if it is guaranteed and a whole number."""
    if not is_guaranteed(pod):
        return 0
    milli = quantity.parse(_requests(container).get("cpu", "0")).milli_value
    return 0 if milli % 1000 else milli // 1000


def guaranteed_memory(pod: Pod, container: Container) -> dict[str, int]:
    """Return the bytes of memory and of huge pages that a container of a guaranteed pod requests."""
    if not is_guaranteed(pod):
        return {}
    return {
        name: quantity.parse(amount).value
        for name, amount in _requests(container).items()
        if name == "memory" or name.startswith(HUGE_PAGES)
    }


def most_at_once(pod: Pod, amounts: Mapping[str, int]) -> int:
    """Return how much of a resource the containers of a pod need at a time. `amounts` is by their names."""
    sidecars = largest = 0
    for container in pod["spec"].get("initContainers") or ():
        if is_sidecar(container):
            sidecars += amounts[container["name"]]
        else:
            largest = max(largest, sidecars + amounts[container["name"]])
    return max(largest, sidecars + sum(amounts[container["name"]] for container in pod["spec"]["containers"]))


def init_containers_before(pod: Pod, container: Container) -> Iterator[Container]:
    """Yield the init containers that have ended when a container starts."""
    for init in pod["spec"].get("initContainers") or ():
        if init["name"] == container["name"]:
            return
        if not is_sidecar(init):
            yield init


def _requests(container: Container) -> Mapping[str, str]:
    return (container.get("resources") or {}).get("requests") or {}
