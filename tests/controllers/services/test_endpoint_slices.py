"""EndpointSlices follow the pods that a service selects."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.objects import POD, SERVICE, add_node, add_pod, events_of, pod, run_pod, service
from tests.controllers.world import World

from pinnace.controllers.services.addresses import families_of
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

SLICE = "discovery.k8s.io/v1/EndpointSlice"
OURS = "kubernetes.io/service-name=web"


async def slices(world: World, labels: str = OURS) -> list[Object]:
    await world.settle()
    return await world.client.list(SLICE, namespace="default", labels=labels)


async def endpoints(world: World) -> dict[str, Object]:
    """The endpoints of the service `web` by the name of their pod."""
    return {
        endpoint["targetRef"]["name"]: endpoint
        for slice_ in await slices(world)
        for endpoint in slice_["endpoints"] or ()
    }


async def test_a_service_without_pods_has_one_empty_slice(world: World) -> None:
    made = await world.client.create(service())
    (only,) = await slices(world)
    assert only["endpoints"] is None
    assert only["addressType"] == "IPv4"
    assert only["metadata"]["labels"] == {
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert only["metadata"]["name"].startswith("web-")
    (owner,) = only["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Service", made["metadata"]["uid"], True)


async def test_a_ready_pod_is_an_endpoint_with_its_node_and_zone(world: World) -> None:
    await add_node(world, "n1", zone="east")
    await world.client.create(service())
    made = await add_pod(world, "a", ip="10.244.0.7")
    (only,) = await slices(world)
    assert only["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert only["endpoints"] == [
        {
            "addresses": ["10.244.0.7"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": "n1",
            "zone": "east",
            "targetRef": {"kind": "Pod", "name": "a", "namespace": "default", "uid": made["metadata"]["uid"]},
        }
    ]


@pytest.mark.parametrize(
    ("ready", "leaving", "publishes", "expected"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, False, True, (True, False, False)),
        (True, True, True, (True, True, True)),
    ],
    ids=["ready", "not ready", "terminating", "not ready but published", "terminating but published"],
)
async def test_the_conditions_say_what_the_pod_can_do(
    world: World, ready: bool, leaving: bool, publishes: bool, expected: tuple[bool, bool, bool]
) -> None:
    await add_node(world)
    await world.client.create(service(publishNotReadyAddresses=publishes))
    await add_pod(world, "a", ready=ready)
    if leaving:
        await world.client.delete(POD, "a", namespace="default", grace_seconds=30)
    conditions = (await endpoints(world))["a"]["conditions"]
    assert (conditions["ready"], conditions["serving"], conditions["terminating"]) == expected


async def test_pods_that_cannot_serve_are_no_endpoints(world: World) -> None:
    await add_node(world)
    await world.client.create(service())
    await world.client.create(pod("without-an-address", node="n1"))
    await add_pod(world, "done", phase="Succeeded")
    await add_pod(world, "other", labels={"app": "other"})
    assert await endpoints(world) == {}


async def test_an_endpoint_goes_with_its_pod_and_with_its_labels(world: World) -> None:
    await add_node(world)
    await world.client.create(service())
    for name, ip in (("a", "10.244.0.1"), ("b", "10.244.0.2"), ("c", "10.244.0.3")):
        await add_pod(world, name, ip=ip)
    assert set(await endpoints(world)) == {"a", "b", "c"}
    await world.client.delete(POD, "a", namespace="default", grace_seconds=0)
    await world.client.patch(POD, "b", {"metadata": {"labels": {"app": "no"}}}, namespace="default")
    assert set(await endpoints(world)) == {"c"}


async def test_a_named_port_may_have_another_number_in_each_pod(world: World) -> None:
    await add_node(world)
    await world.client.create(service(ports=[{"port": 80, "targetPort": "web"}]))
    for name, number in (("a", 8080), ("b", 9090)):
        ports = [{"name": "web", "containerPort": number}]
        containers = [{"name": "main", "image": "example.com/web:1", "ports": ports}]
        await add_pod(world, name, containers=containers, ip=f"10.244.0.{number % 100}")
    by_port = {
        slice_["ports"][0]["port"]: [endpoint["targetRef"]["name"] for endpoint in slice_["endpoints"]]
        for slice_ in await slices(world)
    }
    assert by_port == {8080: ["a"], 9090: ["b"]}


async def test_endpoints_are_packed_a_hundred_to_a_slice_and_stay_where_they_are(
    world: World, clock: ManualClock
) -> None:
    await add_node(world)
    for number in range(120):
        await add_pod(world, f"p{number:03}", ip=f"10.244.1.{number}")
    # The service comes last: endpoints that arrive in several turns may open a slice before the first one is full.
    await world.settle()
    await world.client.create(service())
    await clock.advance(2)
    before = await slices(world)
    assert sorted(len(slice_["endpoints"]) for slice_ in before) == [20, 100]
    await run_pod(world, "p003", ip="10.244.1.3", ready=False)
    await clock.advance(2)
    after = await slices(world)
    changed = [
        new["metadata"]["name"]
        for old, new in zip(before, after, strict=True)
        if old["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"]
    ]
    assert len(changed) == 1, "one pod changes one slice"


async def test_a_slice_has_the_addresses_of_its_family_alone(world: World) -> None:
    await add_node(world)
    await world.client.create(service())
    await add_pod(world, "a", ip=["10.244.0.7", "fd00::7"])
    (only,) = await slices(world)
    assert only["endpoints"][0]["addresses"] == ["10.244.0.7"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"ipFamilies": ["IPv6", "IPv4"]}, ("IPv6", "IPv4")),
        ({"clusterIP": "fd00::1"}, ("IPv6",)),
        ({"clusterIP": "10.96.0.9"}, ("IPv4",)),
        ({"clusterIP": "None"}, ("IPv4", "IPv6")),
    ],
    ids=["both", "told by an IPv6 address", "told by an IPv4 address", "headless without families"],
)
def test_a_service_has_slices_of_each_of_its_families(spec: Any, expected: tuple[str, ...]) -> None:
    assert families_of({"metadata": {"name": "s"}, "spec": spec}) == expected


async def test_a_headless_service_gives_names_to_its_pods(world: World) -> None:
    await add_node(world)
    await world.client.create(service(clusterIP="None"))
    await add_pod(world, "a", hostname="first", subdomain="web")
    (only,) = await slices(world)
    assert only["endpoints"][0]["hostname"] == "first"
    assert only["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


async def test_the_labels_of_the_service_are_those_of_its_slices(world: World) -> None:
    await world.client.create(service())
    await slices(world)
    labels = {"metadata": {"labels": {"team": "blue"}}}
    await world.client.patch(SERVICE, "web", labels, namespace="default")
    (only,) = await slices(world)
    assert only["metadata"]["labels"]["team"] == "blue"


@pytest.mark.parametrize(
    "spec",
    [{"selector": None}, {"type": "ExternalName", "externalName": "example.com", "ports": None}],
    ids=["without a selector", "an external name"],
)
async def test_a_service_that_selects_nothing_has_no_slices(world: World, spec: dict[str, Any]) -> None:
    await world.client.create(service(**spec))
    assert await slices(world) == []


async def test_a_slice_that_a_user_breaks_or_deletes_is_mended(world: World) -> None:
    await add_node(world)
    await world.client.create(service())
    await add_pod(world, "a")
    (only,) = await slices(world)
    name = only["metadata"]["name"]
    await world.client.patch(SLICE, name, {"endpoints": []}, namespace="default")
    assert set(await endpoints(world)) == {"a"}
    (only,) = await slices(world)
    await world.client.delete(SLICE, only["metadata"]["name"], namespace="default")
    assert set(await endpoints(world)) == {"a"}


async def test_a_pod_on_a_node_that_is_gone_is_left_out_and_the_service_says_so(world: World) -> None:
    await world.client.create(service())
    await add_pod(world, "a", node="nowhere")
    assert await endpoints(world) == {}
    (event,) = await events_of(world, "FailedToUpdateEndpointSlices")
    assert event["message"].endswith("skipping Pod a for Service default/web: Node nowhere Not Found")
    await add_node(world, "nowhere")
    assert set(await endpoints(world)) == {"a"}


async def test_the_last_change_is_reported_in_an_annotation(world: World, clock: ManualClock) -> None:
    await add_node(world)
    await world.client.create(service())
    await slices(world)
    await clock.advance(60)
    await add_pod(world, "a")
    (only,) = await slices(world)
    annotation = only["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"]
    assert annotation == "2026-01-01T00:01:00Z"


@pytest.mark.parametrize(
    ("distribution", "hints"),
    [
        ("PreferClose", {"forZones": [{"name": "east"}]}),
        ("PreferSameZone", {"forZones": [{"name": "east"}]}),
        ("PreferSameNode", {"forZones": [{"name": "east"}], "forNodes": [{"name": "n1"}]}),
    ],
)
async def test_traffic_distribution_gives_hints_and_takes_them_back(
    world: World, distribution: str, hints: Object
) -> None:
    await add_node(world, zone="east")
    await world.client.create(service(trafficDistribution=distribution))
    await add_pod(world, "a")
    assert (await endpoints(world))["a"]["hints"] == hints
    await world.client.patch(SERVICE, "web", {"spec": {"trafficDistribution": None}}, namespace="default")
    assert "hints" not in (await endpoints(world))["a"]


async def test_topology_aware_hints_are_shared_out_by_the_cpus_of_the_zones(world: World) -> None:
    await add_node(world, "n1", zone="east", cpu="4")
    await add_node(world, "n2", zone="west", cpu="4")
    wanted = service()
    wanted["metadata"]["annotations"] = {"service.kubernetes.io/topology-mode": "Auto"}
    await world.client.create(wanted)
    for number in range(4):
        await add_pod(world, f"p{number}", node="n1", ip=f"10.244.0.{number}")
    current = await endpoints(world)
    zones = sorted(endpoint["hints"]["forZones"][0]["name"] for endpoint in current.values())
    assert zones == ["east", "east", "west", "west"]
    assert len(await events_of(world, "TopologyAwareHintsEnabled")) == 1
    await world.client.patch(SERVICE, "web", {"metadata": {"annotations": None}}, namespace="default")
    assert all("hints" not in endpoint for endpoint in (await endpoints(world)).values())


async def test_too_few_endpoints_for_the_zones_have_no_hints(world: World) -> None:
    await add_node(world, "n1", zone="east")
    await add_node(world, "n2", zone="west")
    wanted = service()
    wanted["metadata"]["annotations"] = {"service.kubernetes.io/topology-mode": "Auto"}
    await world.client.create(wanted)
    await add_pod(world, "a")
    assert "hints" not in (await endpoints(world))["a"]
    events = await events_of(world, "TopologyAwareHintsDisabled")
    assert "Insufficient number of endpoints (1 endpoints, 2 zones), addressType: IPv4" in [
        event["message"] for event in events
    ]
