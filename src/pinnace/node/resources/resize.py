"""In-place resize of a pod: the resources that it has been given, and what a change of its spec leads to.

The allocation is kept in a file of the pod, so that another agent continues with it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.node.resources.admission import Rejection, check_resources, requests_of

INFEASIBLE, DEFERRED, ERROR = "Infeasible", "Deferred", "Error"
_RESIZABLE = ("cpu", "memory")
Amounts = Mapping[str, Any]


@dataclass(slots=True)
class PodAllocation:
    """The resources of a pod's containers: as given by the node (allocated), and as the kernel has them (actual)."""

    file: Path
    allocated: dict[str, Object] = field(default_factory=dict)
    """Requests and limits by the name of the container."""
    actual: dict[str, Object] = field(default_factory=dict)
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

    def admit(self, pod: Object) -> None:
        """Give the pod what its spec asks for."""
        self.allocated = {one["name"]: copy.deepcopy(one.get("resources") or {}) for one in _containers(pod)}
        self.pending = None
        self.error = ""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        beside = self.file.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(self.allocated))
        beside.replace(self.file)

    def wants_more(self, pod: Object) -> bool:
        """Return whether the spec differs from the allocation."""
        return any(not is_same(self.allocated.get(one["name"]), one.get("resources") or {}) for one in _containers(pod))

    def of_pod(self, pod: Object) -> Object:
        """Return the pod with the resources that it has been given, in place of those that it asks for."""
        if not self.allocated or not self.wants_more(pod):
            return pod
        spec = dict(pod["spec"])
        for kind in ("containers", "initContainers"):
            if spec.get(kind):
                spec[kind] = [{**one, "resources": self.allocated.get(one["name"], {})} for one in spec[kind]]
        return {**pod, "spec": spec}


def check_resize(pod: Object, others: Sequence[Object], allocatable: Mapping[str, str]) -> Rejection | None:
    """Return why a node cannot give a pod what it asks for now: never (Infeasible), or not yet (Deferred)."""
    for name, amount in requests_of(pod).items():
        capacity = quantity.parse(allocatable.get(name, "0"))
        if amount > capacity:
            asked, there = (
                (amount.milli_value, capacity.milli_value) if name == "cpu" else (amount.value, capacity.value)
            )
            return Rejection(
                INFEASIBLE, f"Node didn't have enough capacity: {name}, requested: {asked}, capacity: {there}"
            )
    found = check_resources(pod, others, allocatable)
    return Rejection(DEFERRED, found.message) if found is not None else None


def needs_restart(container: Object, old: Object, new: Object) -> bool:
    """Return whether the resize policy asks for a restart, for one of the resources that change."""
    restarting = {
        one["resourceName"] for one in container.get("resizePolicy") or () if one["restartPolicy"] == "RestartContainer"
    }
    return any(name in restarting for name in _RESIZABLE if not _is_same_amount(old, new, name))


def is_same(one: Object | None, other: Object | None) -> bool:
    """Return whether two resource requirements are equal as quantities: 1 and 1000m are."""
    return all(_is_same_amount(one or {}, other or {}, name) for name in _RESIZABLE)


def _is_same_amount(one: Object, other: Object, name: str) -> bool:
    return all(_amount(one, kind, name) == _amount(other, kind, name) for kind in ("requests", "limits"))


def _amount(resources: Object, kind: str, name: str) -> quantity.Quantity | None:
    found: Amounts = resources.get(kind) or {}
    return quantity.parse(found[name]) if name in found else None


def _containers(pod: Object) -> list[Object]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
