"""Ends pods when a signal of the node falls below its threshold: images first, then one pod at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from pinnace.kinds.pods.resource_amounts import sum_of
from pinnace.model import quantity
from pinnace.model.objects import Key, key_of
from pinnace.model.quantity import Format, Quantity
from pinnace.model.typed_objects import Container, Pod, Volume
from pinnace.node.errors import RuntimeFailure
from pinnace.node.pressure.signals import (
    CONDITIONS,
    IMAGE_FILES,
    MEMORY,
    NODE_FILES,
    NODE_INODES,
    RESOURCES,
    Signal,
    Signals,
    Threshold,
)
from pinnace.node.pressure.storage_meter import PodStorage, StorageMeter
from pinnace.node.resources.admission import PodFailure, requests_of
from pinnace.node.runtime.runtime import Runtime
from pinnace.process.clock import AlarmClock

CHECK_SECONDS = 10.0
TRANSITION_SECONDS = 300.0
"""How long a condition stays after its last observation, so that it does not flap."""
_CRITICAL = 2_000_000_000
"""The priority from which a static pod is never evicted."""
_DISK_SPACE = (NODE_FILES, IMAGE_FILES)
_DISK = (*_DISK_SPACE, NODE_INODES)
_STORAGE = "ephemeral-storage"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EvictionContext:
    """The agent, as the eviction needs it."""

    active_pods: Callable[[], list[Pod]]
    fail: Callable[[Key, PodFailure], None]
    storage: StorageMeter
    free_images: Callable[[], Awaitable[int]]
    """Remove images that no pod uses, and return the bytes that this freed."""
    report: Callable[[Sequence[str]], Awaitable[None]]
    """Write the conditions of the node that hold."""
    count: Callable[[str], None] = lambda signal: None
    """Count an eviction by its signal."""


class Eviction:
    """Run it beside the agent. `pressures` are the conditions that hold."""

    def __init__(
        self,
        signals: Signals,
        thresholds: Sequence[Threshold],
        runtime: Runtime,
        clock: AlarmClock,
        context: EvictionContext,
    ) -> None:
        self._signals = signals
        self._thresholds = thresholds
        self._runtime = runtime
        self._clock = clock
        self._context = context
        self._last_seen: dict[str, float] = {}
        self._reported: Sequence[str] = ()

    @property
    def reported(self) -> Sequence[str]:
        """The conditions that the Node shows: it has them, and soon their taints, before a pod is rejected for them."""
        return self._reported

    def pressures(self) -> Sequence[str]:
        now = self._clock.monotonic()
        return [name for name, seen in sorted(self._last_seen.items()) if now - seen < TRANSITION_SECONDS]

    async def run(self) -> None:
        """Check the thresholds until cancelled."""
        while True:
            try:
                await self.check_local_storage()
                await self.check()
            except (OSError, RuntimeFailure) as error:
                _log.warning("the signals of the node could not be read: %s", error)
            await self._clock.sleep(CHECK_SECONDS)

    async def check_local_storage(self) -> None:
        """Evict the pods whose files exceed their own limits. Pods without limits are not measured."""
        storage, pods = self._context.storage, self._context.active_pods()
        storage.forget_others({pod["metadata"]["uid"] for pod in pods})
        limited = [pod for pod in pods if has_limits(pod)]
        # The oldest measurement first: no pod escapes because others have many files.
        for pod in sorted(limited, key=lambda pod: -storage.age(pod["metadata"]["uid"])):
            used = await storage.usage(key_of(pod), pod["metadata"]["uid"])
            excess = find_excess(pod, used) if used is not None else ""
            if excess:
                self._context.count(signal_of_excess(excess))
                self._context.fail(key_of(pod), PodFailure("Evicted", excess, grace_seconds=0.0))

    async def check(self) -> Key | None:
        """Read the signals once, write the conditions, and evict at most one pod. Return its key."""
        met = self._met()
        now = self._clock.monotonic()
        for threshold, _ in met:
            self._last_seen[CONDITIONS[threshold.signal]] = now
        pressures = self.pressures()
        if pressures != self._reported:
            await self._context.report(pressures)
            self._reported = pressures
        if any(threshold.signal in _DISK for threshold, _ in met) and await self._context.free_images():
            met = self._met()
        if not met:
            return None
        # Memory first: the kernel kills processes of its own choice soon after.
        threshold, seen = min(met, key=lambda pair: pair[0].signal != MEMORY)
        return await self._evict(threshold, seen)

    def _met(self) -> list[tuple[Threshold, Signal]]:
        signals = self._signals.read()
        return [(threshold, signals[threshold.signal]) for threshold in self._thresholds if _is_met(threshold, signals)]

    async def _evict(self, threshold: Threshold, seen: Signal) -> Key | None:
        resource = RESOURCES[threshold.signal]
        ranked = []
        for pod in self._context.active_pods():
            if not _is_protected(pod):
                uses = await self._uses(pod, threshold.signal)
                used, requested = uses.total, _requested(pod, resource)
                ranked.append(
                    (used <= requested, pod["spec"].get("priority") or 0, requested - used, key_of(pod), pod, uses)
                )
        if not ranked:
            _log.warning("the node is low on %s, and there is no pod to evict", resource)
            return None
        *_, key, pod, uses = min(ranked, key=lambda row: row[:4])
        message = (
            f"The node was low on resource: {resource}. "
            f"Threshold quantity: {_text(threshold, seen)}, available: {_binary(seen.available)}. "
        )
        if threshold.signal in (MEMORY, *_DISK_SPACE):
            message += _blame(pod, uses, resource)
        self._context.count(threshold.signal)
        self._context.fail(key, PodFailure("Evicted", message, is_disruption=True, grace_seconds=0.0))
        return key

    async def _uses(self, pod: Pod, signal: str) -> _Uses:
        """The memory or processes of a pod's containers, or its disk space."""
        if signal in _DISK:
            storage = await self._context.storage.usage(key_of(pod), pod["metadata"]["uid"])
            if storage is None:
                return _Uses({}, 0)
            containers = {name: usage.total_bytes for name, usage in storage.containers.items()}
            return _Uses(containers, ephemeral_bytes(pod, storage))
        containers = {}
        for sandbox in await self._runtime.sandboxes(*key_of(pod)):
            for container in await self._runtime.containers(sandbox.id):
                stats = await self._runtime.stats(container.id)
                containers[container.config.name] = (
                    stats.working_set_bytes if signal == MEMORY else stats.processes
                ) or 0
        return _Uses(containers, sum(containers.values()))


