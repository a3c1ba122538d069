"""Reports attempts to users: Events, the condition PodScheduled, and the nominated node in the status."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.decision import SchedulingDecision
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod

_LONGEST_NOTE = 1024
_CONDITION = "PodScheduled"
_GONE = (errors.NotFound, errors.Conflict, errors.Invalid)
"""The errors of a write to a deleted pod; Invalid if a new pod has its name."""


class FailedAttempt(NamedTuple):
    """A pod that was refused, or failed with an error, and the reason of its condition."""

    pod: Pod
    decision: SchedulingDecision
    reason: str


class Reporter:
    """Writes events and conditions with kube-scheduler's wording."""

    def __init__(self, manager: Manager, client: Client, state: ClusterState) -> None:
        self._manager = manager
        self._client = client
        self._state = state
        self._writes: dict[str, asyncio.Event] = {}
        """The writes of conditions that go on, by the uid of the pod."""

    @property
    def has_room(self) -> bool:
        """Whether events can be recorded without losing any."""
        return self._manager.recorder.has_room

    async def room(self) -> None:
        """Return when events can be recorded again without losing any."""
        await self._manager.recorder.room()

    def report_success(self, pod: Pod, node: str) -> None:
        message = f"Successfully assigned {pod.key} to {node}"
        self.report(pod, "Scheduled", message)

    def report(self, pod: Pod, reason: str, message: str) -> None:
        """Record a normal event of a pod."""
        self._manager.recorder.record(_reference(pod), "Normal", reason, message, component=_component(pod))

    def report_eviction(self, victim: Pod, preemptor: Pod, node: str) -> None:
        message = f"Preempted by pod {preemptor.uid} on node {node}"
        self.report(victim, "Preempted", message)

    async def report_failure(self, pod: Pod, decision: SchedulingDecision, reason: str) -> None:
        """Record an event, and write the condition and the nominated node if they have changed."""
        await self.report_failures([FailedAttempt(pod, decision, reason)])

    async def report_failures(self, attempts: Sequence[FailedAttempt]) -> None:
        """Do that for several pods: their conditions are written together where the server can."""
        groups: dict[str, list[Object]] = {}
        end = asyncio.Event()
        for pod, decision, reason in attempts:
            message = decision.message
            note = message if len(message) <= _LONGEST_NOTE else message[: _LONGEST_NOTE - 4] + " ..."
            self._manager.recorder.record(
                _reference(pod), "Warning", "FailedScheduling", note, component=_component(pod)
            )
            status = self._status_of(pod, decision, reason)
            if status:
                patch = {"metadata": {"name": pod.name, "uid": pod.uid}, "status": status}
                groups.setdefault(pod.namespace, []).append(patch)
                self._writes[pod.uid] = end
        try:
            for namespace, patches in groups.items():
                await self._write(patches, namespace)
        finally:
            end.set()
            self._writes = {uid: other for uid, other in self._writes.items() if other is not end}

    async def settle(self, uids: Iterable[str]) -> None:
        """Wait for the conditions that are being written: a binding before that would be reported as a failure."""
        for uid in uids:
            while (end := self._writes.get(uid)) is not None:
                await end.wait()

    def _status_of(self, pod: Pod, decision: SchedulingDecision, reason: str) -> Object:
        """Return the part of the status of a pod that changes: nothing for a pod that has a node by now."""
        if pod.source is None or pod.uid in self._state.pods:
            return {}
        obj = pod.object
        patch: Object = {}
        condition = _condition_of(obj, reason, decision.message, to_rfc3339(self._client.clock.now()))
        if condition is not None:
            patch["conditions"] = [condition]
        nominated = self._nominated(decision)
        if nominated is not None and nominated != ((obj.get("status") or {}).get("nominatedNodeName") or ""):
            patch["nominatedNodeName"] = nominated or None
        return patch

    async def _write(self, patches: Sequence[Object], namespace: str) -> None:
        failures = await self._client.patch_many(PodObject, patches, namespace=namespace, subresource="status")
        if failures is None:
            failures = await asyncio.gather(*(self._write_one(patch, namespace) for patch in patches))
        for failure in failures:
            if failure is not None and not isinstance(failure, _GONE):
                raise failure

    async def _write_one(self, patch: Object, namespace: str) -> errors.ApiError | None:
        name = patch["metadata"]["name"]
        try:
            await self._client.patch(
                PodObject, name, patch, namespace=namespace, form="strategic", subresource="status"
            )
        except errors.ApiError as error:
            return error
        return None

    def _nominated(self, decision: SchedulingDecision) -> str | None:
        """Return the node to write to the status; empty clears it, None leaves it as it is."""
        if decision.nomination is not None:
            return decision.nomination.node
        return "" if decision.error is not None or decision.clears_nomination else None


def _condition_of(pod: PodObject, reason: str, message: str, now: str) -> Object | None:
    """Return the condition to write; None if it is there already."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    same_type = (condition for condition in conditions if condition.get("type") == _CONDITION)
    present: Object = cast("Object", next(same_type, {}))
    is_same = present.get("status") == "False"
    if is_same and present.get("message") == message and present.get("reason") == reason:
        return None
    condition = {
        "type": _CONDITION,
        "status": "False",
        "reason": reason,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": present["lastTransitionTime"] if is_same else now,
    }
    generation = pod["metadata"].get("generation")
    if generation:
        condition["observedGeneration"] = generation
    return condition


def _component(pod: Pod) -> str:
    return pod.template.spec.get("schedulerName") or "default-scheduler"


def _reference(pod: Pod) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
    }
