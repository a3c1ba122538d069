"""In a dual-stack cluster slices, addresses and ranges of both families are kept."""

from __future__ import annotations

import pytest
from tests.controllers.objects import SERVICE, add_node, add_pod, events_of, service
from tests.controllers.services.test_address_repair import ADDRESS, RANGE
from tests.controllers.services.test_endpoint_slices import slices
from tests.controllers.world import World

from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object
from pinnace.reconcile.conditions import condition
from pinnace.testing.clock import ManualClock


@pytest.fixture
def settings() -> Settings:
    return Settings(service_ranges=("10.96.0.0/16", "fd00:96::/108"))


async def endpoint_addresses(world: World) -> dict[str, list[str]]:
    results: dict[str, list[str]] = {}
    for slice_ in await slices(world):
        addresses = [address for endpoint in slice_["endpoints"] or () for address in endpoint["addresses"]]
        results.setdefault(slice_["addressType"], []).extend(addresses)
    return results


def dual(name: str = "web", **spec: object) -> Object:
    return service(name, ipFamilyPolicy="RequireDualStack", **spec)


async def test_a_service_has_slices_of_its_families(world: World) -> None:
    await add_node(world)
    await world.client.create(dual())
    await add_pod(world, "a", ip=["10.244.0.7", "fd00::7"])
    await add_pod(world, "b", ip="10.244.0.8")
    result = await endpoint_addresses(world)
    assert {family: sorted(addresses) for family, addresses in result.items()} == {
        "IPv4": ["10.244.0.7", "10.244.0.8"],
        "IPv6": ["fd00::7"],
    }
    await world.client.patch(SERVICE, "web", {"spec": {"ipFamilyPolicy": "SingleStack"}}, namespace="default")
    assert list(await endpoint_addresses(world)) == ["IPv4"]


async def test_the_object_of_an_ipv6_address_is_repaired(world: World) -> None:
    made = await world.client.create(dual())
    second = made["spec"]["clusterIPs"][1]
    await world.settle()
    await world.client.delete(ADDRESS, second)
    await world.settle()
    obj = await world.client.get(ADDRESS, second)
    assert obj["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"] == "IPv6"
    (event,) = await events_of(world, "ClusterIPNotAllocated")
    assert event["message"] == f"Cluster IP [IPv6]: {second} is not allocated; repairing"


async def test_a_further_ipv6_range_gives_addresses_and_stays_while_they_are_used(
    world: World, clock: ManualClock
) -> None:
    more = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"}}
    await world.client.create({**more, "spec": {"cidrs": ["fd00:97::/112"]}})
    await world.settle()
    await world.client.create(dual(clusterIP="fd00:97::7", ipFamilies=["IPv6"]))
    await world.settle()
    assert await events_of(world, "ClusterIPOutOfRange") == []
    await world.client.delete(RANGE, "more")
    await world.settle()
    ready = condition(await world.client.get(RANGE, "more"), "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "Terminating")
    await world.client.delete(SERVICE, "web", namespace="default")
    await clock.advance(11)
    await world.settle()
    assert await world.client.get_or_none(RANGE, "more") is None
