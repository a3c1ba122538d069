"""Evict the victims of preemptions in the background, so that decisions about other pods go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.process.clock import to_rfc3339
from pinnace.scheduler.decision import SchedulingDecision
from pinnace.scheduler.framework.plugin import Nomination
from pinnace.scheduler.queue import SchedulingQueue
from pinnace.scheduler.report import Reporter
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod

Failure = errors.ApiError | ConnectionLost


class Preemption(NamedTuple):
    """A pod, and the node and victims that were chosen for it."""

    pod: Pod
    nomination: Nomination


class _Eviction(NamedTuple):
    victim: Pod
    preemption: Preemption


class Evictor:
    """Deletes victims, with the condition DisruptionTarget that tells their owners why."""

    def __init__(self, client: Client, state: ClusterState, queue: SchedulingQueue, reporter: Reporter) -> None:
        self._client = client
        self._state = state
        self._queue = queue
        self._reporter = reporter

    async def evict(self, preemptions: Sequence[Preemption]) -> None:
        """Evict the victims of some pods. Pods of lower priority that were nominated for a node are tried elsewhere."""
        for pod, nomination in preemptions:
            await self._clear_lower(pod, nomination.node)
        evictions = {
            victim.uid: _Eviction(victim, preemption)
            for preemption in preemptions
            for victim in preemption.nomination.victims
            if not victim.is_terminating
        }
        for group in _by_namespace(evictions.values()):
            marked = await self._mark(group)
            deleted = await self._delete([eviction for eviction in group if marked[eviction.victim.uid] is None])
            for eviction in group:
                self._finish(eviction, marked[eviction.victim.uid] or deleted[eviction.victim.uid])

    def _finish(self, eviction: _Eviction, failure: Failure | None) -> None:
        victim, (pod, nomination) = eviction
        if failure is None:
            self._reporter.report_eviction(victim, pod, nomination.node)
        elif not isinstance(failure, errors.NotFound):
            self._queue.activate(pod.uid)  # The preemption did not succeed: decide again.

    async def _clear_lower(self, pod: Pod, node: str) -> None:
        for other in self._state.nominations.on(node):
            if other.priority >= pod.priority or other.uid == pod.uid:
                continue
            self._state.nominations.remove(other.uid)
            other.nominated_node = ""
            body = {"metadata": {"uid": other.uid}, "status": {"nominatedNodeName": None}}
            try:
                await self._client.patch(PodObject, other.name, body, namespace=other.namespace, subresource="status")
            except (errors.NotFound, errors.Conflict):
                continue  # The pod is gone.
            self._queue.activate(other.uid)

    async def _mark(self, evictions: Sequence[_Eviction]) -> Mapping[str, Failure | None]:
        """Write the condition of victims of one namespace; return their errors by uid."""
        now = to_rfc3339(self._client.clock.now())
        namespace = evictions[0].victim.namespace
        patches = [_patch_of(eviction, now) for eviction in evictions]
        failures: Sequence[Failure | None] | None = await self._client.patch_many(
            PodObject, patches, namespace=namespace, subresource="status"
        )
        if failures is None:
            failures = await asyncio.gather(*(self._mark_one(patch, namespace) for patch in patches))
        return dict(zip((eviction.victim.uid for eviction in evictions), failures, strict=True))

    async def _mark_one(self, patch: Object, namespace: str) -> Failure | None:
        name = patch["metadata"]["name"]
        try:
            await self._client.patch(
                PodObject, name, patch, namespace=namespace, form="strategic", subresource="status"
            )
        except (errors.ApiError, ConnectionLost) as failure:
            return failure
        return None

    async def _delete(self, evictions: Sequence[_Eviction]) -> Mapping[str, Failure | None]:
        """Delete victims of one namespace; return their errors by uid."""
        if not evictions:
            return {}
        namespace = evictions[0].victim.namespace
        names = {eviction.victim.name: eviction.victim.uid for eviction in evictions}
        failures: Sequence[Failure | None] | None = await self._client.delete_many(
            PodObject, names, namespace=namespace
        )
        if failures is None:
            failures = await asyncio.gather(*(self._delete_one(name, uid, namespace) for name, uid in names.items()))
        return dict(zip(names.values(), failures, strict=True))

    async def _delete_one(self, name: str, uid: str, namespace: str) -> Failure | None:
        try:
            await self._client.delete(PodObject, name, namespace=namespace, uid=uid)
        except (errors.ApiError, ConnectionLost) as failure:
            return failure
        return None


def awaited_victims(decision: SchedulingDecision, state: ClusterState) -> list[str]:
    """Return the uids of the pods that have to leave before a refused pod is tried again."""
    pod, nomination = decision.pod, decision.nomination
    if nomination is not None:
        return [victim.uid for victim in nomination.victims if victim.uid in state.pods]
    slot = state.nodes.slot_of.get(pod.nominated_node, -1)
    if slot < 0 or decision.clears_nomination:
        return []
    return [
        resident.uid for resident in state.pods_at(slot) if resident.is_preempted and resident.priority < pod.priority
    ]


def _by_namespace(evictions: Iterable[_Eviction]) -> Iterable[list[_Eviction]]:
    groups: dict[str, list[_Eviction]] = {}
    for eviction in evictions:
        groups.setdefault(eviction.victim.namespace, []).append(eviction)
    return groups.values()


def _patch_of(eviction: _Eviction, now: str) -> Object:
    victim, (preemptor, _) = eviction
    name = preemptor.template.spec.get("schedulerName") or ""
    condition: Object = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": f"{name}: preempting to accommodate a higher priority pod",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    if victim.generation:
        condition["observedGeneration"] = victim.generation
    return {"metadata": {"name": victim.name, "uid": victim.uid}, "status": {"conditions": [condition]}}
