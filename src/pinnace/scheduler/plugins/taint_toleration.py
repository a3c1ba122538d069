"""TaintToleration: hard taints refuse pods that do not tolerate them, soft ones lower the score."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, EventRegistration
from pinnace.scheduler.framework.normalization import normalize
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import Refusal, unresolvable
from pinnace.scheduler.plugins.hints import is_own_update
from pinnace.scheduler.state.arrays import At, Codes, Integers, Slots
from pinnace.scheduler.state.node_selectors import count_soft_taints, match_taints

_REFUSAL = unresolvable("node(s) had untolerated taint(s)")


class TaintToleration:
    name = "TaintToleration"
    depends = Depends.NODE
    ignores_labels = True

    def filter(self, cycle: Cycle, at: At) -> Codes:
        return (~match_taints(cycle.state.nodes, cycle.template, at)).astype("int32")

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _REFUSAL

    def score(self, cycle: Cycle, at: At) -> Integers:
        return count_soft_taints(cycle.state.nodes, cycle.template, at)

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        return normalize(scores, is_reversed=True)

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_TAINTS),
            EventRegistration(POD, ActionType.POD_TOLERATIONS, is_own_update),
        )
