"""APIs of one's own over time: deployed with no more rights than their manifests give, and with new certificates."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from ipaddress import IPv4Address
from typing import NamedTuple

import pytest
from tests.free_ports import free_port
from tests.sdk.operator.test_webhook_lifecycle import deploy, run_replica
from tests.sdk.recipes import KIND, kitchen, recipe

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.reconcile.conditions import is_true
from pinnace.sdk.installation.manifests import DeploymentOptions, workload
from pinnace.sdk.resources.readiness import NotEstablished
from pinnace.server.nodes.connections import ServedAddresses
from pinnace.testing.cluster import Cluster

API_SERVICE = ("apiregistration.k8s.io/v1/APIService", "v1.kitchen.example.com")


SLICE = "discovery.k8s.io/v1/EndpointSlice"


async def reached(client: Client) -> None:
    """Return when the server has asked the API. It does so by itself, in real time."""
    async for event in client.follow(API_SERVICE[0], fields=f"metadata.name={API_SERVICE[1]}"):
        snapshot = getattr(event, "snapshot", None)
        if snapshot is not None and is_true(snapshot.object, "Available"):
            return


async def test_in_a_cluster_the_api_is_reached_through_its_service(cluster: Cluster) -> None:
    operator = kitchen()
    await deploy(cluster, operator)
    port = free_port()
    await cluster.client.patch(*API_SERVICE, {"spec": {"service": {"port": port}}})
    await run_replica(cluster, operator, port)
    await reached(cluster.client)
    await cluster.client.create(recipe(minutes=3))
    assert (await cluster.client.get(KIND, "soup"))["spec"]["minutes"] == 3
    with pytest.raises(errors.Forbidden):
        await cluster.client_as("mallory").list(KIND)
    await cluster.stop()
    assert await cluster.client.get_or_none(*API_SERVICE) is not None  # It is the Deployment's, not that of a run.


async def test_the_certificate_of_an_api_is_renewed_while_it_is_used(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("certificates", "webhook_server"):  # Always due: those who watch need not live through a year.
        monkeypatch.setattr(f"pinnace.sdk.operator.{module}.RENEW_BEFORE", timedelta(days=1000))
    await cluster.run(kitchen())
    await cluster.client.create(recipe())
    before = (await cluster.client.get(*API_SERVICE))["spec"]["caBundle"]
    while (await cluster.client.get(*API_SERVICE))["spec"]["caBundle"] == before:
        await cluster.clock.advance(60)
    assert await cluster.client.get(KIND, "soup")
    assert (await cluster.client.get(*API_SERVICE))["spec"]["service"]["name"] == "kitchen-dev"


def test_an_api_has_one_replica() -> None:
    with pytest.raises(ValueError, match="it cannot have 2 replicas"):
        workload(
            kitchen().declarations,
            DeploymentOptions(namespace="default", image="kitchen:1", file="kitchen.py", replicas=2),
        )


async def test_two_runs_that_serve_one_api_take_turns(cluster: Cluster) -> None:
    async with AsyncExitStack() as second:
        async with kitchen().running(cluster.client):
            async with kitchen().running(cluster.client):
                pass
            await reached(cluster.client)
            await cluster.client.create(recipe(minutes=3))
            await second.enter_async_context(kitchen().running(cluster.client))
        await reached(cluster.client)
        assert await cluster.client.list(KIND) == [], "each run keeps its own recipes"
    assert await cluster.client.get_or_none(*API_SERVICE) is None
    assert await cluster.client.list("v1/Service", namespace="default", labels="!component") == []


class RoutedServices(NamedTuple):
    """Resolves Services as a server with --enable-aggregator-routing does. `outside` stands for this machine."""

    cluster: Cluster
    outside: str

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        fanout = self.cluster.plane.fanout
        service = fanout.cache("/registry/core/services/").entries[f"{namespace}/{name}"].decode()
        if service["spec"]["type"] == "ExternalName":
            raise LookupError('unsupported service type "ExternalName"')
        assert [entry["port"] for entry in service["spec"]["ports"]] == [port]
        routed = fanout.cache("/registry/discovery.k8s.io/endpointslices/").entries[f"{namespace}/{name}"].decode()
        assert routed["metadata"]["labels"] == {"kubernetes.io/service-name": name}
        assert routed["endpoints"][0]["addresses"] == [self.outside]
        return "127.0.0.1", routed["ports"][0]["port"]


async def test_a_server_that_routes_to_endpoints_gets_a_service_with_an_endpoint(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = IPv4Address("192.0.2.7")
    services = RoutedServices(cluster, str(outside))
    monkeypatch.setattr(ServedAddresses, "address_of", lambda _, *place: services.address_of(*place))

    async def resolve(host: str) -> IPv4Address:
        assert host == "127.0.0.1"
        return outside

    with monkeypatch.context() as patched:
        patched.setattr("pinnace.sdk.installation.api_registration._endpoint_address", resolve)
        async with kitchen().running(cluster.client):
            await cluster.client.create(recipe(minutes=3))
            assert (await cluster.client.get(KIND, "soup"))["spec"]["minutes"] == 3
        await cluster.settle()
    assert await cluster.client.get_or_none(*API_SERVICE) is None
    assert await cluster.client.list("v1/Service", namespace="default", labels="!component") == []
    assert await cluster.client.get_or_none(SLICE, "kitchen-dev", namespace="default") is None
    with pytest.raises(NotEstablished, match=r"127\.0\.0\.1 is no address that the server could dial.*--webhook-host"):
        async with kitchen().running(cluster.client):
            pass
