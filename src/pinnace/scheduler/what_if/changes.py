"""The smallest change of a pod that makes it fit on a node: found by changing a copy until all filters pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

import numpy as np

from pinnace.model.typed_objects import Container, Toleration
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.one_node import NodeView
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.status import PluginError, Refusal
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.resources import amounts_of

_MOST_STEPS = 8
_MOST_SKEW = 20
_HARD = "DoNotSchedule"


@dataclass(slots=True)
class Remedy:
    """Changes that together make a pod fit on one node."""

    changes: list[str] = field(default_factory=list)
    weight: float = 0.0
    """Distinguishes remedies of equally many changes: the part of the requests that must go."""

    @property
    def size(self) -> tuple[int, float]:
        return len(self.changes), self.weight

    def __str__(self) -> str:
        return ", and ".join(self.changes)


Step = tuple[str, float]
Easing = Callable[[PodObject, NodeView, Refusal, "Trying"], Step | None]
"""Changes the pod so that one refusal goes; returns the description and its weight, or None if it knows no change."""


class Trying:
    """Asks the filters about a changed pod on one node."""

    def __init__(self, state: ClusterState, profile: Profile, slot: int) -> None:
        self._state = state
        self._profile = profile
        self._slot = slot

    def requests_of(self, pod: PodObject) -> Mapping[str, int]:
        return self._state.pod(pod).requests

    def refusal_of(self, pod: PodObject) -> Refusal | None:
        """Return the first refusal of the node."""
        record = self._state.pod(pod)
        record.source = pod
        cycle = Cycle(record, self._state, Random(0))
        self._profile.prepare(cycle)
        return self._profile.check(cycle, np.array([self._slot], dtype=np.intp)).of(self._slot)


def find_remedy(pod: PodObject, state: ClusterState, profile: Profile, slot: int) -> Remedy | None:
    """Return the changes that make a pod fit on a node; None if no change of the pod is known that does."""
    changed = copy.deepcopy(pod)
    trying = Trying(state, profile, slot)
    node = NodeView(state, slot)
    remedy = Remedy()
    try:
        for _ in range(_MOST_STEPS):
            refusal = trying.refusal_of(changed)
            if refusal is None:
                return remedy
            ease = _EASINGS.get(refusal.plugin)
            step = ease(changed, node, refusal, trying) if ease is not None else None
            if step is None:
                return None
            remedy.changes.append(step[0])
            remedy.weight += step[1]
    except PluginError:
        return None  # A plug-in that fails is reported with the decision.
    return None


# One easing for each plug-in


def _tolerate_cordon(pod: PodObject, node: NodeView, refusal: Refusal, trying: Trying) -> Step | None:
    _add_toleration(pod, {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"})
    return f"uncordon {node.name}", 0.0


def _tolerate(pod: PodObject, node: NodeView, refusal: Refusal, trying: Trying) -> Step | None:
    """Add the tolerations for the taints that matter, one after the other."""
    added = []
    for taint in node.taints:
        if taint.get("effect") not in ("NoSchedule", "NoExecute"):
            continue
        toleration: Toleration = {
            "key": taint["key"],
            "operator": "Equal",
            "value": taint.get("value", ""),
            "effect": taint["effect"],
        }
        before = trying.refusal_of(pod)
        if before is None or before.plugin != refusal.plugin:
            break
        _add_toleration(pod, toleration)
        value = f"={taint['value']}" if taint.get("value") else ""
        added.append(f"{taint['key']}{value}:{taint['effect']}")
    noun = "toleration" if len(added) == 1 else "tolerations"
    return (f"add the {noun} {' and '.join(added)}", len(added) / 100) if added else None


def _leave_affinity(pod: PodObject, node: NodeView, refusal: Refusal, trying: Trying) -> Step | None:
    spec = pod["spec"]
    for key, value in dict(spec.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            del spec["nodeSelector"][key]
            return f"remove the nodeSelector {key}={value}, or set this label on {node.name}", 0.0
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    if affinity.pop("requiredDuringSchedulingIgnoredDuringExecution", None) is not None:
        return f"remove the required node affinity, or label {node.name} to match it", 0.0
    return None


def _leave_ports(pod: PodObject, node: NodeView, refusal: Refusal, trying: Trying) -> Step | None:
    for container in _containers(pod):
        for port in container.get("ports") or ():
            if not port.get("hostPort"):
                continue
            taken = port.pop("hostPort")
            after = trying.refusal_of(pod)
            if after is None or after.plugin != refusal.plugin:
                return f"use another host port than {taken}/{port.get('protocol') or 'TCP'}", 0.0
    return None


def _request_less(pod: PodObject, node: NodeView, refusal: Refusal, trying: Trying) -> Step | None:
    for reason in refusal.reasons:
        if not reason.startswith("Insufficient "):
            return None
        resource = reason.removeprefix("Insufficient ")
        missing = _missing(pod, node, resource, trying)
        if missing is None:
            return None
        lack, share = missing
        return f"request {_format(resource, lack)} less {resource}", share
    return None


def _missing(pod: PodObject, node: NodeView, resource: str, trying: Trying) -> tuple[int, float] | None:
    """Take from the containers' requests what the node lacks; return it, also as a part of the whole."""
    free = node.allocatable.get(resource, 0) - node.requested.get(resource, 0)
    record = trying.requests_of(pod).get(resource, 0)
    lack = record - max(free, 0)
    if (
        lack <= 0
        or lack > record
        or pod["spec"].get("overhead")
        or (pod["spec"].get("resources") or {}).get("requests")
    ):
        return None
    left = lack
    for container in _containers(pod):
        requests = (container.get("resources") or {}).get("requests") or {}
        if resource not in requests or left <= 0:
            continue
        amount = amounts_of({resource: requests[resource]})[resource]
        taken = min(left, amount)
        requests[resource] = f"{amount - taken}m" if resource == "cpu" else str(amount - taken)
        if amount == taken:
            del requests[resource]
        left -= taken
    return (lack, lack / record) if left <= 0 else None


