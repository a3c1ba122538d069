"""Measures the disk space of pods, and keeps the measurements, so that limits and statistics cost little.

A measurement looks at every file of a pod, in a process of its own with the lowest priority. All measurements of a node
together may take a fiftieth of a core: with many files each pod is measured less often.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.model.objects import Key
from pinnace.node.runtime.runtime import ContainerState, DiskUsage, Runtime
from pinnace.process.clock import AlarmClock

MEASURE_SECONDS = 10.0
"""How old a measurement becomes at least."""
_CPU_SHARE = 0.02
"""The part of a core for measurements."""
_MOST_SAVED_SECONDS = MEASURE_SECONDS * _CPU_SHARE


@dataclass(frozen=True, slots=True)
class ContainerStorage:
    layer_bytes: int
    """All that the container has changed in its image."""
    log_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.layer_bytes + self.log_bytes


@dataclass(frozen=True, slots=True)
class PodStorage:
    """The disk space of one pod."""

    containers: Mapping[str, ContainerStorage] = field(default_factory=dict)
    """The running containers."""
    volumes: Mapping[str, int] = field(default_factory=dict)
    """The volumes that live in the directory of the pod."""
    other_bytes: int = 0
    """/etc/hosts, termination messages, and logs of containers that have ended."""


class StorageMeter:
    """One per node."""

    def __init__(self, runtime: Runtime, clock: AlarmClock, pods: Path) -> None:
        """`pods` has a directory for each pod, by its uid."""
        self._runtime = runtime
        self._clock = clock
        self._pods = pods
        self._known: dict[str, tuple[float, PodStorage]] = {}
        self._saved_seconds = _MOST_SAVED_SECONDS
        self._saved_at = clock.monotonic()

    def age(self, uid: str) -> float:
        """The seconds since a pod was measured; infinite before."""
        known = self._known.get(uid)
        return self._clock.monotonic() - known[0] if known is not None else float("inf")

    async def usage(self, key: Key, uid: str) -> PodStorage | None:
        """The use of a pod: a new measurement if it is time for one, else the last; None before the first."""
        known = self._known.get(uid)
        if self.age(uid) >= MEASURE_SECONDS and self._may_measure():
            measured = await self._measure(key, uid)
            self._known[uid] = (self._clock.monotonic(), measured)
            return measured
        return known[1] if known is not None else None

    def forget_others(self, uids: Collection[str]) -> None:
        """Forget all pods but these."""
        self._known = {uid: known for uid, known in self._known.items() if uid in uids}

    def _may_measure(self) -> bool:
        now = self._clock.monotonic()
        saved = self._saved_seconds + (now - self._saved_at) * _CPU_SHARE
        self._saved_seconds, self._saved_at = min(_MOST_SAVED_SECONDS, saved), now
        return self._saved_seconds > 0

    async def _measure(self, key: Key, uid: str) -> PodStorage:
        names: dict[str, str] = {}
        for sandbox in await self._runtime.sandboxes(*key):
            if sandbox.config.uid == uid:
                running = await self._runtime.containers(sandbox.id)
                names |= {
                    container.id: container.config.name
                    for container in running
                    if container.state is ContainerState.RUNNING
                }
        usage = await self._runtime.disk_usage(str(self._pods / uid), list(names))
        self._saved_seconds -= usage.cpu_seconds
        return _storage_of(usage, names)


def _storage_of(measured: DiskUsage, names: Mapping[str, str]) -> PodStorage:
    containers = {
        name: ContainerStorage(measured.layers[container], measured.files.get(f"logs/{name}", 0))
        for container, name in names.items()
    }
    volumes = {place.partition("/")[2]: size for place, size in measured.files.items() if place.startswith("volumes/")}
    counted = sum(volumes.values()) + sum(usage.log_bytes for usage in containers.values())
    return PodStorage(containers, volumes, sum(measured.files.values()) - counted)
