"""The webhook configurations that an operator restores when it stops."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from tests.sdk.operator.test_webhooks import MUTATING, VALIDATING, converter, gatekeeper
from tests.sdk.websites import website

from pinnace.model import errors
from pinnace.sdk.installation.installation import DEFINITION
from pinnace.testing.cluster import Cluster

SERVERS = "servers.example.com"


async def test_a_definition_that_was_deleted_meanwhile_is_not_made_anew(cluster: Cluster) -> None:
    async with converter().running(cluster.client):
        assert (await cluster.client.get(DEFINITION, SERVERS))["spec"]["conversion"]["strategy"] == "Webhook"
        await cluster.client.delete(DEFINITION, SERVERS)
        await cluster.settle()
    assert await cluster.client.get_or_none(DEFINITION, SERVERS) is None


async def urls_of(cluster: Cluster) -> list[str]:
    """Return the addresses of the operator's webhooks, without their paths."""
    obj = [await cluster.client.get_or_none(kind, "gatekeeper") for kind in (VALIDATING, MUTATING)]
    webhooks = [webhook for configuration in obj if configuration is not None for webhook in configuration["webhooks"]]
    return sorted({webhook["clientConfig"]["url"].rpartition("/")[0] for webhook in webhooks})


async def test_a_second_run_that_ends_gives_the_webhooks_back_to_the_first(cluster: Cluster) -> None:
    async with gatekeeper().running(cluster.client):
        first = await urls_of(cluster)
        async with gatekeeper().running(cluster.client):
            assert await urls_of(cluster) != first
        assert await urls_of(cluster) == first
        with pytest.raises(errors.ApiError, match="serve something real"):
            await cluster.client.create(website(gitRepo="https://example.com/test.git"))
    assert await urls_of(cluster) == []


async def test_a_first_run_that_ends_leaves_the_webhooks_of_the_second(cluster: Cluster) -> None:
    async with AsyncExitStack() as second:
        async with gatekeeper().running(cluster.client):
            await second.enter_async_context(gatekeeper().running(cluster.client))
            latest = await urls_of(cluster)
        assert await urls_of(cluster) == latest
        with pytest.raises(errors.ApiError, match="serve something real"):
            await cluster.client.create(website(gitRepo="https://example.com/test.git"))
    assert await urls_of(cluster) == [], "the first run does not answer any more: there is nothing to restore"


async def test_two_runs_that_convert_one_kind_take_turns(cluster: Cluster) -> None:
    old = {"apiVersion": "example.com/v1", "kind": "Server", "metadata": {"name": "web"}}
    async with AsyncExitStack() as second:
        async with converter().running(cluster.client):
            async with converter().running(cluster.client):
                pass
            await cluster.client.create({**old, "spec": {"hostPort": "example.com:8080"}})
            assert (await cluster.client.get("example.com/v2/Server", "web"))["spec"]["port"] == 8080
            await second.enter_async_context(converter().running(cluster.client))
        assert (await cluster.client.get("example.com/v2/Server", "web"))["spec"]["port"] == 8080
    assert (await cluster.client.get(DEFINITION, SERVERS))["spec"]["conversion"]["strategy"] == "None"
