"""The node, and the memory of the agent about one pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.model.objects import Key, Object
from pinnace.node.agent.back_off import BackOff
from pinnace.node.agent.pod_status import Waiting
from pinnace.node.agent.probes import Prober
from pinnace.node.agent.variables import PodFields
from pinnace.node.agent.volumes import PodVolumes
from pinnace.node.resources.failures import PodFailure
from pinnace.node.resources.resize import PodAllocation


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNode:
    """The node as its pods see it."""

    name: str
    host_ips: Sequence[str]
    """The addresses of the node, the default IP family first."""
    pods: Path
    """The directory with one directory for each pod, named by its uid."""
    allocatable: Mapping[str, str]
    dns_address: str
    memory_bytes: int = 0
    unsafe_sysctls: Sequence[str] = ()
    """Sysctls that pods may set beside the safe ones."""

    def directory_of(self, pod: Object) -> Path:
        return self.pods / str(pod["metadata"]["uid"])

    def fields_of(self, pod: Object, addresses: Sequence[str] = ()) -> PodFields:
        """The fields of a pod that volumes and variables refer to; `addresses` if its status has none yet."""
        known = [one["ip"] for one in (pod.get("status") or {}).get("podIPs") or ()]
        return PodFields(
            pod,
            node=self.name,
            host_ips=self.host_ips,
            pod_ips=addresses or known,
            allocatable=self.allocatable,
        )


@dataclass(slots=True)
class PodRecord:
    """The memory of the agent between two calls of `sync` for a pod. All of it may be lost with the agent."""

    key: Key
    pod: Object
    allocation: PodAllocation
    volumes: PodVolumes | None = None
    refreshed_at: float = 0.0
    refreshed_for: tuple[object, object] = (None, None)
    """The labels and annotations that the files of downward API volumes show."""
    is_admitted: bool = False
    failure: PodFailure | None = None
    waiting: dict[str, Waiting] = field(default_factory=dict)
    back_offs: dict[str, BackOff] = field(default_factory=dict)
    ends_seen: set[str] = field(default_factory=set)
    probers: dict[str, Prober] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    """The termination messages of containers that have ended, by their ids."""

    async def close_prober(self, container: str) -> None:
        prober = self.probers.pop(container, None)
        if prober is not None:
            await prober.close()

    async def close_probers(self) -> None:
        for container in list(self.probers):
            await self.close_prober(container)


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The agent, as its pod workers need it."""

    enqueue: Callable[[Key], None]
    """Have `sync` called for a pod."""
    services: Callable[[], list[Object]]
    current: Callable[[Key], Object | None]
    """Returns a pod as it is now, while a call of `sync` for an older version goes on."""
    node: Callable[[], Object | None]
    """Returns the Node object, with its labels and taints."""
    pressures: Callable[[], Sequence[str]]
    """The conditions of the node under which it refuses pods."""
    api_uid: Callable[[Object], str]
    """The uid of a pod in the API: that of its mirror for a static pod, empty while it has none."""
    probe_observer: Callable[[Object, str], Callable[[str, bool, float], None]]
    """Returns the function that counts the probes of a container: see `PodMetrics`."""