def _spread_less(pod: PodObject, node: NodeView, refusal: Refusal, trying: Trying) -> Step | None:
    for constraint in pod["spec"].get("topologySpreadConstraints") or ():
        if constraint.get("whenUnsatisfiable") != _HARD:
            continue
        key = constraint["topologyKey"]
        if key not in node.labels:
            constraint["whenUnsatisfiable"] = "ScheduleAnyway"
            return f"label {node.name} with {key}", 0.0
        old = constraint["maxSkew"]
        for skew in range(old + 1, old + _MOST_SKEW):
            constraint["maxSkew"] = skew
            after = trying.refusal_of(pod)
            if after is None or after.plugin != refusal.plugin:
                return (
                    f"maxSkew {skew} instead of {old} for {key}, or one more {key.rpartition('/')[2]} with room",
                    0.01 * skew,
                )
        constraint["maxSkew"] = old
    return None


def _leave_pod_terms(pod: PodObject, node: NodeView, refusal: Refusal, trying: Trying) -> Step | None:
    affinity = pod["spec"].get("affinity") or {}
    required: Final = "requiredDuringSchedulingIgnoredDuringExecution"
    kind: Literal["podAntiAffinity", "podAffinity"]
    for kind, noun in (("podAntiAffinity", "anti-affinity"), ("podAffinity", "affinity")):
        terms = (affinity.get(kind) or {}).get(required)
        if not terms:
            continue
        del affinity[kind][required]
        after = trying.refusal_of(pod)
        if after is None or after.reasons != refusal.reasons:
            key = terms[0].get("topologyKey", "")
            return f"remove the required pod {noun} by {key}, or make it preferred", 0.0
        affinity[kind][required] = terms
    return None


_EASINGS: dict[str, Easing] = {
    "NodeUnschedulable": _tolerate_cordon,
    "TaintToleration": _tolerate,
    "NodeAffinity": _leave_affinity,
    "NodePorts": _leave_ports,
    "NodeResourcesFit": _request_less,
    "PodTopologySpread": _spread_less,
    "InterPodAffinity": _leave_pod_terms,
}


def _containers(pod: PodObject) -> Iterator[Container]:
    yield from pod["spec"].get("containers") or ()
    yield from pod["spec"].get("initContainers") or ()


def _add_toleration(pod: PodObject, toleration: Toleration) -> None:
    pod["spec"]["tolerations"] = [*(pod["spec"].get("tolerations") or ()), toleration]


def _format(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if amount >= size and resource in ("memory", "ephemeral-storage"):
            return f"{-(-amount // size)}{unit}"
    return str(amount)
