"""The contract between the topology manager and the parts that give resources of the machine to containers.

At admission, the topology manager asks each `HintProvider` on which NUMA nodes it could allocate, chooses the hint that
suits all of them, and lets each allocate by it. CPUs, memory and devices are providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol, TypeAlias

from pinnace.model.typed_objects import Container, Pod

UNEXPECTED = "UnexpectedAdmissionError"


class AllocationFailed(Exception):
    """A provider cannot allocate what a container needs. The message is kubelet's."""

    reason = UNEXPECTED

    @property
    def admission_message(self) -> str:
        """The message of the pod's rejection."""
        return f"Allocate failed due to {self}, which is unexpected"


@dataclass(frozen=True, slots=True)
class Hint:
    """One way to allocate a resource."""

    nodes: int | None
    """The NUMA nodes as bits (`mask_of`); None for any."""
    is_preferred: bool
    """Whether no way needs fewer NUMA nodes."""


ANY = Hint(None, is_preferred=True)
"""The hint of a container for which the topology manager has not chosen NUMA nodes."""

Hints: TypeAlias = Mapping[str, Sequence[Hint] | None]
"""The hints by the name of the resource.

An empty mapping, or None for a resource, is no preference; an empty sequence says that no NUMA nodes have enough.
"""


class HintProvider(Protocol):
    """Gives resources of this machine to containers. `release` and `allocate` may be repeated."""

    def hints(self, pod: Pod, container: Container) -> Hints:
        """Return the ways to allocate what one container needs."""

    def pod_hints(self, pod: Pod) -> Hints:
        """Return the ways to allocate what all containers of a pod need together, for the scope pod."""

    async def allocate(self, pod: Pod, container: Container, hint: Hint) -> None:
        """Allocate what a container needs, on the NUMA nodes of the hint first. Raise AllocationFailed or OSError.

        A container that has its resources, such as after a restart of the agent, keeps them. Init containers come
        first, in their order.
        """

    def release(self, uid: str) -> None:
        """Free all that the containers of a pod have."""


def mask_of(nodes: Iterable[int]) -> int:
    """Return NUMA nodes as bits."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def nodes_of(mask: int) -> list[int]:
    """Return the NUMA nodes of a mask in their order."""
    return [node for node in range(mask.bit_length()) if mask >> node & 1]


def masks_over(nodes: Sequence[int]) -> Iterator[int]:
    """Yield every set of NUMA nodes, those with the fewest nodes first."""
    for count in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, count):
            yield mask_of(chosen)
