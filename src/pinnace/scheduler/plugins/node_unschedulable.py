"""NodeUnschedulable: cordoned nodes take only pods that tolerate it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, EventRegistration
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import Refusal, unresolvable
from pinnace.scheduler.plugins.hints import is_own_update
from pinnace.scheduler.state.arrays import At, Codes
from pinnace.scheduler.state.node_selectors import length, tolerates_unschedulable

_REFUSAL = unresolvable("node(s) were unschedulable")


class NodeUnschedulable:
    name = "NodeUnschedulable"
    depends = Depends.NODE
    ignores_labels = True

    def filter(self, cycle: Cycle, at: At) -> Codes:
        nodes = cycle.state.nodes
        if tolerates_unschedulable(cycle.template):
            return np.zeros(length(nodes, at), dtype=np.int32)
        return nodes.unschedulable[at].astype(np.int32)

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _REFUSAL

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_TAINTS),
            EventRegistration(POD, ActionType.POD_TOLERATIONS, is_own_update),
        )
