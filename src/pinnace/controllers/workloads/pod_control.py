"""Creates and deletes pods on behalf of a workload object, and records it in the Events of that object."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Protocol, cast

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.client.transport import ConnectionLost
from pinnace.controllers.workloads.ownership import Owned
from pinnace.model import errors
from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import ObjectMeta, Pod, PodTemplateSpec, TemplateMeta
from pinnace.reconcile.events import EventRecorder
from pinnace.reconcile.owners import owner_reference

FAILURES = (errors.ApiError, ConnectionLost, NoCredentials)
"""The exceptions that a request may raise."""
BURST = 500
"""The most pods that one reconcile creates or deletes: other objects are reconciled in between."""
_BEGUN_AT_ONCE = 40
"""Requests that begin in one turn of the loop."""
MOST_UNSCHEDULED = 10_000
"""The pods of one object that may wait for a node. A user may want 2,147,483,647: more of them would only fill the
memory of the server, which has created these within seconds."""


class TooManyUnscheduled(Exception):
    """No more pods are created for an object while so many of its pods have no node."""

    def __init__(self) -> None:
        super().__init__(f"{MOST_UNSCHEDULED} pods have no node yet; more are created when some of them have one")


class Placed(Protocol):
    """The facts about a pod that `most_creations` reads."""

    @property
    def node(self) -> str: ...
    @property
    def is_active(self) -> bool: ...


def most_creations(pods: Iterable[Placed]) -> int:
    """Return how many pods one reconcile may create for the owner of these."""
    waiting = sum(not pod.node and pod.is_active for pod in pods)
    return max(0, min(BURST, MOST_UNSCHEDULED - waiting))


class EventSource:
    """Records Events as one component."""

    def __init__(self, recorder: EventRecorder, component: str) -> None:
        self._recorder = recorder
        self._component = component

    def normal(self, obj: AnyObject, reason: str, message: str) -> None:
        self._recorder.record(obj, "Normal", reason, message, component=self._component)

    def warning(self, obj: AnyObject, reason: str, message: str) -> None:
        self._recorder.record(obj, "Warning", reason, message, component=self._component)


class PodControl:
    """The writes of one controller."""

    def __init__(self, client: Client, events: EventSource) -> None:
        self._client = client
        self._events = events

    async def create(self, owner: AnyObject, pod: Pod) -> None:
        """Create a pod. Do nothing in a namespace that is being deleted."""
        try:
            created = await self._client.create(pod)
        except FAILURES as error:
            if is_namespace_terminating(error):
                return
            self._events.warning(owner, "FailedCreate", f"Error creating: {error}")
            raise
        self._events.normal(owner, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")

    async def delete(self, owner: AnyObject, pod: Owned) -> None:
        """Delete a pod, but not a new pod of the same name."""
        name = pod.key.name
        try:
            await self._client.delete(Pod, name, namespace=pod.key.namespace, uid=pod.uid)
        except (errors.NotFound, errors.Conflict):
            return  # It is gone already.
        except FAILURES as error:
            self._events.warning(owner, "FailedDelete", f"Error deleting: {error}")
            raise
        self._events.normal(owner, "SuccessfulDelete", f"Deleted pod: {name}")

    async def delete_all(self, owner: AnyObject, pods: Sequence[Owned]) -> Exception | None:
        """Delete pods at once; return the first failure."""
        return await first_failure([self.delete(owner, pod) for pod in pods])


def pod_from_template(owner: AnyObject, template: PodTemplateSpec) -> Pod:
    """Return the pod that a template describes, controlled by `owner` and named after it."""
    metadata = template.get("metadata") or {}
    pod_metadata: TemplateMeta = {
        "generateName": f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [owner_reference(owner)],
    }
    if labels := metadata.get("labels"):
        pod_metadata["labels"] = labels
    if annotations := metadata.get("annotations"):
        pod_metadata["annotations"] = annotations
    if finalizers := metadata.get("finalizers"):
        pod_metadata["finalizers"] = finalizers
    named = cast("ObjectMeta", pod_metadata)  # The server names it.
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}


async def slow_start(calls: Sequence[Callable[[], Awaitable[None]]]) -> Exception | None:
    """Make calls in batches of 1, 2, 4, …, each batch at once; stop after a batch that failed and return its failure.

    Where every call would fail, as with an exhausted quota, only one of them is made.
    """
    at, size = 0, 1
    while at < len(calls):
        failure = await first_failure([call() for call in calls[at : at + size]])
        if failure is not None:
            return failure
        at += size
        size *= 2
    return None


async def _begin_later(turns: int, request: Awaitable[None]) -> None:
    try:
        for _ in range(turns):
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        if isinstance(request, Coroutine):
            request.close()  # It has not begun.
        raise
    await request


async def first_failure(requests: Sequence[Awaitable[None]]) -> Exception | None:
    """Await requests at once; return the first failure of a request. Any other exception is raised.

    Some begin in each turn of the loop: the server's part of a write is half a millisecond without a pause.
    """
    staggered = [_begin_later(number // _BEGUN_AT_ONCE, request) for number, request in enumerate(requests)]
    outcomes = await asyncio.gather(*staggered, return_exceptions=True)
    failure: Exception | None = None
    for outcome in outcomes:
        if isinstance(outcome, FAILURES):
            failure = failure or outcome
        elif outcome is not None:
            raise outcome
    return failure
