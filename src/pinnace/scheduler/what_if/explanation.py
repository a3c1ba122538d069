"""Explain a decision: the filter that refused each node, or its scores, and the smallest change that would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.decision import decide
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.what_if.changes import Remedy, find_remedy


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The result of one node: refused by a filter, or scored."""

    name: str
    plugin: str = ""
    """The filter that refused it; empty if the node fits."""
    reasons: tuple[str, ...] = ()
    scores: Mapping[str, int] = field(default_factory=dict)
    """The normalized scores by plug-in, without weights."""
    total: int = 0
    remedy: Remedy | None = None
    """The changes of the pod that would make it fit on this node."""


@dataclass(frozen=True, slots=True)
class SchedulingReport:
    """Why a pod goes to a node, or to none."""

    pod: str
    node: str
    """The node that is chosen now; empty if none fits."""
    message: str
    """The message of kube-scheduler if none fits."""
    nodes: Sequence[NodeReport]
    weights: Mapping[str, int]
    nominated: str = ""
    victims: tuple[str, ...] = ()
    """The pods that preemption would evict from the nominated node."""

    @property
    def smallest(self) -> tuple[str, Remedy] | None:
        """The node that needs the smallest change, and the change."""
        remedies = [(node.name, node.remedy) for node in self.nodes if node.remedy is not None]
        return min(remedies, key=lambda pair: pair[1].size) if remedies and not self.node else None


def explain(pod: PodObject, state: ClusterState, profile: Profile) -> SchedulingReport:
    """Decide about a pod as if it waited now, and describe the decision. Raise PluginError if a plug-in fails."""
    spec = pod["spec"].copy()
    spec.pop("nodeName", None)
    waiting: PodObject = {**pod, "spec": spec}
    record = state.pod(waiting)
    record.source = waiting
    decision = decide(record, state, profile, has_details=True)
    if decision.error is not None:
        raise decision.error
    assert decision.diagnosis is not None
    names = state.nodes.names
    fits = [names[slot] for slot in decision.feasible.tolist()]
    totals = dict(zip(fits, decision.totals.tolist(), strict=False))
    scores = {plugin: dict(zip(fits, values.tolist(), strict=True)) for plugin, values in decision.scores.items()}
    reports = [
        NodeReport(name, scores={plugin: values[name] for plugin, values in scores.items()}, total=totals.get(name, 0))
        for name in sorted(fits, key=lambda name: -totals.get(name, 0))
    ]
    for name, refusal in decision.diagnosis.by_node():
        if name in totals:
            continue
        slot = state.nodes.slot_of[name]
        remedy = None if fits else find_remedy(waiting, state, profile, slot)
        reports.append(NodeReport(name, refusal.plugin, refusal.reasons, remedy=remedy))
    nomination = decision.nomination
    return SchedulingReport(
        pod=str(record.key),
        node=decision.node,
        message="" if decision.node else decision.message,
        nodes=reports,
        weights={scorer.plugin.name: scorer.weight for scorer in profile.score},
        nominated=nomination.node if nomination is not None else "",
        victims=tuple(str(victim.key) for victim in nomination.victims) if nomination is not None else (),
    )
