"""Decides which nodes a DaemonSet runs on, and builds the pods for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.workloads.ownership import Owned
from pinnace.controllers.workloads.pod_control import pod_from_template
from pinnace.controllers.workloads.pod_facts import pod_facts
from pinnace.controllers.workloads.revisions import POD_LABEL
from pinnace.kinds.pods.placement import Constraints
from pinnace.model.typed_objects import (
    Affinity,
    DaemonSet,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    Pod,
    PodSpec,
    Taint,
    Toleration,
)
from pinnace.process.work_slices import Turns

GENERATION_LABEL = "pod-template-generation"
_GENERATION = "deprecated.daemonset.template.generation"
_MOST_RULES = 200
"""More terms and tolerations are not compared with a node at each of its changes."""
_NODE_TAINT = "node.kubernetes.io/"
_TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_TOLERATED_ON_HOST_NETWORK = (("network-unavailable", "NoSchedule"),)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The fields of a node that decide whether a pod may run on it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]


class _Metadata(msgspec.Struct, gc=False):
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, gc=False):
    taints: list[Any] | None = None


class _Node(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec | None = None


_decoder = msgspec.json.Decoder(_Node)


def node_facts(snapshot: Snapshot[Node]) -> NodeFacts:
    """Read the labels and taints of a node. Use through `snapshot.derive(node_facts)`."""
    node = _decoder.decode(snapshot.body)
    taints = node.spec.taints if node.spec is not None else None
    return NodeFacts(snapshot.key.name, node.metadata.labels or {}, taints or ())


@dataclass(frozen=True, slots=True)
class Placement:
    """The rules of a DaemonSet's template about the nodes of its pods."""

    node_name: str
    constraints: Constraints

    def may_concern(self, nodes: Collection[NodeFacts]) -> bool:
        """Whether one of these nodes may get or keep a pod; True if there are too many rules to find out at once."""
        return self.constraints.size > _MOST_RULES or any(self._may_continue(node) for node in nodes)

    def _may_continue(self, node: NodeFacts) -> bool:
        """Whether a pod that runs there may stay: a taint without NoExecute keeps only new ones away."""
        return self.fits(node) and self.constraints.tolerates(node.taints, ("NoExecute",))

    def fits(self, node: NodeFacts) -> bool:
        """Whether name and labels of the node are right."""
        is_named = not self.node_name or self.node_name == node.name
        return is_named and self.constraints.matches_labels(node.name, node.labels)


@dataclass(frozen=True, slots=True)
class EligibleNodes:
    """The names of the nodes that one DaemonSet may use."""

    names: Collection[str]
    wanted: Collection[str]
    """The nodes that should have a pod."""
    allowed: Collection[str]
    """The nodes where a running pod may stay."""


async def sort_nodes(placement: Placement, nodes: Collection[NodeFacts]) -> EligibleNodes:
    """Compare each node with the rules. Other work gets its turn in between: a template may have thousands of terms."""
    wanted, allowed, turns = set(), set(), Turns()
    for node in nodes:
        if placement.fits(node):
            if placement.constraints.tolerates(node.taints):
                wanted.add(node.name)
            if placement.constraints.tolerates(node.taints, ("NoExecute",)):
                allowed.add(node.name)
        await turns.pause()
    return EligibleNodes(names=frozenset(node.name for node in nodes), wanted=wanted, allowed=allowed)


def placement_of(snapshot: Snapshot[DaemonSet]) -> Placement:
    """Read the placement rules of a DaemonSet. Use through `snapshot.derive(placement_of)`."""
    spec = snapshot.object["spec"]["template"]["spec"]
    return Placement(spec.get("nodeName", ""), Constraints({**spec, "tolerations": _tolerations(spec)}))


def target_node(snapshot: Snapshot[Pod]) -> str:
    """Read the node that a pod of a DaemonSet is for: bound to it, or pinned by its affinity; empty if neither."""
    node = snapshot.derive(pod_facts).node
    if node:
        return node
    affinity = (snapshot.object["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for term in (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if (field.get("key"), field.get("operator")) == ("metadata.name", "In"):
                values: Sequence[str] = field.get("values") or ()
                return values[0] if len(values) == 1 else ""
    return ""


def daemon_pod(daemon_set: DaemonSet, node: str, hash_value: str) -> Pod:
    """Return the pod for a node: pinned to it by affinity, and tolerating the taints of an unhealthy node."""
    template = daemon_set["spec"]["template"]
    pod = pod_from_template(daemon_set, template)
    labels = {**(template["metadata"].get("labels") or {}), POD_LABEL: hash_value}
    generation = template_generation(daemon_set)
    if generation:
        labels[GENERATION_LABEL] = generation
    spec: PodSpec = {
        **template["spec"],
        "tolerations": _tolerations(template["spec"]),
        "affinity": _pin(template["spec"].get("affinity") or {}, node),
    }
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}, "spec": spec}


def template_generation(daemon_set: DaemonSet) -> str:
    """Return the generation of the template, which old clients use; empty if there is none."""
    number: str = (daemon_set["metadata"].get("annotations") or {}).get(_GENERATION, "")
    return number if number.isascii() and number.isdigit() else ""


def is_updated(pod: Owned, hash_value: str, generation: str) -> bool:
    """Whether a pod has the template of the hash, or of the generation."""
    is_of_generation = bool(generation) and pod.labels.get(GENERATION_LABEL) == generation
    return is_of_generation or pod.labels.get(POD_LABEL) == hash_value


def _tolerations(spec: PodSpec) -> list[Toleration]:
    own = list(spec.get("tolerations") or ())
    added = (*_TOLERATED, *(_TOLERATED_ON_HOST_NETWORK if spec.get("hostNetwork") else ()))
    for name, effect in added:
        toleration: Toleration = {"key": f"{_NODE_TAINT}{name}", "operator": "Exists", "effect": effect}
        if toleration not in own:
            own.append(toleration)
    return own


def _pin(affinity: Affinity, node: str) -> Affinity:
    field: NodeSelectorRequirement = {"key": "metadata.name", "operator": "In", "values": [node]}
    required: NodeSelector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {
        **affinity,
        "nodeAffinity": {
            **(affinity.get("nodeAffinity") or {}),
            "requiredDuringSchedulingIgnoredDuringExecution": required,
        },
    }
