"""Registrations that others replace while the operator runs: it repairs their CA and address at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.free_ports import free_port
from tests.sdk.operator.test_webhook_lifecycle import (
    SERVERS,
    client_configs,
    deploy,
    refused,
    run_replica,
    server_v1,
)
from tests.sdk.operator.test_webhooks import MUTATING, VALIDATING, converter, gatekeeper
from tests.testing.both_ways import in_process_only

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.sdk import Operator
from pinnace.sdk.installation.installation import DEFINITION
from pinnace.testing.cluster import Cluster


def plain(obj: Object) -> Object:
    """Return an object without what the server has added."""
    return {**obj, "metadata": {"name": obj["metadata"]["name"]}}


async def replace_configuration(client: Client) -> None:
    """Replace a configuration by one without CA, as `kubectl replace` of the manifests does."""
    present = await client.get(VALIDATING, "gatekeeper")
    for webhook in present["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    await client.update(present)


async def recreate_configurations(client: Client) -> None:
    for kind in (MUTATING, VALIDATING):
        present = plain(await client.get(kind, "gatekeeper"))
        for webhook in present["webhooks"]:
            del webhook["clientConfig"]["caBundle"]
        await client.delete(kind, "gatekeeper")
        await client.create(present)


async def drop_a_webhook(client: Client) -> None:
    await client.patch(VALIDATING, "gatekeeper", {"webhooks": []})


async def lead_elsewhere(client: Client) -> None:
    present = await client.get(VALIDATING, "gatekeeper")
    for webhook in present["webhooks"]:
        service = webhook["clientConfig"].get("service")
        if service is not None:
            service["port"] = 1
        else:
            webhook["clientConfig"]["url"] = "https://127.0.0.1:1/"
    await client.update(present)


@in_process_only
@pytest.mark.parametrize("change", [replace_configuration, recreate_configurations, drop_a_webhook, lead_elsewhere])
@pytest.mark.parametrize("is_deployed", [False, True], ids=["by hand", "deployed"])
async def test_a_replaced_configuration_leads_to_the_operator_again(
    cluster: Cluster, change: Callable[[Client], Awaitable[None]], is_deployed: bool
) -> None:
    await start(cluster, gatekeeper(), is_deployed=is_deployed)
    before = await client_configs(cluster.client)
    await change(cluster.client)
    await cluster.settle()
    assert await client_configs(cluster.client) == before
    assert await refused(cluster.client)


async def start(cluster: Cluster, operator: Operator, *, is_deployed: bool) -> None:
    if is_deployed:
        await deploy(cluster, operator)
        await run_replica(cluster, operator, free_port())
    else:
        await cluster.run(operator)
    await cluster.settle()


@pytest.mark.parametrize("is_deployed", [False, True], ids=["by hand", "deployed"])
async def test_a_definition_that_is_created_anew_is_converted_at_once(cluster: Cluster, is_deployed: bool) -> None:
    await start(cluster, converter(), is_deployed=is_deployed)
    before = await client_configs(cluster.client)
    definition = plain(await cluster.client.get(DEFINITION, SERVERS))
    definition.pop("status")
    definition["spec"]["conversion"] = {"strategy": "None"}
    await cluster.client.delete(DEFINITION, SERVERS)
    await cluster.settle()
    await cluster.client.create(definition)
    await cluster.settle()
    assert await client_configs(cluster.client) == before
    await cluster.client.create(server_v1())
    assert (await cluster.client.get("example.com/v2/Server", "web"))["spec"] == {"host": "example.com", "port": 81}


@in_process_only
async def test_a_deployed_operator_leaves_its_webhooks_to_a_run_by_hand(cluster: Cluster) -> None:
    await start(cluster, gatekeeper(), is_deployed=True)
    before = await client_configs(cluster.client)
    async with gatekeeper().running(cluster.client):
        await cluster.settle()
        assert all("url" in config for config in await client_configs(cluster.client))
    await cluster.settle()
    assert await client_configs(cluster.client) == before


@in_process_only
async def test_a_webhook_of_another_in_the_same_configuration_stays(cluster: Cluster) -> None:
    await start(cluster, gatekeeper(), is_deployed=True)
    present = await cluster.client.get(VALIDATING, "gatekeeper")
    newer = {**present["webhooks"][0], "name": "newer.example.com", "rules": []}
    del present["webhooks"][0]["clientConfig"]["caBundle"]
    await cluster.client.update({**present, "webhooks": [*present["webhooks"], newer]})
    await cluster.settle()
    names = [webhook["name"] for webhook in (await cluster.client.get(VALIDATING, "gatekeeper"))["webhooks"]]
    assert "newer.example.com" in names
    assert await refused(cluster.client)
