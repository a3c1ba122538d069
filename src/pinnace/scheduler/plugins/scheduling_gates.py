"""SchedulingGates: a pod with scheduling gates waits until all are removed."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.scheduler.framework.events import POD, ActionType, EventRegistration
from pinnace.scheduler.framework.status import Refusal, unresolvable
from pinnace.scheduler.plugins.hints import is_own_update
from pinnace.scheduler.state.pods import Pod


class SchedulingGates:
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        gates = pod.spec.get("schedulingGates")
        if not gates:
            return None
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gate['name'] for gate in gates)}]")

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(POD, ActionType.POD_GATES, is_own_update),)
