"""The settings of a node agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.kinds.feature_gates.gates import FeatureGates, InvalidFeatureGates
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model import quantity
from pinnace.node.agent.status.registration import NodeIdentity, capacity_of_machine
from pinnace.node.agent.status.served_minor import NEWEST_MINOR
from pinnace.node.image_service import FindCredentials
from pinnace.node.pressure.signals import DEFAULT_THRESHOLDS, MEMORY, Signals, parse_thresholds
from pinnace.node.resources.alignment.node_resources import MachineAmounts, NodeResources, ResourcePolicies

_OLDEST_MINOR = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    name: str
    directory: Path
    """The state directory of the node."""
    address: str = "127.0.0.1"
    """The address of the node that pods and users see."""
    ipv6_address: str = ""
    """The same in IPv6, in a dual-stack cluster."""
    pod_cidrs: Sequence[str] = ()
    """The networks of the node's pods, for the Node object."""
    port: int = 0
    """The port of the node's web server, 0 for none."""
    service_network: str = SERVICE_RANGE
    """The addresses of Services; the tenth is that of the DNS server."""
    ipv6_service_network: str = ""
    """The IPv6 addresses of Services, in a dual-stack cluster."""
    capacity: Mapping[str, str] = field(default_factory=capacity_of_machine)
    manifests: Path | None = None
    """The directory with the manifests of static pods."""
    eviction_hard: str = DEFAULT_THRESHOLDS
    unsafe_sysctls: Sequence[str] = ()
    """Sysctls that pods may set beside the safe ones, such as kernel.msg* or net.core.somaxconn."""
    taints: Sequence[Mapping[str, str]] = ()
    """The taints with which the node is registered."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    """The resources of the capacity that pods may not use."""
    feature_gates: str = ""
    """The gates that differ from the defaults of the server's minor version."""
    plugins: Path | None = None
    """Kubelet's directory, in which plug-ins find the sockets of the node; None for a node without plug-ins."""
    find_credentials: FindCredentials | None = None
    """Returns credentials of the machine for an image, beside those of its pod; None for none."""
    signals: Signals | None = None
    """The signals of the node that eviction watches; this machine's if None."""
    policies: ResourcePolicies = field(default_factory=ResourcePolicies)
    """How the node shares out CPUs, memory and swap."""
    resources: NodeResources | None = None
    """The result of `open_resources`; None leaves it to the agent."""

    def open_resources(self) -> NodeResources:
        """Check the policies against the machine. Raise ValueError or RuntimeFailure with kubelet's message."""
        total = quantity.parse(self.capacity.get("memory", "0")).value
        thresholds = parse_thresholds(self.eviction_hard)
        evicting = [threshold.quantity_of(total) for threshold in thresholds if threshold.signal == MEMORY]
        amounts = MachineAmounts(capacity=self.capacity, reserved=self.reserved, eviction_bytes=sum(evicting))
        return NodeResources(self.policies, amounts, self.directory, _gates_of(self.feature_gates))

    @property
    def addresses(self) -> list[str]:
        return [address for address in (self.address, self.ipv6_address) if address]

    @property
    def identity(self) -> NodeIdentity:
        """The facts of the Node object."""
        return NodeIdentity(
            name=self.name,
            addresses=self.addresses,
            pod_cidrs=self.pod_cidrs,
            capacity=self.capacity,
            port=self.port,
            taints=self.taints,
            reserved=self.reserved,
            feature_gates=self.feature_gates,
            swap_bytes=self.resources.swap.capacity if self.resources is not None else 0,
        )

    @property
    def pods(self) -> Path:
        """The directory with one directory for each pod, named by its uid."""
        return self.directory / "agent" / "pods"


def _gates_of(text: str) -> FeatureGates:
    """Return the gates in the newest version that has all that are named: the node knows that of the server later."""
    for minor in range(NEWEST_MINOR, _OLDEST_MINOR - 1, -1):
        try:
            return FeatureGates.parse(f"1.{minor}", text)
        except InvalidFeatureGates:
            continue
    return FeatureGates(f"1.{NEWEST_MINOR}")
