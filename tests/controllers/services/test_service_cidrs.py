"""Ranges of service addresses are ready, and stay while an address needs them."""

from __future__ import annotations

from tests.controllers.world import World

from pinnace.model.objects import Object
from pinnace.reconcile.conditions import condition
from pinnace.testing.clock import ManualClock

RANGE = "networking.k8s.io/v1/ServiceCIDR"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"


def service_range(name: str, cidr: str) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": name},
        "spec": {"cidrs": [cidr]},
    }


async def test_a_range_is_ready_and_goes_after_ten_seconds(world: World, clock: ManualClock) -> None:
    await world.client.create(service_range("more", "192.168.0.0/24"))
    await world.settle()
    obj = await world.client.get(RANGE, "more")
    ready = condition(obj, "Ready")
    assert ready is not None
    assert (ready["status"], ready["message"]) == ("True", "Kubernetes Service CIDR is ready")
    assert obj["metadata"]["finalizers"] == [FINALIZER]
    applied = obj["metadata"]["managedFields"][0]
    assert (applied["manager"], applied["operation"]) == ("service-cidr-controller", "Apply")
    await world.client.delete(RANGE, "more")
    await world.settle()
    assert await world.client.get_or_none(RANGE, "more") is not None
    await clock.advance(11)
    await world.settle()
    assert await world.client.get_or_none(RANGE, "more") is None


async def test_a_range_with_addresses_stays(world: World, clock: ManualClock) -> None:
    await world.client.create(service_range("more", "192.168.0.0/24"))
    web = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"}}
    await world.client.create({**web, "spec": {"clusterIP": "192.168.0.7", "ports": [{"port": 80}]}})
    await world.settle()
    await world.client.delete(RANGE, "more")
    await world.settle()
    await clock.advance(60)
    await world.settle()
    ready = condition(await world.client.get(RANGE, "more"), "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "Terminating")
    await world.client.delete("v1/Service", "web")
    await world.settle()
    assert await world.client.get_or_none(RANGE, "more") is None
