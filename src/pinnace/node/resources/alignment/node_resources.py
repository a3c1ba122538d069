"""The resources of this machine, and how its node shares them out: limits, CPUs and memory of each container."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.kinds.pods.resource_amounts import qos_class
from pinnace.model import quantity
from pinnace.model.quantity import ZERO, Format, Quantity
from pinnace.model.typed_objects import Container, Pod
from pinnace.node.resources.admission import Rejection
from pinnace.node.resources.alignment.checkpoints import Checkpoint
from pinnace.node.resources.alignment.cpu_manager import STATE_FILE as CPU_STATE_FILE
from pinnace.node.resources.alignment.cpu_manager import STATIC as STATIC_CPUS
from pinnace.node.resources.alignment.cpu_manager import CpuManager, CpuOptions, check_policy
from pinnace.node.resources.alignment.hints import HintProvider
from pinnace.node.resources.alignment.machine_topology import SYS, MachineTopology, discover, format_cpus, parse_cpus
from pinnace.node.resources.alignment.memory_manager import STATE_FILE as MEMORY_STATE_FILE
from pinnace.node.resources.alignment.memory_manager import STATIC as STATIC_MEMORY
from pinnace.node.resources.alignment.memory_manager import Block, MemoryManager
from pinnace.node.resources.alignment.requests import containers_of
from pinnace.node.resources.alignment.swap import SwapPolicy
from pinnace.node.resources.alignment.topology_manager import SINGLE_NUMA_NODE, TopologyManager, TopologyPolicy
from pinnace.node.resources.amounts import container_resources, pod_resources
from pinnace.node.resources.resize import INFEASIBLE
from pinnace.node.runtime.runtime import Resources

NO_CPUS, NO_MEMORY = "none", "None"
"""The policies that give no container CPUs, or memory of certain NUMA nodes, for itself."""
_CPU, _MEMORY = "cpu", "memory"
_OF_WHOLE_PODS = "PodLevelResourceManagers"
"""The gate, off by default, of CPUs and memory for pods that state resources as a whole."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePolicies:
    """Kubelet's policies about CPUs, memory and swap, as a KubeletConfiguration states them."""

    cpus: str = NO_CPUS
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: str = ""
    """The CPUs that no container gets for itself, such as 0-1; without them as many as the reservation has."""
    reconcile_seconds: float = 10.0
    """How often the CPUs of running containers are compared with what they should be."""
    memory: str = NO_MEMORY
    reserved_memory: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By NUMA node and resource."""
    topology: TopologyPolicy = field(default_factory=TopologyPolicy)
    swap: SwapPolicy = field(default_factory=SwapPolicy)
    machine: Path = SYS
    """The description of the machine by the kernel."""

    @property
    def pins_containers(self) -> bool:
        """Whether containers run on certain CPUs, or with memory of certain NUMA nodes."""
        return self.cpus == STATIC_CPUS or self.memory == STATIC_MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAmounts:
    """How much the machine has, and what of it is not for pods."""

    capacity: Mapping[str, str] = field(default_factory=dict)
    reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_bytes: int = 0
    """The memory below which pods are evicted."""

    @property
    def memory_bytes(self) -> int:
        return quantity.parse(self.capacity.get(_MEMORY, "0")).value


@dataclass(frozen=True, slots=True)
class CpuPlacement:
    """The CPUs and NUMA nodes of a container as control groups have them; empty for all."""

    cpus: str = ""
    memory_nodes: str = ""


class NodeResources:
    """Made once, before the first pod: it checks the policies against the machine and the files of an earlier agent."""

    def __init__(
        self, policies: ResourcePolicies, amounts: MachineAmounts, directory: Path, gates: FeatureGates
    ) -> None:
        """`directory` holds the checkpoints. Raise ValueError or RuntimeFailure with kubelet's message."""
        self.policies = policies
        self._amounts = amounts
        self._gates = gates
        if policies.pins_containers and gates.is_on(_OF_WHOLE_PODS):
            raise ValueError(
                f"the feature gate {_OF_WHOLE_PODS} is not supported with the static policies: pods that state "
                "resources as a whole share the CPUs"
            )
        self.swap = policies.swap.on(policies.machine, amounts.memory_bytes)
        topology = discover(policies.machine) if self._needs_topology else None
        nodes = topology.nodes.items() if topology is not None else ()
        distances = {node: numa.distances for node, numa in nodes}
        self.topology = TopologyManager(policies.topology, distances, gates)
        """Admits pods. Its `providers` get further ones, such as that of devices, before the first pod."""
        self._cpus = self._open_cpus(topology, Checkpoint(directory / CPU_STATE_FILE, "CPU manager"))
        self._memory = self._open_memory(topology, Checkpoint(directory / MEMORY_STATE_FILE, "memory manager"))
        managers: Sequence[HintProvider | None] = (self._cpus, self._memory)
        self.topology.providers += [manager for manager in managers if manager is not None]

    @property
    def _needs_topology(self) -> bool:
        policies = self.policies
        return bool(policies.pins_containers or policies.topology.name != "none" or policies.reserved_cpus)

    def _open_cpus(self, topology: MachineTopology | None, checkpoint: Checkpoint) -> CpuManager | None:
        policies = self.policies
        reserved = _reserved_cpus(policies.reserved_cpus, topology) if topology is not None else frozenset()
        if policies.cpus != STATIC_CPUS or topology is None:
            if policies.cpu_options:
                stated = " ".join(f"{name}:{text}" for name, text in sorted(policies.cpu_options.items()))
                raise ValueError(f"new none policy error: None policy: received unsupported options=map[{stated}]")
            _check_none(checkpoint, NO_CPUS)
            return None
        options = CpuOptions.read(policies.cpu_options, self._gates)
        if options.order.aligns_sockets and policies.topology.name == SINGLE_NUMA_NODE:
            raise ValueError(
                "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
            )
        whole = -(-quantity.parse(self._amounts.reserved.get("cpu", "0")).milli_value // 1000)
        if not reserved and not whole:
            raise ValueError(
                "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
            )
        return CpuManager(topology, reserved or whole, options, checkpoint)

    def _open_memory(self, topology: MachineTopology | None, checkpoint: Checkpoint) -> MemoryManager | None:
        if self.policies.memory != STATIC_MEMORY or topology is None:
            _check_none(checkpoint, NO_MEMORY)
            return None
        return MemoryManager(topology, self._reserved_memory(topology), checkpoint)

    def _reserved_memory(self, topology: MachineTopology) -> dict[int, dict[str, int]]:
        """Return the bytes that are reserved on each NUMA node. Raise ValueError if they are not the reservation."""
        bytes_by_node: dict[int, dict[str, int]] = {}
        sums = {_MEMORY: ZERO}
        for node, amounts in self.policies.reserved_memory.items():
            if node not in topology.nodes:
                text = f"the reserved memory configuration references a NUMA node {node}"
                raise ValueError(f"{text} that does not exist on this machine")
            for name, text in amounts.items():
                amount = quantity.parse(text)
                bytes_by_node.setdefault(node, {})[name] = amount.value
                sums[name] = sums.get(name, ZERO) + amount
        for name, total in sums.items():
            reserved = quantity.parse(self._amounts.reserved.get(name, "0"))
            wanted = reserved.value + (self._amounts.eviction_bytes if name == _MEMORY else 0)
            if total.value != wanted:
                there = quantity.of(wanted, Format.BINARY_SI)
                raise ValueError(
                    f'the total amount "{total}" of type "{name}" is not equal to the value "{there}" determined by '
                    "Node Allocatable feature"
                )
        return bytes_by_node

    # Pods

    async def admit(self, pod: Pod) -> Rejection | None:
        """Allocate what a pod needs, if it has not got it yet. After a refusal it has nothing. Raise OSError."""
        try:
            rejection = await self.topology.admit(pod)
        except BaseException:
            self.release(pod["metadata"]["uid"])
            raise
        if rejection is not None:
            self.release(pod["metadata"]["uid"])
        return rejection

    def release(self, uid: str) -> None:
        """Free what a pod has. If that cannot be kept on the disk, the next agent frees it."""
        try:
            self.topology.release(uid)
        except OSError as error:
            _log.warning("the resources of pod %s were not freed: %s", uid, error)

    def release_others(self, uids: Collection[str]) -> None:
        """Free what pods had that are gone since an earlier agent admitted them."""
        known = {uid for manager in (self._cpus, self._memory) if manager is not None for uid in manager.uids}
        for uid in known.difference(uids):
            self.release(uid)

    def note_start(self, pod: Pod, container: Container) -> None:
        """Note that a container starts: the init containers before it need nothing any more."""
        if self._memory is not None:
            try:
                self._memory.note_start(pod, container)
            except OSError as error:
                _log.warning("the memory of init containers was not freed: %s", error)

    # Containers

    def placement(self, uid: str, container: str) -> CpuPlacement:
        """Return where a container may run."""
        cpus = ""
        if self._cpus is not None:
            cpus = format_cpus(self._cpus.assigned(uid, container) or self._cpus.shared)
        memory = self._memory.nodes(uid, container) if self._memory is not None else ()
        return CpuPlacement(cpus, format_cpus(memory))

    def limits_of(self, pod: Pod, container: Container) -> Resources:
        """Return the limits of a container, with its CPUs, NUMA nodes and swap."""
        limits = container_resources(pod, container, self._amounts.memory_bytes)
        uid, name = pod["metadata"]["uid"], container["name"]
        place = self.placement(uid, name)
        return replace(
            limits,
            cpus=place.cpus,
            memory_nodes=place.memory_nodes,
            swap_bytes=self.swap.bytes_of(pod, container),
            cpu_quota=0 if self.has_own_cpus(uid, name) and self._drops_quota else limits.cpu_quota,
        )

    def limits_of_pod(self, pod: Pod) -> Resources:
        """Return the limits of a whole pod."""
        containers, uid = containers_of(pod), pod["metadata"]["uid"]
        limits = replace(
            pod_resources(pod), swap_bytes=sum(self.swap.bytes_of(pod, container) for container in containers)
        )
        if self._drops_quota and any(self.has_own_cpus(uid, container["name"]) for container in containers):
            return replace(limits, cpu_quota=0)
        return limits

    def check_resize(self, pod: Pod, allocated: Pod) -> Rejection | None:
        """Return why a pod cannot be resized in place on this node. `allocated` has the resources that it has now."""
        for wanted, known in zip(containers_of(pod), containers_of(allocated), strict=True):
            for name, policy, kept in ((_CPU, self.policies.cpus, NO_CPUS), (_MEMORY, self.policies.memory, NO_MEMORY)):
                is_same = _requested(wanted, name) == _requested(known, name)
                if is_same:
                    continue
                if policy != kept and qos_class(pod["spec"]) == "Guaranteed":
                    manager = "CPU Manager" if name == _CPU else "Memory Manager"
                    text = f'Resize is infeasible for Guaranteed Pods alongside {manager} policy "{policy}"'
                    return Rejection(INFEASIBLE, text)
                has_swap = self.swap.bytes_of(pod, wanted) or self.swap.bytes_of(allocated, known)
                if name == _MEMORY and has_swap and not _restarts_for_memory(known):
                    return Rejection(INFEASIBLE, "In-place resize of containers with swap is not supported.")
        return None

    @property
    def _drops_quota(self) -> bool:
        """Whether containers with CPUs of their own have no quota, which would throttle them without reason."""
        return self._gates.is_on("DisableCPUQuotaWithExclusiveCPUs")

    # For the pod resources API

    def has_own_cpus(self, uid: str, container: str) -> bool:
        return bool(self.cpus_of(uid, container))

    def cpus_of(self, uid: str, container: str) -> frozenset[int]:
        """Return the CPUs that a container has for itself."""
        return self._cpus.assigned(uid, container) if self._cpus is not None else frozenset()

    def memory_of(self, uid: str, container: str) -> Sequence[Block]:
        """Return the memory that a container has on certain NUMA nodes."""
        return self._memory.blocks(uid, container) if self._memory is not None else ()

    @property
    def allocatable_cpus(self) -> frozenset[int]:
        """The CPUs that containers can get for themselves."""
        return self._cpus.allocatable if self._cpus is not None else frozenset()

    @property
    def allocatable_memory(self) -> Sequence[Block]:
        """The memory of each NUMA node that containers can have."""
        return self._memory.allocatable if self._memory is not None else ()


def _requested(container: Container, name: str) -> Quantity:
    requests = (container.get("resources") or {}).get("requests") or {}
    return quantity.parse(requests.get(name, "0"))


def _restarts_for_memory(container: Container) -> bool:
    policies = container.get("resizePolicy") or ()
    return any(
        policy["resourceName"] == _MEMORY and policy["restartPolicy"] == "RestartContainer" for policy in policies
    )


def _reserved_cpus(text: str, topology: MachineTopology) -> frozenset[int]:
    try:
        reserved = parse_cpus(text)
    except ValueError as error:
        raise ValueError(f"unable to parse reserved-cpus list: {error}") from None
    if not reserved <= topology.cpus:
        online = format_cpus(topology.cpus)
        raise ValueError(f"reserved-cpus: {text} is not a subset of online-cpus: {online}")
    return reserved


def _check_none(checkpoint: Checkpoint, policy: str) -> None:
    """Raise CheckpointRefused if the containers of this node may still be on CPUs or memory of their own."""
    known = checkpoint.load()
    if known is not None:
        check_policy(checkpoint, known, policy)
