"""Services of type LoadBalancer get an address outside the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.controllers.objects import SERVICE, add_node, events_of, service
from tests.controllers.world import World
from tests.server.in_process import control_plane

from pinnace.cluster.in_process import in_process_client
from pinnace.controllers.services.load_balancer import LoadBalancerController
from pinnace.controllers.services.loopback_balancer import LoopbackBalancer
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager
from pinnace.testing.clock import ManualClock

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


async def balanced(world: World, name: str = "web", **spec: Any) -> Object:
    await world.client.create(service(name, type="LoadBalancer", **spec))
    return await get(world, name)


async def get(world: World, name: str = "web") -> Object:
    await world.settle()
    return await world.client.get(SERVICE, name, namespace="default")


def addresses(obj: Object) -> list[str]:
    return [ingress["ip"] for ingress in obj["status"]["loadBalancer"].get("ingress") or ()]


async def test_a_service_gets_a_loopback_address_of_its_own(world: World) -> None:
    await add_node(world)
    first, other = await balanced(world, "one"), await balanced(world, "other")
    assert addresses(first)[0].startswith("127.")
    assert addresses(first) != addresses(other)
    assert first["metadata"]["finalizers"] == [FINALIZER]
    for reason in ("EnsuringLoadBalancer", "EnsuredLoadBalancer"):
        assert {events["involvedObject"]["name"] for events in await events_of(world, reason)} == {"one", "other"}


async def test_a_service_without_nodes_says_so(world: World) -> None:
    await balanced(world)
    (event,) = await events_of(world, "UnAvailableLoadBalancer")
    assert event["message"] == "There are no available nodes for LoadBalancer"


async def test_a_service_that_is_no_balancer_any_more_loses_its_address(world: World) -> None:
    await balanced(world)
    await world.client.patch(SERVICE, "web", {"spec": {"type": "ClusterIP"}}, namespace="default")
    obj = await get(world)
    assert addresses(obj) == []
    assert "finalizers" not in obj["metadata"]
    assert len(await events_of(world, "DeletedLoadBalancer")) == 1


async def test_a_service_goes_when_its_balancer_is_gone(world: World) -> None:
    await balanced(world)
    await world.client.delete(SERVICE, "web", namespace="default")
    await world.settle()
    assert await world.client.get_or_none(SERVICE, "web", namespace="default") is None
    assert len(await events_of(world, "DeletingLoadBalancer")) == 1


async def test_a_service_of_another_class_is_left_alone(world: World) -> None:
    result = await balanced(world, loadBalancerClass="example.com/cloud")
    assert addresses(result) == []
    assert "finalizers" not in result["metadata"]


class Broken:
    """A provider that fails at first."""

    def __init__(self) -> None:
        self.calls = 0

    async def ensure(self, service: Object, nodes: Sequence[Object]) -> Sequence[Object]:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("the cloud is down")
        return [{"hostname": "web.example.com"}]

    async def delete(self, service: Object) -> None: ...


async def test_a_provider_that_fails_is_asked_again(clock: ManualClock) -> None:
    async with control_plane(clock=clock) as api:
        manager = Manager(in_process_client(api.plane.local(), clock=clock))
        manager.add(LoadBalancerController(manager, manager.client, provider=Broken()).controller)
        async with manager.running():
            await manager.client.create(service(type="LoadBalancer"))
            await manager.settle()
            events = [
                event for event in await manager.client.list("v1/Event") if event["reason"] == "SyncLoadBalancerFailed"
            ]
            assert [event["message"] for event in events] == ["Error syncing load balancer: the cloud is down"]
            await clock.advance(10)
            await manager.settle()
            obj = await manager.client.get(SERVICE, "web", namespace="default")
            assert obj["status"]["loadBalancer"]["ingress"] == [{"hostname": "web.example.com"}]


async def test_an_address_that_a_service_has_survives_a_restart() -> None:
    made: Object = {"metadata": {"uid": "1"}, "spec": {}}
    (entry,) = await LoopbackBalancer().ensure(made, ())
    made["status"] = {"loadBalancer": {"ingress": [{"ip": "127.70.1.2"}]}}
    again = LoopbackBalancer()
    assert await again.ensure(made, ()) == [{"ip": "127.70.1.2"}]
    stranger = {"metadata": {"uid": "2"}, "spec": {"loadBalancerIP": "127.70.1.2"}}
    (other,) = await again.ensure(stranger, ())
    assert other != {"ip": "127.70.1.2"}, "it is taken"
    assert entry["ip"].startswith("127.")
