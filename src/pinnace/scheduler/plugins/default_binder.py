"""DefaultBinder: write the Binding through the API."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.scheduler.framework.cycle import Cycle

_POD = "v1/Pod"


class DefaultBinder:
    name = "DefaultBinder"

    def __init__(self, client: Client | None) -> None:
        self._client = client

    async def bind(self, cycle: Cycle, node: str) -> bool:
        if self._client is None:
            return False
        pod = cycle.pod
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.create_below(_POD, pod.name, "binding", binding, namespace=pod.namespace)
        return True
