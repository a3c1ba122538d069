"""The limits of local storage: a pod whose files take more than it may have is evicted. The messages are kubelet's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinnace.kinds.pods.resource_amounts import sum_of
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import Quantity
from pinnace.node.pressure.storage_meter import PodStorage

STORAGE = "ephemeral-storage"


def has_limits(pod: Object) -> bool:
    """Whether the files of a pod must be measured at all."""
    limits = [_limits(one) for one in _running_together(pod)]
    return any(STORAGE in one for one in limits) or any(_size_limit(one) for one in _empty_directories(pod))


def find_excess(pod: Object, storage: PodStorage) -> str:
    """Return why a pod must go; empty if it keeps its limits."""
    for volume in _empty_directories(pod):
        limit = _size_limit(volume)
        if limit and storage.volumes.get(volume["name"], 0) > quantity.parse(limit).value:
            return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{quantity.canonical(limit)}". '
    total = sum_of(pod["spec"], "limits").get(STORAGE)
    if total is not None and ephemeral_bytes(pod, storage) > total.value:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
    for container in _running_together(pod):
        name, own = container["name"], _amount(_limits(container))
        if own and name in storage.containers and storage.containers[name].total_bytes > own.value:
            return f'Container {name} exceeded its local ephemeral storage limit "{own}". '
    return ""


def signal_of_excess(excess: str) -> str:
    """Return the signal by which metrics name an excess."""
    if excess.startswith("Usage of EmptyDir"):
        return "emptydirfs.limit"
    return "ephemeralpodfs.limit" if excess.startswith("Pod ") else "ephemeralcontainerfs.limit"


def ephemeral_bytes(pod: Object, storage: PodStorage) -> int:
    """The local storage that ends with a pod: writable layers, logs, and volumes on the node's disk."""
    volumes = pod["spec"].get("volumes") or ()
    local = [one["name"] for one in (*_empty_directories(pod), *(one for one in volumes if "configMap" in one))]
    containers = sum(one.total_bytes for one in storage.containers.values())
    return containers + storage.other_bytes + sum(storage.volumes.get(name, 0) for name in local)


def _running_together(pod: Object) -> list[Object]:
    sidecars = [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return [*pod["spec"]["containers"], *sidecars]


def _empty_directories(pod: Object) -> list[Object]:
    """The emptyDir volumes on disk. The kernel enforces the limits of those in memory."""
    volumes = pod["spec"].get("volumes") or ()
    return [one for one in volumes if "emptyDir" in one and (one["emptyDir"] or {}).get("medium") != "Memory"]


def _size_limit(volume: Object) -> Any:
    return (volume["emptyDir"] or {}).get("sizeLimit")


def _limits(container: Object) -> Mapping[str, Any]:
    return (container.get("resources") or {}).get("limits") or {}


def _amount(limits: Mapping[str, Any]) -> Quantity:
    return quantity.parse(limits[STORAGE]) if STORAGE in limits else quantity.ZERO
