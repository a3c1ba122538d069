"""Queueing hints that several plug-ins share."""

from __future__ import annotations

from pinnace.scheduler.framework.events import ClusterEvent
from pinnace.scheduler.state.pods import Pod


def is_own_update(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the waiting pod itself has changed."""
    return event.new is not None and event.new.uid == pod.uid


def frees_place(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a pod that had a node, or was nominated for one, has left it."""
    old: Pod | None = event.old
    return event.new is None and old is not None and bool(old.node or old.nominated_node)
