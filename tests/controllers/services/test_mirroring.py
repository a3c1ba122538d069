"""Endpoints of services without a selector are mirrored into slices."""

from __future__ import annotations

from typing import Any

from tests.controllers.objects import SERVICE, service
from tests.controllers.world import World

from pinnace.model.objects import Object

SLICE, ENDPOINTS = "discovery.k8s.io/v1/EndpointSlice", "v1/Endpoints"
MIRRORED = "endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io"


def endpoints(**labels: str) -> Object:
    addresses: list[Any] = [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]
    unready = [{"ip": "192.0.2.2", "hostname": "two"}]
    subsets = [{"addresses": addresses, "notReadyAddresses": unready, "ports": [{"name": "http", "port": 80}]}]
    metadata = {"name": "web", "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}


async def mirrors(world: World) -> list[Object]:
    await world.settle()
    objects = await world.client.list(SLICE, namespace="default", labels=MIRRORED)
    return sorted(
        (obj for obj in objects if obj["metadata"]["labels"]["kubernetes.io/service-name"] == "web"),
        key=lambda slice_: str(slice_["addressType"]),
    )


async def test_each_family_has_a_mirror(world: World) -> None:
    await world.client.create(service(selector=None))
    made = await world.client.create(endpoints(team="blue"))
    four, six = await mirrors(world)
    assert [endpoint["addresses"] for endpoint in six["endpoints"]] == [["2001:db8::1"]]
    assert four["endpoints"] == [
        {"addresses": ["192.0.2.1"], "conditions": {"ready": True}},
        {"addresses": ["192.0.2.2"], "conditions": {"ready": False}, "hostname": "two"},
    ]
    assert four["metadata"]["labels"]["team"] == "blue"
    assert four["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


async def test_a_mirror_follows_and_goes_with_its_endpoints(world: World) -> None:
    await world.client.create(service(selector=None))
    await world.client.create(endpoints())
    before = await mirrors(world)
    patch = {"subsets": [{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"name": "http", "port": 80}]}]}
    await world.client.patch(ENDPOINTS, "web", patch, namespace="default")
    (only,) = await mirrors(world)
    assert only["metadata"]["name"] == before[0]["metadata"]["name"]
    assert [endpoint["addresses"] for endpoint in only["endpoints"]] == [["192.0.2.9"]]
    await world.client.delete(ENDPOINTS, "web", namespace="default")
    assert await mirrors(world) == []


async def test_endpoints_that_are_not_to_be_mirrored_are_not(world: World) -> None:
    await world.client.create(service(selector=None))
    await world.client.create(endpoints(**{"endpointslice.kubernetes.io/skip-mirror": "true"}))
    assert await mirrors(world) == []


async def test_a_service_that_gets_a_selector_needs_no_mirror(world: World) -> None:
    await world.client.create(service(selector=None))
    await world.client.create(endpoints())
    assert len(await mirrors(world)) == 2
    await world.client.patch(SERVICE, "web", {"spec": {"selector": {"app": "web"}}}, namespace="default")
    assert await mirrors(world) == []
