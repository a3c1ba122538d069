"""In-place resize of a pod: the resources that it has been given, and what a change of its spec leads to.

The allocation is kept in a file of the pod, so that another agent continues with it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pinnace.kinds.pods.resource_amounts import Side
from pinnace.model import quantity
from pinnace.model.typed_objects import Container, Pod, PodSpec, ResourceRequirements
from pinnace.node.resources.admission import Rejection, check_resources, requests_of

INFEASIBLE, DEFERRED, ERROR = "Infeasible", "Deferred", "Error"
_RESIZABLE = ("cpu", "memory")
WHOLE_POD = ""
"""The name under which an allocation has the resources of the pod as a whole; no container has it."""
_SIDES: tuple[Side, ...] = ("requests", "limits")


@dataclass(slots=True)
class PodAllocation:
    """The resources of a pod's containers: as given by the node (allocated), and as the kernel has them (actual)."""

    file: Path
    allocated: dict[str, ResourceRequirements] = field(default_factory=dict)
    """Requests and limits by the name of the container; WHOLE_POD for those that the pod states itself."""
    actual: dict[str, ResourceRequirements] = field(default_factory=dict)
    pending: Rejection | None = None
    """Why the node does not give what the spec asks for."""
    error: str = ""
    """Why the kernel has not taken the allocation."""

    @classmethod
    def load(cls, file: Path) -> PodAllocation:
        made = cls(file)
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            made.allocated = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, Any]])
            made.actual = dict(made.allocated)
        return made

    @property
    def is_in_progress(self) -> bool:
        return any(self.allocated.get(name) != actual for name, actual in self.actual.items())

    def admit(self, pod: Pod) -> None:
        """Give the pod what its spec asks for."""
        self.allocated = copy.deepcopy(dict(_stated(pod)))
        self.pending = None
        self.error = ""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        beside = self.file.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(self.allocated))
        beside.replace(self.file)

    def wants_more(self, pod: Pod) -> bool:
        """Return whether the spec differs from the allocation."""
        return any(not is_same(self.allocated.get(name), resources) for name, resources in _stated(pod))

    def of_pod(self, pod: Pod) -> Pod:
        """Return the pod with the resources that it has been given, in place of those that it asks for."""
        return _with_resources(pod, self.allocated) if self.allocated and self.wants_more(pod) else pod

    def of_allocated(self, pod: Pod) -> Pod:
        """Return the pod with the resources that the node has given it."""
        return _with_resources(pod, self.allocated)

    def actual_of(self, pod: Pod) -> Pod:
        """Return the pod with the resources that the kernel gives it."""
        return _with_resources(pod, {**self.allocated, **self.actual})


def check_resize(pod: Pod, others: Sequence[Pod], allocatable: Mapping[str, str]) -> Rejection | None:
    """Return why a node cannot give a pod what it asks for now: never (Infeasible), or not yet (Deferred)."""
    for name, amount in requests_of(pod).items():
        capacity = quantity.parse(allocatable.get(name, "0"))
        if amount > capacity:
            requested, there = (
                (amount.milli_value, capacity.milli_value) if name == "cpu" else (amount.value, capacity.value)
            )
            return Rejection(
                INFEASIBLE, f"Node didn't have enough capacity: {name}, requested: {requested}, capacity: {there}"
            )
    rejection = check_resources(pod, others, allocatable)
    return Rejection(DEFERRED, rejection.message) if rejection is not None else None


def needs_restart(container: Container, old: ResourceRequirements, new: ResourceRequirements) -> bool:
    """Return whether the resize policy asks for a restart, for one of the resources that change."""
    restarting = {
        policy["resourceName"]
        for policy in container.get("resizePolicy") or ()
        if policy["restartPolicy"] == "RestartContainer"
    }
    return any(name in restarting for name in _RESIZABLE if not _is_same_amount(old, new, name))


def is_same(resources: ResourceRequirements | None, other: ResourceRequirements | None) -> bool:
    """Return whether two resource requirements are equal as quantities: 1 and 1000m are."""
    return all(_is_same_amount(resources or {}, other or {}, name) for name in _RESIZABLE)


def _is_same_amount(resources: ResourceRequirements, other: ResourceRequirements, name: str) -> bool:
    return all(_amount(resources, kind, name) == _amount(other, kind, name) for kind in _SIDES)


def _amount(resources: ResourceRequirements, kind: Side, name: str) -> quantity.Quantity | None:
    amounts = resources.get(kind) or {}
    return quantity.parse(amounts[name]) if name in amounts else None


def _with_resources(pod: Pod, resources: Mapping[str, ResourceRequirements]) -> Pod:
    def give(containers: Sequence[Container]) -> list[Container]:
        return [{**container, "resources": resources.get(container["name"], {})} for container in containers]

    spec = pod["spec"]
    given: PodSpec = {**spec, "containers": give(spec["containers"])}
    if "resources" in spec:
        given["resources"] = resources.get(WHOLE_POD, {})
    if spec.get("initContainers"):
        given["initContainers"] = give(spec["initContainers"])
    return {**pod, "spec": given}


def _stated(pod: Pod) -> Iterator[tuple[str, ResourceRequirements]]:
    """Yield the resources that a pod states for its containers, and for itself, by their names in an allocation."""
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        yield container["name"], container.get("resources", {})
    if "resources" in spec:
        yield WHOLE_POD, spec["resources"]
