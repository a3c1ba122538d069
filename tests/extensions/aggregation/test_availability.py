"""The Available condition says whether an aggregated server can be reached, and why not."""

from __future__ import annotations

import asyncio

import pytest
from tests.extensions.aggregated_server import GROUP, ROOT
from tests.extensions.aggregation.aggregating import (
    API_SERVICES,
    NAME,
    RECIPES,
    SERVICES,
    Aggregating,
    api_service,
    external_service,
    some,
    touch,
)
from tests.extensions.definitions import reached
from tests.server.in_process import Object

from pinnace.cluster.in_process import in_process_client
from pinnace.extensions.aggregation.availability import Availability, CheckResult, error_of_service
from pinnace.model.objects import Object as Json
from pinnace.server.nodes.service_addresses import StoredServices
from pinnace.testing.clock import ManualClock


async def test_a_dead_server_is_unavailable_for_its_own_group_alone(cluster: Aggregating) -> None:
    await cluster.register()
    cluster.kitchen.answer_with = 500
    await touch(cluster)
    result = await cluster.available("False")
    url = f"https://localhost:{cluster.port}{ROOT}"
    assert result["reason"] == "FailedDiscoveryCheck"
    assert result["message"] == f"failing or missing response from {url}: bad status from {url}: 500"
    refused = await cluster.get(RECIPES)
    assert (refused.status, refused.json["reason"]) == (503, "ServiceUnavailable")
    assert refused.message == f"service unavailable: FailedDiscoveryCheck: {result['message']}"
    stale = (await cluster.discovered())["versions"][0]
    assert (stale["freshness"], stale["resources"][0]["resource"]) == ("Stale", "recipes")
    assert GROUP in await cluster.groups()
    assert (await cluster.get("/api/v1/namespaces")).status == 200


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"caBundle": None},
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            id="a certificate of an unknown CA",
        ),
        pytest.param(
            {"caBundle": "aGVsbG8="},
            "spec.caBundle cannot be used: unable to parse bytes as PEM block",
            id="a bundle without a certificate",
        ),
        pytest.param(
            {"service": {"namespace": "default", "name": "kitchen", "port": 1}},
            "connect: connection refused",
            id="no server",
        ),
    ],
)
async def test_why_a_server_cannot_be_asked_is_reported(cluster: Aggregating, spec: Object, message: str) -> None:
    await cluster.made(SERVICES, external_service())
    await cluster.made(API_SERVICES, api_service(cluster.port, cluster.ca, **spec))
    result = await cluster.available("False")
    assert result["reason"] == "FailedDiscoveryCheck"
    assert message in result["message"]


async def test_a_server_is_believed_blindly_only_if_its_api_service_says_so(cluster: Aggregating) -> None:
    await cluster.register(caBundle=None, insecureSkipTLSVerify=True)
    assert (await cluster.get(RECIPES)).status == 200


async def test_a_service_that_is_made_later_is_noticed(cluster: Aggregating) -> None:
    await cluster.made(API_SERVICES, api_service(cluster.port, cluster.ca))
    result = await cluster.available("False")
    assert (result["reason"], result["message"]) == ("ServiceNotFound", 'service/kitchen in "default" is not present')
    await cluster.made(SERVICES, external_service())
    await cluster.available("True")


async def test_addresses_of_the_cluster_network_are_never_called(cluster: Aggregating) -> None:
    spec = {"ports": [{"port": cluster.port}]}
    await cluster.made(SERVICES, {**external_service(), "spec": spec})
    subsets = [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": cluster.port}]}]
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "kitchen"}, "subsets": subsets}
    await cluster.made("/api/v1/namespaces/default/endpoints", endpoints)
    await cluster.made(API_SERVICES, api_service(cluster.port, cluster.ca))
    result = await cluster.available("False")
    assert result["message"] == 'service "kitchen" has no endpoint that can be reached from here'


async def test_a_server_that_dies_between_checks_is_noticed_by_the_first_who_needs_it(cluster: Aggregating) -> None:
    await cluster.register()
    await cluster.stop_kitchen()
    refused = await cluster.get(RECIPES)
    assert refused.status == 503
    assert "connection refused" in refused.message
    assert "connection refused" in (await cluster.available("False"))["message"]


async def test_servers_are_asked_every_30_seconds_and_sooner_while_they_fail(cluster: Aggregating) -> None:
    clock = ManualClock()
    plane = cluster.plane
    services = StoredServices(plane.fanout)
    client = in_process_client(plane.local())
    checking = Availability(client, plane.aggregation.api_services, services, clock=clock)
    await cluster.register()
    cluster.kitchen.requests.clear()
    task = asyncio.create_task(checking.run())
    pauses: list[float] = []
    for answer in (200, 500, 500, 500, 500, 500, 500, 200):
        cluster.kitchen.answer_with = answer if answer != 200 else 0
        if pauses:
            await clock.advance(pauses[-1])
        pauses.append(await reached(lambda: some(clock.next_alarm)))
    task.cancel()
    assert pauses == [30, 1, 2, 4, 8, 16, 30, 30]


async def test_with_its_api_service_a_group_leaves(cluster: Aggregating) -> None:
    await cluster.register()
    await cluster.delete(f"{API_SERVICES}/{NAME}")
    assert GROUP not in await cluster.groups()
    assert (await cluster.get(RECIPES)).status == 404


PLACE = ("default", "kitchen", 443)
SERVICE: Json = {"spec": {"ports": [{"port": 443, "name": "https"}]}}
READY: Json = {"endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"name": "https", "port": 8443}]}


@pytest.mark.parametrize(
    ("service", "slices", "actual"),
    [
        pytest.param(
            None, [], CheckResult("ServiceNotFound", 'service/kitchen in "default" is not present'), id="no service"
        ),
        pytest.param(
            {"spec": {"ports": [{"port": 80}]}},
            [READY],
            CheckResult("ServicePortError", 'service/kitchen in "default" is not listening on port 443'),
            id="another port",
        ),
        pytest.param(
            SERVICE,
            [],
            CheckResult("EndpointsNotFound", 'cannot find endpointslices for service/kitchen in "default"'),
            id="no slices",
        ),
        pytest.param(
            SERVICE,
            [{**READY, "endpoints": [{"conditions": {"ready": False}}]}],
            CheckResult(
                "MissingEndpoints",
                'endpointslices for service/kitchen in "default" have no addresses with port name "https"',
            ),
            id="no ready endpoint",
        ),
        pytest.param(SERVICE, [READY], None, id="a ready endpoint"),
        pytest.param({"spec": {"type": "ExternalName"}}, [], None, id="outside the cluster"),
    ],
)
def test_an_availability_is_known_without_a_request_where_a_service_lacks_something(
    service: Json | None, slices: list[Json], actual: CheckResult | None
) -> None:
    assert error_of_service(PLACE, service, slices) == actual
