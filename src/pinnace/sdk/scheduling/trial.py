"""One decision without a cluster, for tests and for looking at a scheduler's functions."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast, get_args

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Node
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.decision import SchedulingDecision, decide
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.lookups import LookupKind

_AMPLE = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_LOOKUPS = frozenset(get_args(LookupKind))


@dataclass(frozen=True, slots=True)
class Trial:
    """The answer of `Scheduler.schedule`."""

    node: str
    """The chosen node; empty if none fits."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why each other node was refused, with the name of the filter."""
    scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The normalized scores of the nodes that fit, by node and function."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """The weighted sums."""
    message: str = ""
    """The message that the pod gets in its event and condition if no node fits."""
    victims: tuple[str, ...] = ()
    """The pods, as namespace/name, that would be evicted to make room."""
    nominated: str = ""
    """The node that they would leave."""


def attempt(profile: Profile, pod: Object, cluster: ClusterState) -> Trial:
    """Decide about one pod, and describe the decision."""
    record = cluster.pod(cast("PodObject", _complete_pod(pod, profile.name)))
    record.source = cast("PodObject", pod)
    return describe(decide(record, cluster, profile, has_details=True))


def cluster_of(nodes: Iterable[Object], pods: Iterable[Object], objects: Iterable[Object]) -> ClusterState:
    """Return the state of a cluster that is given as objects. A node without allocatable resources has ample ones."""
    state = ClusterState()
    for node in nodes:
        state.put_node(cast("Node", _complete_node(node)))
    for obj in objects:
        if obj["kind"] not in _LOOKUPS:
            raise ValueError(
                f"objects: the scheduler does not read {obj['kind']}; expected {', '.join(sorted(_LOOKUPS))}"
            )
        state.lookups.put(obj["kind"], obj)
    for pod in pods:
        name = (pod.get("spec") or {}).get("nodeName")
        if not name:
            raise ValueError(f"pods: {pod['metadata']['name']} has no spec.nodeName; give the pods that run on nodes")
        state.add_pod(state.pod(cast("PodObject", _complete_pod(pod, ""))), name)
    return state


def describe(decision: SchedulingDecision) -> Trial:
    """Return a decision that was made with details as names and texts."""
    if decision.error is not None:
        raise decision.error
    names = decision.cycle.state.nodes.names
    fits = [names[slot] for slot in decision.feasible.tolist()]
    scores: dict[str, dict[str, int]] = {name: {} for name in fits}
    for plugin, values in decision.scores.items():
        for name, value in zip(fits, values.tolist(), strict=True):
            scores[name][plugin] = value
    assert decision.diagnosis is not None
    refused = {name: f"{refusal.plugin}: {refusal.message}" for name, refusal in decision.diagnosis.by_node()}
    nomination = decision.nomination
    return Trial(
        node=decision.node,
        reasons={name: reason for name, reason in refused.items() if name not in scores},
        scores=scores,
        totals=dict(zip(fits, decision.totals.tolist(), strict=False)),
        message="" if decision.node else decision.message,
        victims=tuple(str(victim.key) for victim in nomination.victims) if nomination is not None else (),
        nominated=nomination.node if nomination is not None else "",
    )


def _complete_node(node: Object) -> Object:
    if (node.get("status") or {}).get("allocatable"):
        return node
    complete = copy.deepcopy(node)
    complete.setdefault("status", {})["allocatable"] = dict(_AMPLE)
    return complete


def _complete_pod(pod: Object, scheduler_name: str) -> Object:
    """Add what the API server would: a namespace, and the scheduler's name."""
    complete = dict(pod)
    complete["metadata"] = {"namespace": "default", "name": "pod", **(pod.get("metadata") or {})}
    complete["spec"] = {"schedulerName": scheduler_name, "containers": [], **(pod.get("spec") or {})}
    return complete
