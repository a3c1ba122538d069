"""SchedulingGates, PrioritySort and DefaultBinder: the plug-ins before and after the choice of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.typed_objects import Binding
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import POD, ActionType, EventRegistration, is_own_update
from pinnace.scheduler.framework.plugin import BindingError, Plugin
from pinnace.scheduler.framework.queued import QueuedPod
from pinnace.scheduler.framework.status import Refusal, unresolvable
from pinnace.scheduler.state.pods import Pod


class SchedulingGates(Plugin):
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        gates = pod.spec.get("schedulingGates")
        if not gates:
            return None
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gate['name'] for gate in gates)}]")

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(POD, ActionType.POD_GATES, is_own_update),)


class PrioritySort(Plugin):
    name = "PrioritySort"

    def sort_key(self, queued: QueuedPod) -> tuple[int, float, int]:
        return -queued.pod.priority, queued.added, queued.number


_BINDING = "binding"


class DefaultBinder(Plugin):
    name = "DefaultBinder"

    def __init__(self, client: Client | None) -> None:
        self._client = client

    async def bind(self, cycle: Cycle, node: str) -> bool:
        if self._client is None:
            return False
        pod = cycle.pod
        await self._client.create_below(PodObject, pod.name, _BINDING, _binding_of(pod, node), namespace=pod.namespace)
        return True

    async def bind_many(self, pods: Sequence[tuple[Pod, str]]) -> list[BindingError | None]:
        """Bind pods of one namespace, each to its node; return their errors."""
        if self._client is None:
            return [None] * len(pods)
        bindings = [_binding_of(pod, node) for pod, node in pods]
        namespace = pods[0][0].namespace
        failures = await self._client.create_many(PodObject, bindings, namespace=namespace, subresource=_BINDING)
        if failures is not None:
            return [*failures]
        return await asyncio.gather(*(self._bind_one(binding) for binding in bindings))

    async def _bind_one(self, binding: Binding) -> BindingError | None:
        assert self._client is not None, "bind_many has checked it"
        metadata = binding["metadata"]
        try:
            await self._client.create_below(
                PodObject, metadata["name"], _BINDING, binding, namespace=metadata["namespace"]
            )
        except (errors.ApiError, ConnectionLost) as error:
            return error
        return None


def _binding_of(pod: Pod, node: str) -> Binding:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"kind": "Node", "name": node},
    }
