"""NodeName: a pod with spec.nodeName runs on that node only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, ActionType, EventRegistration
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import Refusal, unresolvable
from pinnace.scheduler.state.arrays import At, Codes
from pinnace.scheduler.state.node_selectors import length
from pinnace.scheduler.state.nodes import NAME

_REFUSAL = unresolvable("node(s) didn't match the requested node name")


class NodeName:
    name = "NodeName"
    depends = Depends.NODE
    ignores_labels = True

    def filter(self, cycle: Cycle, at: At) -> Codes:
        wanted, nodes = cycle.template.node_name, cycle.state.nodes
        if not wanted:
            return np.zeros(length(nodes, at), dtype=np.int32)
        return (~nodes.fields.match(NAME, "In", (wanted,), at)).astype(np.int32)

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _REFUSAL

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(NODE, ActionType.ADD),)
