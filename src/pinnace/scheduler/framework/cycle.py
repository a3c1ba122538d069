"""One attempt to schedule one pod: the pod, the state of the cluster, and the notes of plug-ins."""

from __future__ import annotations

from random import Random
from typing import Any

from pinnace.scheduler.framework.observer import CycleTimes
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod, Template


class Cycle:
    """Passed to every moment of one attempt."""

    __slots__ = ("data", "pod", "random", "state", "template", "times")

    def __init__(self, pod: Pod, state: ClusterState, random: Random, times: CycleTimes | None = None) -> None:
        self.pod = pod
        self.template: Template = pod.template
        self.state = state
        self.random = random
        self.times = times
        self.data: dict[str, Any] = {}
        """Notes of plug-ins, by name of the plug-in: PreFilter writes them, Filter and Score read them."""
