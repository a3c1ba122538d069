"""The node, and the memory of the agent about one pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.model.objects import Key
from pinnace.model.typed_objects import Node, Pod, Service
from pinnace.node.agent.pod_fields import PodFields
from pinnace.node.agent.probes.probes import Prober
from pinnace.node.agent.volumes.pod_certificates import PodCertificates
from pinnace.node.agent.volumes.trust_bundles import TrustBundles
from pinnace.node.agent.volumes.volumes import PodVolumes
from pinnace.node.image_service import FindCredentials
from pinnace.node.plugins.devices import DeviceManager
from pinnace.node.resources.admission import PodFailure
from pinnace.node.resources.alignment.node_resources import NodeResources
from pinnace.node.resources.resize import PodAllocation

FIRST_SECONDS = 10.0
MOST_SECONDS = 300.0
_GOOD_SECONDS = 600.0
"""A container that ran this long starts over without a delay."""


@dataclass(slots=True)
class BackOff:
    """The delay before the next restart of one container: 10 s, doubled up to 5 minutes, as kubelet has it."""

    seconds: float = 0.0
    until: float = 0.0

    def note_end(self, now: float, ran_seconds: float) -> None:
        """Call once for each end of the container. The first restart comes at once."""
        if ran_seconds >= _GOOD_SECONDS:
            self.seconds = 0.0
        self.until = now + self.seconds
        self.seconds = min(self.seconds * 2, MOST_SECONDS) if self.seconds else FIRST_SECONDS

    def remaining(self, now: float) -> float:
        return max(0.0, self.until - now)

    @property
    def text(self) -> str:
        """The delay in Go's notation, for the message of CrashLoopBackOff."""
        seconds = int(self.seconds / 2) if self.seconds > FIRST_SECONDS else int(FIRST_SECONDS)
        if self.seconds >= MOST_SECONDS:
            return "5m0s"
        minutes, rest = divmod(seconds, 60)
        return f"{minutes}m{rest}s" if minutes else f"{rest}s"


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
    resources: NodeResources
    unsafe_sysctls: Sequence[str] = ()
    """Sysctls that pods may set beside the safe ones."""
    find_credentials: FindCredentials | None = None
    """As `AgentSettings.find_credentials`."""
    kubelet_directory: str = ""
    """The directory of the sockets of plug-ins, which pods know as /var/lib/kubelet; empty for none."""

    @property
    def seccomp_profiles(self) -> Path:
        """The directory of the profiles that pods name as Localhost, in the state directory as kubelet has it."""
        return self.pods.parents[1] / "seccomp"

    def directory_of(self, pod: Pod) -> Path:
        return self.pods / str(pod["metadata"]["uid"])

    def fields_of(self, pod: Pod, addresses: Sequence[str] = ()) -> PodFields:
        """The fields of a pod that volumes and variables refer to; `addresses` if its status has none yet."""
        known = [address["ip"] for address in (pod.get("status") or {}).get("podIPs") or ()]
        return PodFields(
            pod,
            node=self.name,
            host_ips=self.host_ips,
            pod_ips=addresses or known,
            allocatable=self.allocatable,
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run."""

    reason: str
    message: str = ""


@dataclass(slots=True)
class PodRecord:
    """The memory of the agent between two calls of `sync` for a pod. All of it may be lost with the agent."""

    key: Key
    pod: Pod
    allocation: PodAllocation
    volumes: PodVolumes | None = None
    refreshed_at: float = 0.0
    refreshed_for: tuple[object, object] = (None, None)
    """The labels and annotations that the files of downward API volumes show."""
    is_admitted: bool = False
    has_resources: bool = False
    """Whether this agent has allocated what the pod needs: one that an earlier agent admitted is asked for again."""
    is_rejected: bool = False
    is_terminated: bool = False
    """Whether the pod was deleted and all its containers have been stopped."""
    failure: PodFailure | None = None
    waiting: dict[str, Waiting] = field(default_factory=dict)
    back_offs: dict[str, BackOff] = field(default_factory=dict)
    ends_seen: set[str] = field(default_factory=set)
    probers: dict[str, Prober] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    """The number of the next attempt of each container whose sandbox was removed."""
    images: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    """The termination messages of containers that have ended, by their ids."""

    readiness: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a probe has changed a result."""

    async def close_prober(self, container: str) -> None:
        prober = self.probers.pop(container, None)
        if prober is not None:
            await prober.close()

    async def close_health_probes(self) -> None:
        """End all probes but those of readiness: a pod that terminates can become ready or unready, not unhealthy."""
        for prober in self.probers.values():
            await prober.close_all_but("readinessProbe")

    async def close_probers(self) -> None:
        for container in list(self.probers):
            await self.close_prober(container)


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The agent, as its pod workers need it."""

    enqueue: Callable[[Key], None]
    """Have `sync` called for a pod."""
    services: Callable[[], list[Service]]
    current: Callable[[Key], Pod | None]
    """Returns a pod as it is now, while a call of `sync` for an older version goes on."""
    uids: Callable[[], set[str]]
    """Returns the pods that may run here, also static ones whose manifests are not read yet."""
    node: Callable[[], Node | None]
    """Returns the Node object, with its labels and taints."""
    pressures: Callable[[], Sequence[str]]
    """The conditions of the node under which it refuses pods."""
    features: Callable[[], Sequence[str] | None]
    """The features that the node declares; None where it declares none."""
    api_uid: Callable[[Pod], str]
    """The uid of a pod in the API: that of its mirror for a static pod, empty while it has none."""
    probe_observer: Callable[[Pod, str], Callable[[str, bool, float], None]]
    """Returns the function that counts the probes of a container: see `PodMetrics`."""
    trust_bundles: TrustBundles
    certificates: PodCertificates
    devices: DeviceManager
    is_on: Callable[[str], bool]
    """Whether a feature gate is on."""
