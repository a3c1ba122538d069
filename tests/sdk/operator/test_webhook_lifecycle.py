"""Webhooks over their whole life: behind a Service, with certificates that are renewed, and given back at the end."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from tests.free_ports import free_port
from tests.sdk.operator.test_webhooks import MUTATING, VALIDATING, converter, gatekeeper
from tests.sdk.websites import website

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.clock import SystemClock
from pinnace.sdk import Operator
from pinnace.sdk.installation.installation import DEFINITION, ServiceName, install_webhooks
from pinnace.sdk.installation.manifests import DeploymentOptions, definitions, roles, workload
from pinnace.sdk.operator import runner
from pinnace.testing.cluster import Cluster

DAY = 86400.0
TEST_REPO = "https://example.com/test.git"
SERVERS = "servers.example.com"


async def certificate_at(port: int) -> x509.Certificate:
    """The certificate that a new connection sees."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        raw: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(raw)
    finally:
        writer.close()


async def renewed_at(port: int, first: x509.Certificate) -> x509.Certificate:
    """Return the next certificate once it is shown: it comes over sockets, which no clock of the test moves."""
    async with asyncio.timeout(60):
        while (result := await certificate_at(port)) == first:
            pass
    return result


def trusted(configuration: Object) -> list[x509.Certificate]:
    bundle = base64.b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"])
    return x509.load_pem_x509_certificates(bundle)


@pytest.fixture
async def today(cluster: Cluster) -> Cluster:
    """A cluster on the day on which its certificates begin, which the machine's clock decides."""
    cluster.clock.set(SystemClock().now())
    return cluster


async def pass_time_until(cluster: Cluster, days: int, port: int) -> None:
    """Let it be so many days before the certificate ends. Of the time until then only the last two days pass."""
    ends = (await certificate_at(port)).not_valid_after_utc
    cluster.clock.set(ends - timedelta(days=days + 2))
    await cluster.advance(2 * DAY)


async def lead_service_to(client: Client, service: ServiceName) -> None:
    """Lead a Service to this machine, as a node's proxy would."""
    spec = {"type": "ExternalName", "externalName": "localhost", "selector": None, "clusterIP": None}
    spec |= {"clusterIPs": None, "ipFamilies": None, "ipFamilyPolicy": None, "internalTrafficPolicy": None}
    await client.patch("v1/Service", service.name, {"spec": spec}, namespace=service.namespace)


async def deploy(cluster: Cluster, operator: Operator) -> None:
    """Install what `pinnace manifests` prints."""
    place = DeploymentOptions(namespace="default", image="example.com/operator:1", file="operator.py")
    for obj in [
        *definitions(operator.declarations, place),
        *roles(operator.declarations, place),
        *workload(operator.declarations, place),
    ]:
        await cluster.client.apply(obj)
    await lead_service_to(cluster.client, ServiceName("default", operator.name))


async def run_replica(cluster: Cluster, operator: Operator, port: int) -> None:
    """As a Pod of the Deployment would: with its own account, behind the Service."""
    account = cluster.client_as(f"system:serviceaccount:default:{operator.name}", "system:serviceaccounts")
    service = f"default/{operator.name}:{port}"
    await cluster.run(operator, client=account, install=False, webhook_port=port, webhook_service=service)


async def refused(client: Client) -> bool:
    try:
        await client.create(website("refused", gitRepo=TEST_REPO))
    except errors.ApiError as error:
        assert "denied the request: serve something real" in error.message
        return True
    return False


async def test_in_a_cluster_the_server_asks_through_the_service(cluster: Cluster) -> None:
    operator = gatekeeper()
    await deploy(cluster, operator)
    await run_replica(cluster, operator, free_port())
    assert await refused(cluster.client)
    assert (await cluster.client.create(website()))["metadata"]["labels"] == {"made-by": "admin"}


async def test_in_a_cluster_the_server_converts_through_the_service(cluster: Cluster) -> None:
    operator = converter()
    await deploy(cluster, operator)
    await run_replica(cluster, operator, free_port())
    await cluster.client.create(server_v1())
    assert (await cluster.client.get("example.com/v2/Server", "web"))["spec"] == {"host": "example.com", "port": 81}


async def test_a_certificate_is_renewed_while_it_is_used(today: Cluster) -> None:
    cluster = today
    port = free_port()
    await cluster.run(gatekeeper(), webhook_port=port)
    first, before = await certificate_at(port), trusted(await cluster.client.get(VALIDATING, "gatekeeper"))
    await pass_time_until(cluster, 62, port)
    assert await certificate_at(port) == first
    await pass_time_until(cluster, 58, port)
    second, after = await renewed_at(port, first), trusted(await cluster.client.get(VALIDATING, "gatekeeper"))
    assert len(after) == 2
    assert after[1:] == before  # Until the next time the old one is trusted too.
    assert await refused(cluster.client)
    await pass_time_until(cluster, 58, port)
    await renewed_at(port, second)
    third = trusted(await cluster.client.get(MUTATING, "gatekeeper"))
    assert third[1] == after[0]
    assert len(third) == 2
    assert await refused(cluster.client)


