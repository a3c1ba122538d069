"""The webhook configurations that an operator restores when it stops."""

from __future__ import annotations

from tests.sdk.operator.test_webhooks import converter

from pinnace.sdk.operator.installation import DEFINITION
from pinnace.testing.cluster import Cluster

SERVERS = "servers.example.com"


async def test_a_definition_that_was_deleted_meanwhile_is_not_made_anew(cluster: Cluster) -> None:
    async with converter().running(cluster.client):
        assert (await cluster.client.get(DEFINITION, SERVERS))["spec"]["conversion"]["strategy"] == "Webhook"
        await cluster.client.delete(DEFINITION, SERVERS)
        await cluster.settle()
    assert await cluster.client.get_or_none(DEFINITION, SERVERS) is None
