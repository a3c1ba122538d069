"""PrioritySort: pods of higher priority first, then in the order of arrival."""

from __future__ import annotations

from pinnace.scheduler.framework.queued import QueuedPod


class PrioritySort:
    name = "PrioritySort"

    def sort_key(self, queued: QueuedPod) -> tuple[int, float, int]:
        return -queued.pod.priority, queued.added, queued.number
