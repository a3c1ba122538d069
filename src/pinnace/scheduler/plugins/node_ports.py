"""NodePorts: host ports of a pod must be free on its node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, ClusterEvent, EventRegistration
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unschedulable
from pinnace.scheduler.plugins.hints import frees_place
from pinnace.scheduler.state.arrays import At, Codes
from pinnace.scheduler.state.pods import Pod
from pinnace.scheduler.state.ports import UsedHostPorts

_REFUSAL = unschedulable("node(s) didn't have free ports for the requested pod ports")


class NodePorts:
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
        return _REFUSAL

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(POD, ActionType.DELETE, _frees_port), EventRegistration(NODE, ActionType.ADD))


def _frees_port(pod: Pod, event: ClusterEvent) -> bool:
    old: Pod = event.old
    if not frees_place(pod, event) or not old.template.host_ports:
        return False
    taken = UsedHostPorts()
    taken.add(old.template.host_ports, 0, 1)
    return bool(taken.conflicts(pod.template.host_ports))
