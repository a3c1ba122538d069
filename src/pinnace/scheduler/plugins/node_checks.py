"""The plug-ins that look at one property of a node: its name, cordon, taints, host ports, features and images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pinnace.kinds.pods.declared_features import needed_to_run
from pinnace.model.typed_objects import PodSpec
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import (
    NODE,
    POD,
    ActionType,
    ClusterEvent,
    EventRegistration,
    frees_place,
    is_own_update,
)
from pinnace.scheduler.framework.normalization import normalize
from pinnace.scheduler.framework.plugin import HIGHEST_SCORE, Depends, Plugin
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable, unschedulable
from pinnace.scheduler.state.arrays import At, Codes, Integers, Slots, slots_of
from pinnace.scheduler.state.node_selectors import count_soft_taints, length, match_taints, tolerates_unschedulable
from pinnace.scheduler.state.nodes import NAME
from pinnace.scheduler.state.pods import Pod, Template
from pinnace.scheduler.state.ports import UsedHostPorts

_OTHER_NODE = unresolvable("node(s) didn't match the requested node name")


class NodeName(Plugin):
    name = "NodeName"
    depends = Depends.NODE
    ignores_labels = True

    def filter(self, cycle: Cycle, at: At) -> Codes:
        wanted, nodes = cycle.template.node_name, cycle.state.nodes
        if not wanted:
            return np.zeros(length(nodes, at), dtype=np.int32)
        return (~nodes.fields.match(NAME, "In", (wanted,), at)).astype(np.int32)

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _OTHER_NODE

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(NODE, ActionType.ADD),)


_UNSCHEDULABLE = unresolvable("node(s) were unschedulable")


class NodeUnschedulable(Plugin):
    name = "NodeUnschedulable"
    depends = Depends.NODE
    ignores_labels = True

    def filter(self, cycle: Cycle, at: At) -> Codes:
        nodes = cycle.state.nodes
        if tolerates_unschedulable(cycle.template):
            return np.zeros(length(nodes, at), dtype=np.int32)
        return nodes.unschedulable[at].astype(np.int32)

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _UNSCHEDULABLE

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_TAINTS),
            EventRegistration(POD, ActionType.POD_TOLERATIONS, is_own_update),
        )


_UNTOLERATED = unresolvable("node(s) had untolerated taint(s)")


class TaintToleration(Plugin):
    name = "TaintToleration"
    depends = Depends.NODE
    ignores_labels = True

    def filter(self, cycle: Cycle, at: At) -> Codes:
        return (~match_taints(cycle.state.nodes, cycle.template, at)).astype("int32")

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _UNTOLERATED

    def score(self, cycle: Cycle, at: At) -> Integers:
        return count_soft_taints(cycle.state.nodes, cycle.template, at)

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        return normalize(scores, is_reversed=True)

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_TAINTS),
            EventRegistration(POD, ActionType.POD_TOLERATIONS, is_own_update),
        )


_PORT_IN_USE = unschedulable("node(s) didn't have free ports for the requested pod ports")


class NodePorts(Plugin):
    name = "NodePorts"
    depends = Depends.NODE | Depends.PODS
    ignores_labels = True

    def pre_filter(self, cycle: Cycle) -> Skip | None:
        return None if cycle.template.host_ports else SKIP

    def filter(self, cycle: Cycle, at: At) -> Codes:
        codes = np.zeros(cycle.state.size, dtype=np.int32)
        if cycle.template.host_ports:
            codes[list(cycle.state.ports.conflicts(cycle.template.host_ports))] = 1
        return codes[at]

    def filter_one(self, cycle: Cycle, slot: int) -> int:
        ports = cycle.template.host_ports
        return 1 if ports and slot in cycle.state.ports.conflicts(ports) else 0

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _PORT_IN_USE

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(POD, ActionType.DELETE, _frees_port), EventRegistration(NODE, ActionType.ADD))


def _frees_port(pod: Pod, event: ClusterEvent) -> bool:
    old: Pod = event.old
    if not frees_place(pod, event) or not old.template.host_ports:
        return False
    taken = UsedHostPorts()
    taken.add(old.template.host_ports, 0, 1)
    return bool(taken.conflicts(pod.template.host_ports))


_LACKS_FEATURE = unresolvable("node(s) didn't match Pod's required features")


class NodeDeclaredFeatures(Plugin):
    name = "NodeDeclaredFeatures"
    depends = Depends.NODE
    ignores_labels = True

    def pre_filter(self, cycle: Cycle) -> Skip | None:
        return None if _needed(cycle.template) else SKIP

    def filter(self, cycle: Cycle, at: At) -> Codes:
        slots = slots_of(at, cycle.state.size)
        needed = _needed(cycle.template)
        if not needed:
            return np.zeros(len(slots), dtype=np.int32)
        features = cycle.state.nodes.features
        return np.array([not needed <= features[slot] for slot in slots.tolist()], dtype=np.int32)

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _LACKS_FEATURE

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(NODE, ActionType.ADD | ActionType.NODE_FEATURES),)


def _needed(template: Template) -> frozenset[str]:
    known: frozenset[str] | None = template.cached.get(NodeDeclaredFeatures)
    if known is None:
        known = template.cached[NodeDeclaredFeatures] = frozenset(needed_to_run(template.spec))
    return known


_MB = 1024 * 1024
_LEAST = 23 * _MB
_MOST_PER_CONTAINER = 1000 * _MB


class ImageLocality(Plugin):
    name = "ImageLocality"
    depends = Depends.ALL_NODES
    ignores_labels = True

    def score(self, cycle: Cycle, at: At) -> Integers:
        nodes, spec = cycle.state.nodes, cycle.template.spec
        total = np.zeros(nodes.size, dtype=np.int64)
        for name in _images_of(spec):
            image = nodes.images.find(name, nodes.size)
            if image is not None:
                size, mask = image
                total[mask] += int(float(size) * (float(mask.sum()) / float(nodes.count)))
        containers = len(spec.get("initContainers") or ()) + len(spec.get("containers") or ())
        most = _MOST_PER_CONTAINER * containers
        if most <= _LEAST:
            return np.zeros_like(total[at])
        clipped = np.clip(total[at], _LEAST, most)
        return HIGHEST_SCORE * (clipped - _LEAST) // (most - _LEAST)


def _images_of(spec: PodSpec) -> list[str]:
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    names = [container.get("image") or "" for container in containers]
    names += [volume["image"].get("reference") or "" for volume in spec.get("volumes") or () if volume.get("image")]
    return [normalize_name(name) for name in names]


def normalize_name(name: str) -> str:
    """Return an image name with the tag `latest` if it has none."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
