"""The cluster that tests are given."""

from __future__ import annotations

import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from tests.growth import no_collection
from tests.sdk.websites import website, website_operator
from tests.testing.both_ways import in_process_only

from pinnace.client.connect import connect
from pinnace.model import errors
from pinnace.sdk import Operator
from pinnace.testing.cluster import Cluster, running_cluster

SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}


@pytest.mark.parametrize("turn", [1, 2])
async def test_every_test_has_a_cluster_of_its_own(cluster: Cluster, turn: int) -> None:
    await cluster.client.create(SETTINGS)


async def test_a_cluster_is_there_in_milliseconds_after_the_first() -> None:
    async with running_cluster():
        pass
    spent = []
    for _ in range(5):
        with no_collection():
            began = time.process_time()  # CPU time does not depend on other load of the machine.
            async with running_cluster() as cluster:
                await cluster.client.get("v1/Namespace", "default")
                spent.append(time.process_time() - began)
    assert min(spent) < 0.25


def test_pytest_does_not_rewrite_the_modules_of_the_product() -> None:
    assert isinstance(running_cluster.__globals__["__loader__"], SourceFileLoader)


async def test_time_is_the_tests(cluster: Cluster) -> None:
    began = cluster.clock.now()
    await cluster.clock.advance(3600)
    assert (cluster.clock.now() - began).total_seconds() == 3600


@in_process_only
async def test_other_programs_reach_it_through_a_kubeconfig(cluster: Cluster, kubeconfig: Path) -> None:
    await cluster.client.create(SETTINGS)
    async with connect(kubeconfig=kubeconfig) as client:
        assert (await client.get("v1/ConfigMap", "settings"))["metadata"]["name"] == "settings"


@in_process_only
async def test_an_operator_runs_over_the_socket_as_in_process(cluster: Cluster, kubeconfig: Path) -> None:
    async with connect(kubeconfig=kubeconfig, clock=cluster.clock) as client:
        await cluster.run(website_operator(), client=client)
        await cluster.client.create(website(replicas=2))
        await cluster.settle()
        assert (await cluster.client.get("apps/v1/Deployment", "blog"))["spec"]["replicas"] == 2
        await cluster.stop()


async def test_users_may_do_what_rbac_lets_them(cluster: Cluster) -> None:
    with pytest.raises(errors.Forbidden):
        await cluster.client_as("jane").list("v1/Secret")


async def test_an_operator_that_cannot_start_says_so(cluster: Cluster) -> None:
    with pytest.raises(errors.Forbidden):
        await cluster.run(website_operator(), client=cluster.client_as("jane"))
    assert await cluster.run(Operator("idle"))
