"""A process that is killed between any two writes loses nothing and does nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from tests.controllers.objects import node, pod, service
from tests.server.in_process import InProcess, control_plane

from pinnace.client.client import Client
from pinnace.client.transport import Answer, ConnectionLost, Stream
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport, in_process_client
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.testing.clock import ManualClock

KINDS = (
    "v1/PersistentVolumeClaim",
    "v1/PersistentVolume",
    "v1/Service",
    "v1/Endpoints",
    "discovery.k8s.io/v1/EndpointSlice",
    "policy/v1/PodDisruptionBudget",
    "resource.k8s.io/v1/ResourceClaim",
)
MOST_WRITES = 60


class Allowance:
    """The writes that a process makes before it is killed."""

    def __init__(self, writes: int) -> None:
        self.writes = writes
        self.is_spent = False

    def spend(self) -> None:
        self.is_spent = self.is_spent or self.writes == 0
        if self.is_spent:
            raise ConnectionLost("killed", was_sent=False)
        self.writes -= 1


class Mortal:
    """A transport that dies with its process. Events do not count: they may be lost."""

    def __init__(self, inner: InProcessTransport, allowance: Allowance) -> None:
        self._inner = inner
        self._allowance = allowance

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if method != "GET" and "/events" not in target:
            self._allowance.spend()
        return await self._inner.request(method, target, body, headers)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        return await self._inner.stream(target, headers, silence=silence)

    async def close(self) -> None:
        await self._inner.close()


async def make_all(client: Client) -> None:
    """Something for every controller to do."""
    group = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}}
    await client.create({**group, "provisioner": "pinnace.dev/local-path"})
    requests = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": requests}
    template = {"volumeClaimTemplate": {"spec": spec}}
    devices = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
    metadata = {"name": "gpu", "namespace": "default"}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    await client.create({**kind, "metadata": metadata, "spec": {"spec": devices}})
    await client.create(node("n1"))
    claims = [{"name": "device", "resourceClaimTemplateName": "gpu"}]
    volumes = [{"name": "scratch", "ephemeral": template}]
    made = pod("a", node="n1", volumes=volumes, resourceClaims=claims)
    await client.create(made)
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": "10.244.0.1", "podIPs": [{"ip": "10.244.0.1"}], "conditions": ready}
    await client.patch("v1/Pod", "a", {"status": status}, namespace="default", subresource="status")
    await client.create(service(type="LoadBalancer"))
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
    await client.create({**budget, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}})


def outline(obj: Object) -> str:
    """An object without all that differs from run to run."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    message = {
        "name": metadata.get("generateName") or ("pvc" if metadata["name"].startswith("pvc-") else metadata["name"]),
        "finalizers": sorted(metadata.get("finalizers") or ()),
        "annotations": sorted(metadata.get("annotations") or ()),
        "phase": status.get("phase"),
        "healthy": status.get("currentHealthy"),
        "ingress": len((status.get("loadBalancer") or {}).get("ingress") or ()),
        "is bound": bool(spec.get("volumeName") or spec.get("claimRef")),
        "endpoints": [endpoint["addresses"] for endpoint in obj.get("endpoints") or ()],
        "subsets": len(obj.get("subsets") or ()),
    }
    return f"{obj['kind']} {message}"


async def state(client: Client) -> list[str]:
    return sorted([outline(obj) for kind in KINDS for obj in await client.list(kind, namespace="default")]) + sorted(
        [outline(obj) for obj in await client.list("v1/PersistentVolume")]
    )


@asynccontextmanager
async def process(api: InProcess, clock: ManualClock, allowance: Allowance) -> AsyncIterator[None]:
    """The controllers in a process of their own."""

    def transport_of(user: User) -> Mortal:
        return Mortal(InProcessTransport(api.plane.local(user)), allowance)

    manager = controllers_of(api.plane, None, clock=clock, transport_of=transport_of)
    async with manager.running():
        await manager.settle()
        yield


async def end_state(writes: int) -> tuple[list[str], bool]:
    """How things are after a process that was killed after so many writes, and a second one that was not."""
    clock = ManualClock()
    async with control_plane(clock=clock) as api:
        client = in_process_client(api.plane.local(), clock=clock)
        await make_all(client)
        allowance = Allowance(writes)
        async with process(api, clock, allowance):
            pass
        async with process(api, clock, Allowance(10_000)):
            await asyncio.sleep(0)
        return await state(client), allowance.is_spent


@pytest.mark.parametrize("first", range(0, MOST_WRITES, 12))
async def test_a_kill_between_any_two_writes_changes_nothing_in_the_end(first: int) -> None:
    expected, _ = await end_state(10_000)
    assert any("'phase': 'Bound'" in state for state in expected)
    for writes in range(first, first + 12):
        result, was_killed = await end_state(writes)
        assert result == expected, f"killed after {writes} writes"
        if not was_killed:
            return
