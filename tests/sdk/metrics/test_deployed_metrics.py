"""The manifests of a metrics server and of the multiplexer: with their roles alone, behind Services."""

from __future__ import annotations

import asyncio

from tests.free_ports import free_port
from tests.sdk.metrics.test_providers import PODS, operator, status_of
from tests.sdk.metrics.worlds import CUSTOM, get_in_time, make_pods, values
from tests.sdk.operator.test_webhook_lifecycle import deploy, run_replica

from pinnace.sdk.multiplexer import multiplexer
from pinnace.testing.cluster import Cluster

SERVICE = "apiregistration.k8s.io/v1/APIService"


async def test_a_deployed_metrics_server_needs_no_more_than_its_manifests(cluster: Cluster) -> None:
    await make_pods(cluster, "a")
    server = operator("depths", depth=3)
    await deploy(cluster, server)
    await run_replica(cluster, server, free_port())
    assert (await status_of(cluster, "depths", "Available", "True"))["reason"] == "Passed"
    assert await values(cluster, f"{PODS}/a/depth") == {"a": "3"}


async def test_a_deployed_multiplexer_needs_no_more_than_its_manifests(cluster: Cluster) -> None:
    await make_pods(cluster, "a")
    gateway, server = multiplexer(), operator("depths", depth=3)
    await deploy(cluster, gateway)
    await run_replica(cluster, gateway, free_port())
    await deploy(cluster, server)
    await run_replica(cluster, server, free_port())
    place = await cluster.client.get(SERVICE, "v1beta2.custom.metrics.k8s.io")
    assert place["spec"]["service"]["name"] == gateway.name
    await _until_listed(cluster, "pods/depth")
    assert (await status_of(cluster, "depths", "Available", "True"))["reason"] == "Passed"
    assert await values(cluster, f"{PODS}/a/depth") == {"a": "3"}


async def _until_listed(cluster: Cluster, name: str) -> None:
    """Wait until the deployed multiplexer knows a metric. The built-in one may know its provider before."""
    async with asyncio.timeout(60):
        while name not in {row["name"] for row in (await get_in_time(cluster, CUSTOM))["resources"]}:
            await asyncio.sleep(0.01)
