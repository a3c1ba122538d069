"""The swap of containers: none, or in proportion to the memory that they request, as kubelet computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pinnace.kinds.pods.resource_amounts import qos_class
from pinnace.model import quantity
from pinnace.model.typed_objects import Container, Pod

NO_SWAP, LIMITED_SWAP = "NoSwap", "LimitedSwap"
_CRITICAL = 2_000_000_000
"""The priority of system-cluster-critical."""
_MIRROR, _SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"
_MEMORY_INFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapPolicy:
    behavior: str = ""
    """NoSwap, LimitedSwap, or empty for NoSwap."""
    fails_with_swap: bool = False
    """Whether the node refuses to start on a machine with swap. Unlike kubelet, it does not unless this is set."""
    memory_info: Path = _MEMORY_INFO

    def on(self, machine: Path, memory_bytes: int) -> Swap:
        """Return the swap of this machine. Raise ValueError with kubelet's message if it does not suit the policy."""
        capacity = _swap_bytes(self.memory_info)
        if capacity and self.fails_with_swap:
            raise ValueError(
                "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
            )
        is_unified = (machine / "fs/cgroup/cgroup.controllers").exists()
        if self.behavior == LIMITED_SWAP and not is_unified:
            raise ValueError("swap feature is enabled and LimitedSwap but it is only supported with cgroupv2")
        return Swap(self.behavior == LIMITED_SWAP, capacity, memory_bytes)


@dataclass(frozen=True, slots=True)
class Swap:
    is_limited: bool
    """Whether containers of burstable pods have a share; otherwise no container has any."""
    capacity: int
    """The bytes of swap of this machine."""
    memory_bytes: int

    def bytes_of(self, pod: Pod, container: Container) -> int:
        """Return the swap of a container."""
        if not self.is_limited or _is_critical(pod) or qos_class(pod["spec"]) != "Burstable":
            return 0
        resources = container.get("resources") or {}
        request, limit = _memory(resources.get("requests")), _memory(resources.get("limits"))
        if request == limit or not 0 < request <= self.memory_bytes:
            return 0
        return int(request / self.memory_bytes * self.capacity)


def _is_critical(pod: Pod) -> bool:
    annotations = pod["metadata"].get("annotations") or {}
    is_static = _MIRROR in annotations or annotations.get(_SOURCE, "api") != "api"
    return is_static or (pod["spec"].get("priority") or 0) >= _CRITICAL


def _memory(amounts: Mapping[str, str] | None) -> int:
    return quantity.parse((amounts or {}).get("memory", "0")).value


def _swap_bytes(memory_info: Path) -> int:
    lines = memory_info.read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("SwapTotal:")), 0)