@dataclass(frozen=True, slots=True)
class _Uses:
    """The use of one resource by a pod."""

    containers: Mapping[str, int]
    total: int


def _is_met(threshold: Threshold, signals: Mapping[str, Signal]) -> bool:
    seen = signals.get(threshold.signal)
    return seen is not None and threshold.is_met(seen)


def _is_protected(pod: Pod) -> bool:
    is_static = "kubernetes.io/config.source" in (pod["metadata"].get("annotations") or {})
    return is_static and (pod["spec"].get("priority") or 0) >= _CRITICAL


def _requested(pod: Pod, resource: str) -> int:
    request = requests_of(pod).get(resource)
    return request.value if request is not None else 0


def _blame(pod: Pod, uses: _Uses, resource: str) -> str:
    """Name the containers that use more than they requested, as kubelet does."""
    parts = []
    for container in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())):
        name, used = container["name"], uses.containers.get(container["name"], 0)
        requested = ((container.get("resources") or {}).get("requests") or {}).get(resource, "0")
        if used > quantity.parse(requested).value:
            parts.append(
                f"Container {name} was using {quantity.of(used, Format.BINARY_SI)}, "
                f"request is {quantity.canonical(requested)}, has larger consumption of {resource}. "
            )
    return "".join(parts)


def _text(threshold: Threshold, seen: Signal) -> str:
    return threshold.text if not threshold.text.endswith("%") else _binary(threshold.quantity_of(seen.capacity))


def _binary(amount: int) -> str:
    return str(quantity.parse(f"{amount >> 10}Ki")) if amount >= 1024 else str(amount)


def has_limits(pod: Pod) -> bool:
    """Whether the files of a pod must be measured at all."""
    limits = [_limits(container) for container in _running_together(pod)]
    return any(_STORAGE in limit for limit in limits) or any(
        _size_limit(directory) for directory in _empty_directories(pod)
    )


def find_excess(pod: Pod, storage: PodStorage) -> str:
    """Return why a pod must go; empty if it keeps its limits."""
    for volume in _empty_directories(pod):
        limit = _size_limit(volume)
        if limit and storage.volumes.get(volume["name"], 0) > quantity.parse(limit).value:
            return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{quantity.canonical(limit)}". '
    total = sum_of(pod["spec"], "limits").get(_STORAGE)
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


def ephemeral_bytes(pod: Pod, storage: PodStorage) -> int:
    """The local storage that ends with a pod: writable layers, logs, and volumes on the node's disk."""
    volumes = pod["spec"].get("volumes") or ()
    local = [
        volume["name"]
        for volume in (*_empty_directories(pod), *(volume for volume in volumes if "configMap" in volume))
    ]
    containers = sum(usage.total_bytes for usage in storage.containers.values())
    return containers + storage.other_bytes + sum(storage.volumes.get(name, 0) for name in local)


def _running_together(pod: Pod) -> list[Container]:
    sidecars = [
        container for container in pod["spec"].get("initContainers") or () if container.get("restartPolicy") == "Always"
    ]
    return [*pod["spec"]["containers"], *sidecars]


def _empty_directories(pod: Pod) -> list[Volume]:
    """The emptyDir volumes on disk. The kernel enforces the limits of those in memory."""
    volumes = pod["spec"].get("volumes") or ()
    return [
        volume for volume in volumes if "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"
    ]


def _size_limit(volume: Volume) -> str | None:
    return (volume["emptyDir"] or {}).get("sizeLimit")


def _limits(container: Container) -> Mapping[str, str]:
    return (container.get("resources") or {}).get("limits") or {}


def _amount(limits: Mapping[str, str]) -> Quantity:
    return quantity.parse(limits[_STORAGE]) if _STORAGE in limits else quantity.ZERO
