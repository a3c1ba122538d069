"""NodeDeclaredFeatures: a pod that needs a feature of the node agent runs on nodes that declare it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pinnace.model.objects import Object
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, ActionType, EventRegistration
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable
from pinnace.scheduler.state.arrays import At, Codes, slots_of
from pinnace.scheduler.state.pods import Template

_REFUSAL = unresolvable("node(s) didn't match Pod's required features")
_RESTART_ALL = "RestartAllContainersOnContainerExits"
_HOST_NETWORK_USERS = "UserNamespacesHostNetworkSupport"


class NodeDeclaredFeatures:
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
        return _REFUSAL

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(NODE, ActionType.ADD | ActionType.NODE_FEATURES),)


def _needed(template: Template) -> frozenset[str]:
    known: frozenset[str] | None = template.cached.get(NodeDeclaredFeatures)
    if known is None:
        known = template.cached[NodeDeclaredFeatures] = frozenset(_features_of(template.spec))
    return known


def _features_of(spec: Object) -> list[str]:
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    rules = [rule for container in containers for rule in container.get("restartPolicyRules") or ()]
    features = [_RESTART_ALL] if any(rule.get("action") == "RestartAllContainers" for rule in rules) else []
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        features.append(_HOST_NETWORK_USERS)
    return features
