"""Evict the victims of a preemption in the background, so that decisions about other pods go on meanwhile."""

from __future__ import annotations

import asyncio

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.clock import to_rfc3339
from pinnace.scheduler.framework.plugin import Nomination
from pinnace.scheduler.queue.queue import SchedulingQueue
from pinnace.scheduler.report import Reporter
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod

_POD = "v1/Pod"


class Evictor:
    """Deletes victims, with the condition DisruptionTarget that tells their owners why."""

    def __init__(self, client: Client, state: ClusterState, queue: SchedulingQueue, reporter: Reporter) -> None:
        self._client = client
        self._state = state
        self._queue = queue
        self._reporter = reporter

    async def evict(self, pod: Pod, nomination: Nomination) -> None:
        """Evict all victims. Pods of lower priority that were nominated for the node are tried elsewhere."""
        await self._clear_lower(pod, nomination.node)
        victims = [victim for victim in nomination.victims if not victim.is_terminating]
        results = await asyncio.gather(
            *(self._evict_one(victim, pod, nomination.node) for victim in victims), return_exceptions=True
        )
        for result in results:
            if isinstance(result, errors.ApiError | ConnectionLost):
                self._queue.activate(pod.uid)  # The preemption did not succeed: decide again.
            elif isinstance(result, BaseException):
                raise result

    async def _clear_lower(self, pod: Pod, node: str) -> None:
        for other in self._state.nominations.on(node):
            if other.priority >= pod.priority or other.uid == pod.uid:
                continue
            self._state.nominations.remove(other.uid)
            other.nominated_node = ""
            body = {"metadata": {"uid": other.uid}, "status": {"nominatedNodeName": None}}
            try:
                await self._client.patch(_POD, other.name, body, namespace=other.namespace, subresource="status")
            except (errors.NotFound, errors.Conflict):
                continue  # The pod is gone.
            self._queue.activate(other.uid)

    async def _evict_one(self, victim: Pod, preemptor: Pod, node: str) -> None:
        name = preemptor.template.spec.get("schedulerName") or ""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{name}: preempting to accommodate a higher priority pod",
            "lastProbeTime": None,
            "lastTransitionTime": to_rfc3339(self._client.clock.now()),
        }
        body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                _POD, victim.name, body, namespace=victim.namespace, form="strategic", subresource="status"
            )
            await self._client.delete(_POD, victim.name, namespace=victim.namespace, uid=victim.uid)
        except errors.NotFound:
            return
        self._reporter.report_eviction(victim, preemptor, node)
