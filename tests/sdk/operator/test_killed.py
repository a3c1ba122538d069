"""An operator with a conversion webhook that is killed: the cluster still settles, and another run takes over."""

from __future__ import annotations

import pytest
from tests.sdk.operator.test_webhook_lifecycle import SERVERS, server_v1
from tests.sdk.operator.test_webhooks import ServerV1, converter

from pinnace.model.objects import Object
from pinnace.sdk import Context, Operator
from pinnace.sdk.installation.installation import DEFINITION
from pinnace.testing.cluster import Cluster


def converting(calls: list[str]) -> Operator:
    operator = converter()

    @operator.reconcile(ServerV1)
    async def handle(server: ServerV1, ctx: Context) -> None:
        calls.append(f"converter {server.name}")

    return operator


def observing(calls: list[str]) -> Operator:
    operator = Operator("other")

    @operator.reconcile("example.com/v1/Server")
    async def handle(server: Object, ctx: Context) -> None:
        calls.append(f"other {server['metadata']['name']}")

    return operator


async def change_definition(cluster: Cluster) -> None:
    """End the watches of all versions, as each change of a definition does."""
    names = {"categories": ["all"]}
    await cluster.client.patch(DEFINITION, SERVERS, {"spec": {"names": names}})


async def test_a_cluster_settles_after_an_operator_with_a_conversion_is_killed(cluster: Cluster) -> None:
    calls: list[str] = []
    manager = await cluster.run(converting(calls))
    await cluster.run(observing(calls))
    await cluster.client.create(server_v1())
    await cluster.settle()
    assert sorted(calls) == ["converter web", "other web"]
    before = await cluster.client.get(DEFINITION, SERVERS)
    await cluster.kill(manager)
    assert await cluster.client.get(DEFINITION, SERVERS) == before  # It cleans nothing up.
    await cluster.settle()
    await change_definition(cluster)
    await cluster.settle()
    await cluster.run(converting(calls))
    await cluster.client.create({**server_v1(), "metadata": {"name": "second"}})
    await cluster.settle()
    assert sorted(calls[2:]) == ["converter second", "converter web", "other second"]


async def test_a_cluster_settles_though_a_kind_cannot_be_converted_any_more(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    manager = await cluster.run(converting(calls))
    await cluster.client.create(server_v1())
    await cluster.settle()
    await cluster.run(observing(calls))
    await cluster.kill(manager)
    spec = {"host": "example.com", "port": 82}
    stored = {"apiVersion": "example.com/v2", "kind": "Server", "metadata": {"name": "second"}, "spec": spec}
    await cluster.client.create(stored)
    await cluster.settle()
    assert "cannot watch Server of example.com/v1 now: " in caplog.text
    assert calls == ["converter web", "other web"]
    await cluster.run(converting(calls))
    await cluster.settle()
    assert "other second" in calls
