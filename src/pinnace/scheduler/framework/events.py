"""The events that may make a waiting pod schedulable, and the hints of plug-ins about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

from pinnace.scheduler.state.pods import Pod

POD = "Pod"
NODE = "Node"
EVERYTHING = "*"


class ActionType(IntFlag):
    """The kind of a change, by the names of Kubernetes' queueing hints."""

    ADD = 1
    DELETE = 2
    UPDATE = 4
    """Any update without a more precise action below."""
    NODE_ALLOCATABLE = 8
    NODE_LABELS = 16
    NODE_TAINTS = 32
    NODE_CONDITIONS = 64
    POD_LABELS = 128
    POD_SCALE_DOWN = 256
    POD_TOLERATIONS = 512
    POD_GATES = 1024
    NODE_FEATURES = 2048
    ALL = 4095


_LABELS = (
    (ActionType.ADD, "Add"),
    (ActionType.DELETE, "Delete"),
    (ActionType.NODE_ALLOCATABLE, "UpdateNodeAllocatable"),
    (ActionType.NODE_LABELS, "UpdateNodeLabel"),
    (ActionType.NODE_TAINTS, "UpdateNodeTaint"),
    (ActionType.NODE_CONDITIONS, "UpdateNodeCondition"),
    (ActionType.NODE_FEATURES, "UpdateNodeDeclaredFeature"),
    (ActionType.POD_LABELS, "UpdatePodLabel"),
    (ActionType.POD_SCALE_DOWN, "UpdatePodScaleDown"),
    (ActionType.POD_TOLERATIONS, "UpdatePodToleration"),
    (ActionType.POD_GATES, "UpdatePodSchedulingGatesEliminated"),
)
POD_ADDED, POD_UPDATED = "UnschedulablePodAdd", "UnschedulablePodUpdate"
ATTEMPT_FAILED, BACKOFF_ENDED, TAKEN_EARLY = "ScheduleAttemptFailure", "BackoffComplete", "PopFromBackoffQ"
FORCED, WAITED_LONG = "ForceActivate", "UnschedulableTimeout"
"""The names of events that are no changes of other objects."""


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One change: of an object of a kind, with the former and the new state as far as there is one.

    For pods these are `Pod` records, for nodes the slot, for other kinds decoded objects.
    """

    kind: str
    action: ActionType
    old: Any = None
    new: Any = None

    @property
    def label(self) -> str:
        """The name of the event in the metric scheduler_queue_incoming_pods_total."""
        # Pods are waked by pods that have a node.
        kind = "AssignedPod" if self.kind == POD else self.kind
        return kind + next((name for action, name in _LABELS if self.action & action), "Update")


Hint = Callable[[Pod, ClusterEvent], bool]
"""Whether an event may make a pod schedulable. It must be fast and must not change anything."""


@dataclass(frozen=True, slots=True)
class EventRegistration:
    """A plug-in's interest: pods that it has refused are tried again after such events, if its hint agrees."""

    kind: str
    action: ActionType
    hint: Hint | None = None

    def covers(self, event: ClusterEvent) -> bool:
        return (self.kind in (event.kind, EVERYTHING)) and bool(self.action & event.action)


def is_own_update(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the waiting pod itself has changed."""
    return event.new is not None and event.new.uid == pod.uid


def frees_place(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a pod that had a node, or was nominated for one, has left it."""
    old: Pod | None = event.old
    return event.new is None and old is not None and bool(old.node or old.nominated_node)
