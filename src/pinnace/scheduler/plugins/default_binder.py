"""DefaultBinder: write Bindings through the API, those of many pods at once where the server is in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.plugin import BindingError
from pinnace.scheduler.state.pods import Pod

_POD = "v1/Pod"
_BINDING = "binding"


class DefaultBinder:
    name = "DefaultBinder"

    def __init__(self, client: Client | None) -> None:
        self._client = client

    async def bind(self, cycle: Cycle, node: str) -> bool:
        if self._client is None:
            return False
        pod = cycle.pod
        await self._client.create_below(_POD, pod.name, _BINDING, _binding_of(pod, node), namespace=pod.namespace)
        return True

    async def bind_many(self, pods: Sequence[tuple[Pod, str]]) -> list[BindingError | None]:
        """Bind pods of one namespace, each to its node; return their errors."""
        if self._client is None:
            return [None] * len(pods)
        bindings = [_binding_of(pod, node) for pod, node in pods]
        namespace = pods[0][0].namespace
        found = await self._client.create_many(_POD, bindings, namespace=namespace, subresource=_BINDING)
        if found is not None:
            return [*found]
        return await asyncio.gather(*(self._bind_one(binding) for binding in bindings))

    async def _bind_one(self, binding: Object) -> BindingError | None:
        assert self._client is not None, "bind_many has checked it"
        metadata = binding["metadata"]
        try:
            await self._client.create_below(_POD, metadata["name"], _BINDING, binding, namespace=metadata["namespace"])
        except (errors.ApiError, ConnectionLost) as error:
            return error
        return None


def _binding_of(pod: Pod, node: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"kind": "Node", "name": node},
    }
