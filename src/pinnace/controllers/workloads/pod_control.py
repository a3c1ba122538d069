"""Creates and deletes pods on behalf of a workload object, and records it in the Events of that object."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.client.transport import ConnectionLost
from pinnace.controllers.workloads.ownership import Owned
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.reconcile.events import EventType
from pinnace.reconcile.owners import owner_reference

POD = "v1/Pod"
FAILURES = (errors.ApiError, ConnectionLost, NoCredentials)
"""The exceptions that a request may raise."""


class Recorder(Protocol):
    """Records Events in the background."""

    def record(self, obj: Object, type: EventType, reason: str, message: str, *, component: str = "") -> None: ...


class EventSource:
    """Records Events as one component."""

    def __init__(self, recorder: Recorder, component: str) -> None:
        self._recorder = recorder
        self._component = component

    def normal(self, obj: Object, reason: str, message: str) -> None:
        self._recorder.record(obj, "Normal", reason, message, component=self._component)

    def warning(self, obj: Object, reason: str, message: str) -> None:
        self._recorder.record(obj, "Warning", reason, message, component=self._component)


class PodControl:
    """The writes of one controller."""

    def __init__(self, client: Client, events: EventSource) -> None:
        self._client = client
        self._events = events

    async def create(self, owner: Object, pod: Object) -> None:
        """Create a pod. Do nothing in a namespace that is being deleted."""
        try:
            created = await self._client.create(pod)
        except FAILURES as error:
            if is_namespace_terminating(error):
                return
            self._events.warning(owner, "FailedCreate", f"Error creating: {error}")
            raise
        self._events.normal(owner, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")

    async def delete(self, owner: Object, pod: Owned) -> None:
        """Delete a pod, but not a new pod of the same name."""
        name = pod.key.name
        try:
            await self._client.delete(POD, name, namespace=pod.key.namespace, uid=pod.uid)
        except (errors.NotFound, errors.Conflict):
            return  # It is gone already.
        except FAILURES as error:
            self._events.warning(owner, "FailedDelete", f"Error deleting: {error}")
            raise
        self._events.normal(owner, "SuccessfulDelete", f"Deleted pod: {name}")

    async def delete_all(self, owner: Object, pods: Sequence[Owned]) -> Exception | None:
        """Delete pods at once; return the first failure."""
        return await first_failure([self.delete(owner, pod) for pod in pods])


def pod_from_template(owner: Object, template: Object) -> Object:
    """Return the pod that a template describes, controlled by `owner` and named after it."""
    metadata = template.get("metadata") or {}
    pod_metadata: Object = {
        "generateName": f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [owner_reference(owner)],
    }
    for field in ("labels", "annotations", "finalizers"):
        if metadata.get(field):
            pod_metadata[field] = metadata[field]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata, "spec": template["spec"]}


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


async def first_failure(requests: Sequence[Awaitable[None]]) -> Exception | None:
    """Await requests at once; return the first failure of a request. Any other exception is raised."""
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    failure: Exception | None = None
    for outcome in outcomes:
        if isinstance(outcome, FAILURES):
            failure = failure or outcome
        elif outcome is not None:
            raise outcome
    return failure
