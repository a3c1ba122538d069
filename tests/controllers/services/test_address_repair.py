"""Each cluster IP has an IPAddress object; what is out of step is repaired and reported."""

from __future__ import annotations

import pytest
from tests.controllers.world import World

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

ADDRESS = "networking.k8s.io/v1/IPAddress"
RANGE = "networking.k8s.io/v1/ServiceCIDR"


def service(name: str, **spec: object) -> Object:
    ports = [{"port": 80}]
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports, **spec}}


def parent(name: str) -> Object:
    return {"group": "", "resource": "services", "namespace": "default", "name": name}


def address(ip: str, of: str) -> Object:
    labels = {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    metadata = {"name": ip, "labels": labels}
    spec = {"parentRef": parent(of)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": metadata, "spec": spec}


async def reasons(world: World, name: str) -> set[str]:
    await world.settle()
    events = await world.client.list("v1/Event", namespace="default")
    return {event["reason"] for event in events if event["involvedObject"]["name"] == name}


async def test_an_address_is_an_object_as_long_as_its_service(world: World) -> None:
    made = await world.client.create(service("web"))
    ip = made["spec"]["clusterIP"]
    obj = await world.client.get(ADDRESS, ip)
    assert obj["spec"]["parentRef"] == {"resource": "services", "namespace": "default", "name": "web"}
    assert obj["metadata"]["labels"] == address(ip, "web")["metadata"]["labels"]
    assert await reasons(world, "web") == set()
    await world.client.delete("v1/Service", "web")
    assert await world.client.get_or_none(ADDRESS, ip) is None


async def test_a_dry_run_and_a_denied_service_leave_no_address(world: World) -> None:
    before = {obj["metadata"]["name"] for obj in await world.client.list(ADDRESS)}
    await world.client.create(service("web"), dry_run=True)
    with pytest.raises(errors.Invalid):
        await world.client.create(service("web", sessionAffinity="Sometimes"))
    assert {obj["metadata"]["name"] for obj in await world.client.list(ADDRESS)} == before


async def test_an_address_that_another_holds_is_refused(world: World) -> None:
    await world.client.create(address("10.96.7.7", "elsewhere"))
    with pytest.raises(errors.Invalid, match="provided IP is already allocated"):
        await world.client.create(service("web", clusterIP="10.96.7.7"))


async def test_addresses_come_from_every_ready_range(world: World) -> None:
    with pytest.raises(errors.Invalid, match="does not match the current range"):
        await world.client.create(service("web", clusterIP="192.168.0.9"))
    more = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"}}
    await world.client.create({**more, "spec": {"cidrs": ["192.168.0.0/24"]}})
    await world.client.create(service("web", clusterIP="192.168.0.9"))
    assert await world.client.get_or_none(ADDRESS, "192.168.0.9") is not None


async def test_a_service_that_needs_no_address_any_more_gives_it_back(world: World) -> None:
    made = await world.client.create(service("web"))
    external = {"type": "ExternalName", "externalName": "example.com", "clusterIP": None, "clusterIPs": None}
    await world.client.patch("v1/Service", "web", {"spec": external})
    assert await world.client.get_or_none(ADDRESS, made["spec"]["clusterIP"]) is None


async def test_a_missing_address_is_created_again(world: World) -> None:
    made = await world.client.create(service("web"))
    await world.settle()
    await world.client.delete(ADDRESS, made["spec"]["clusterIP"])
    assert await reasons(world, "web") == {"ClusterIPNotAllocated"}
    obj = await world.client.get(ADDRESS, made["spec"]["clusterIP"])
    assert obj["spec"]["parentRef"]["name"] == "web"


async def test_an_address_without_its_service_goes_after_a_minute(world: World, clock: ManualClock) -> None:
    await world.client.create(address("10.96.7.7", "gone"))
    await world.settle()
    await clock.advance(50)
    await world.settle()
    assert await world.client.get_or_none(ADDRESS, "10.96.7.7") is not None
    await clock.advance(15)
    assert await reasons(world, "10.96.7.7") == {"IPAddressNotAllocated"}
    assert await world.client.get_or_none(ADDRESS, "10.96.7.7") is None


async def test_an_address_of_a_service_that_has_another_goes(world: World, clock: ManualClock) -> None:
    await world.client.create(service("web"))
    await clock.advance(2)
    await world.client.create(address("10.96.7.7", "web"))
    await world.settle()
    assert await world.client.get_or_none(ADDRESS, "10.96.7.7") is not None
    await clock.advance(10)
    assert await reasons(world, "10.96.7.7") == {"IPAddressWrongReference"}
    assert await world.client.get_or_none(ADDRESS, "10.96.7.7") is None