async def test_replicas_renew_one_certificate_and_all_show_it(today: Cluster) -> None:
    cluster = today
    first_port, second_port = free_port(), free_port()
    operator = gatekeeper()
    await deploy(cluster, operator)
    for port in (first_port, second_port):
        await run_replica(cluster, operator, port)
    assert await certificate_at(first_port) == (first := await certificate_at(second_port))
    await pass_time_until(cluster, 58, first_port)
    assert await renewed_at(first_port, first) == await renewed_at(second_port, first)
    assert await refused(cluster.client)


async def test_a_renewal_that_fails_is_tried_again(
    today: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, port = today, free_port()
    await cluster.run(gatekeeper(), webhook_port=port)
    first = await certificate_at(port)
    failures = iter([True, True])

    async def shaky(*arguments: Any) -> None:
        if next(failures, False):
            raise ConnectionLost("refused", was_sent=False)
        await install_webhooks(*arguments)

    monkeypatch.setattr(runner, "install_webhooks", shaky)
    await pass_time_until(cluster, 50, port)
    await renewed_at(port, first)
    assert "cannot renew the certificate for webhooks yet: refused" in caplog.text
    assert await refused(cluster.client)


def server_v1() -> Object:
    metadata = {"name": "web"}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Server",
        "metadata": metadata,
        "spec": {"hostPort": "example.com:81"},
    }


async def test_a_kind_without_a_converter_is_served_only_as_it_is_stored(cluster: Cluster) -> None:
    async with converter().running(cluster.client):
        await cluster.client.create(server_v1())
    definition = await cluster.client.get(DEFINITION, SERVERS)
    assert definition["spec"]["conversion"] == {"strategy": "None"}
    assert (await cluster.client.get("example.com/v2/Server", "web"))["spec"] == {"host": "example.com", "port": 81}
    with pytest.raises(errors.NoSuchPath):
        await cluster.client.get("example.com/v1/Server", "web")
    async with converter().running(cluster.client):
        seen = await cluster.client.get("example.com/v1/Server", "web")
        assert seen["spec"] == {"hostPort": "example.com:81"}


@pytest.mark.parametrize("make", [gatekeeper, converter])
async def test_a_deployed_operator_gets_its_webhooks_back_after_a_run_by_hand(
    cluster: Cluster, make: Callable[[], Operator]
) -> None:
    await deploy(cluster, make())
    await run_replica(cluster, make(), free_port())
    before = await client_configs(cluster.client)
    async with make().running(cluster.client):
        assert all("url" in config for config in await client_configs(cluster.client))
    assert await client_configs(cluster.client) == before
    assert all("service" in config for config in before)


async def client_configs(client: Client) -> list[Object]:
    """Return the client configurations of all webhooks."""
    objects = [*await client.list(VALIDATING), *await client.list(MUTATING)]
    reached = [webhook["clientConfig"] for configuration in objects for webhook in configuration["webhooks"]]
    for definition in await client.list(DEFINITION):
        if webhook := definition["spec"]["conversion"].get("webhook"):
            reached.append(webhook["clientConfig"])
    return reached


async def test_webhooks_of_a_killed_run_are_reported_and_replaced(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for operator in (converter(), gatekeeper()):
        async with operator.running(cluster.client):
            left = [*await cluster.client.list(DEFINITION), *await cluster.client.list(VALIDATING)]
        for obj in left:  # As if it had not had the time to clean up.
            for part in ("resourceVersion", "managedFields", "uid", "creationTimestamp"):
                obj["metadata"].pop(part, None)
            await cluster.client.apply(obj, field_manager="killed", force=True)
    assert "left behind" not in caplog.text
    await cluster.run(converter())
    await cluster.run(gatekeeper())
    assert "servers.example.com has a conversion webhook at https://127.0.0.1:" in caplog.text
    assert "ValidatingWebhookConfiguration gatekeeper was left behind" in caplog.text
    await cluster.client.create(server_v1())
    assert await refused(cluster.client)


@pytest.mark.parametrize("text", ["gatekeeper", "/gatekeeper", "default/", "a/b/c", "a/b:", "a/b:x"])
def test_an_invalid_service_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write namespace/name"):
        ServiceName.parse(text)
