"""Endpoints follow the pods that a service selects."""

from __future__ import annotations

from tests.controllers.objects import POD, SERVICE, add_pod, service
from tests.controllers.world import World

from pinnace.controllers.services.endpoints import truncate
from pinnace.model.objects import Object
from pinnace.model.typed_objects import EndpointSubset

ENDPOINTS = "v1/Endpoints"


async def endpoints(world: World, name: str = "web") -> Object | None:
    await world.settle()
    return await world.client.get_or_none(ENDPOINTS, name, namespace="default")


async def test_ready_and_unready_pods_are_distinguished(world: World) -> None:
    await world.client.create(service())
    await add_pod(world, "a", ip="10.244.0.1")
    await add_pod(world, "b", ip="10.244.0.2", ready=False)
    current = await endpoints(world)
    assert current is not None
    (subset,) = current["subsets"]
    assert [address["ip"] for address in subset["addresses"]] == ["10.244.0.1"]
    assert [address["ip"] for address in subset["notReadyAddresses"]] == ["10.244.0.2"]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert current["metadata"]["labels"] == {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


async def test_a_terminating_pod_has_no_address(world: World) -> None:
    await world.client.create(service())
    await add_pod(world, "a")
    await world.client.delete(POD, "a", namespace="default", grace_seconds=30)
    current = await endpoints(world)
    assert current is not None
    assert not current.get("subsets")


async def test_ports_of_the_same_addresses_share_a_subset(world: World) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "admin", "port": 81, "targetPort": 8081}]
    await world.client.create(service(ports=ports))
    await add_pod(world, "a")
    current = await endpoints(world)
    assert current is not None
    (subset,) = current["subsets"]
    assert [port["name"] for port in subset["ports"]] == ["admin", "http"]


async def test_endpoints_go_with_their_service_and_come_back_when_they_are_deleted(world: World) -> None:
    await world.client.create(service())
    assert await endpoints(world) is not None
    await world.client.delete(ENDPOINTS, "web", namespace="default")
    assert await endpoints(world) is not None
    await world.client.delete(SERVICE, "web", namespace="default")
    assert await endpoints(world) is None


async def test_endpoints_that_a_user_makes_for_a_service_without_a_selector_are_left_alone(world: World) -> None:
    await world.client.create(service(selector=None))
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]
    metadata = {"name": "web", "namespace": "default"}
    await world.client.create({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
    current = await endpoints(world)
    assert current is not None
    assert current["subsets"][0]["addresses"] == [{"ip": "192.0.2.1"}]


def test_more_than_a_thousand_addresses_are_cut_the_ready_ones_first() -> None:
    subsets: list[EndpointSubset] = [
        {
            "addresses": [{"ip": f"10.0.{n // 250}.{n % 250}"} for n in range(900)],
            "notReadyAddresses": [{"ip": f"10.1.{n // 250}.{n % 250}"} for n in range(300)],
        }
    ]
    assert truncate(subsets)
    assert len(subsets[0]["addresses"]) == 900
    assert len(subsets[0]["notReadyAddresses"]) == 100
    assert not truncate(subsets)
