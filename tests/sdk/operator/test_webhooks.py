"""Webhooks of an operator: over HTTPS as the server calls them, and by the server itself."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
import pytest
from tests.sdk.websites import Website, website

from pinnace.model import errors
from pinnace.model.patches import json_and_merge
from pinnace.sdk import Admission, CustomResource, Field, Model, Operator, Refused
from pinnace.sdk.handlers.reviews import differences
from pinnace.sdk.installation.installation import ServiceName
from pinnace.sdk.installation.manifests import DeploymentOptions, definitions, roles, workload
from pinnace.sdk.operator.certificates import secret_name, shared_certificate
from pinnace.testing.cluster import Cluster

VALIDATING = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
GATEKEEPER = ServiceName("default", "gatekeeper")
MUTATING = "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration"


def gatekeeper() -> Operator:
    operator = Operator("gatekeeper")

    @operator.validate(Website)
    async def no_test_repos(site: Website) -> str | None:
        return "serve something real" if site.spec.git_repo.endswith("/test.git") else None

    @operator.validate(Website, operations=["UPDATE"])
    def only_growing(site: Website, admission: Admission) -> None:
        if site.spec.replicas < admission.old.spec.replicas:
            raise Refused(f"{admission.user} may not shrink it")
        admission.warn("growing costs money")

    @operator.mutate(Website)
    def owner_label(site: Website, admission: Admission) -> None:
        site.metadata.labels["made-by"] = admission.user.rpartition(":")[2]

    return operator


async def ask(configuration: dict[str, Any], number: int, request: dict[str, Any]) -> dict[str, Any]:
    """Call a webhook as the server does, trusting only the authority that the configuration names."""
    reached = configuration["webhooks"][number]["clientConfig"]
    trust = ssl.create_default_context(cadata=base64.b64decode(reached["caBundle"]).decode())
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", **request}}
    async with aiohttp.ClientSession() as session, session.post(reached["url"], json=review, ssl=trust) as answer:
        assert answer.status == 200, await answer.text()
        response: dict[str, Any] = (await answer.json())["response"]
        assert response["uid"] == "1"
        return response


async def test_a_function_that_returns_a_reason_refuses_with_it(cluster: Cluster) -> None:
    await cluster.run(gatekeeper())
    configuration = await cluster.client.get(VALIDATING, "gatekeeper")
    bad = {"operation": "CREATE", "object": website(gitRepo="https://example.com/test.git")}
    assert await ask(configuration, 0, bad) == {
        "uid": "1",
        "allowed": False,
        "status": {"code": 403, "message": "serve something real"},
    }
    assert (await ask(configuration, 0, {"operation": "CREATE", "object": website()}))["allowed"] is True


@pytest.mark.parametrize("verdict", [True, False])
async def test_a_function_that_returns_a_bool_is_reported_and_admits_nothing(cluster: Cluster, verdict: bool) -> None:
    operator = Operator("judge")

    @operator.validate(Website)
    def judge(site: Website) -> Any:
        return verdict

    await cluster.run(operator)
    with pytest.raises(errors.ApiError, match=f"judge returned {verdict}: return None to admit the object, or a text"):
        await cluster.client.create(website())


async def test_a_function_sees_who_writes_and_what_was_there(cluster: Cluster) -> None:
    await cluster.run(gatekeeper())
    configuration = await cluster.client.get(VALIDATING, "gatekeeper")
    assert configuration["webhooks"][1]["rules"][0]["operations"] == ["UPDATE"]
    request: dict[str, Any] = {"operation": "UPDATE", "userInfo": {"username": "ann"}}
    shrunk = await ask(configuration, 1, {**request, "object": website(), "oldObject": website(replicas=2)})
    assert shrunk["status"]["message"] == "ann may not shrink it"
    grown = await ask(configuration, 1, {**request, "object": website(replicas=3), "oldObject": website()})
    assert (grown["allowed"], grown["warnings"]) == (True, ["growing costs money"])


async def test_a_change_comes_back_as_a_patch_of_only_what_changed(cluster: Cluster) -> None:
    await cluster.run(gatekeeper())
    configuration = await cluster.client.get(MUTATING, "gatekeeper")
    request = {"operation": "CREATE", "userInfo": {"username": "ann"}, "object": website()}
    response = await ask(configuration, 0, request)
    assert orjson.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/labels", "value": {"made-by": "ann"}}
    ]


async def test_an_invalid_review_is_a_bad_request(cluster: Cluster) -> None:
    await cluster.run(gatekeeper())
    reached = (await cluster.client.get(MUTATING, "gatekeeper"))["webhooks"][0]["clientConfig"]
    trust = ssl.create_default_context(cadata=base64.b64decode(reached["caBundle"]).decode())
    async with aiohttp.ClientSession() as session:
        for body in (b"", b"[]", b"{}", b"\xff"):
            async with session.post(reached["url"], data=body, ssl=trust) as answer:
                assert answer.status == 400


@pytest.mark.parametrize(
    ("present", "after"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": {"b/c": 1, "d": [1, 2]}}, {"a": {"b/c": 2, "d": [2]}}),
        ({"a": {"b": 1}}, {"a": {}}),
        ({}, {"a": {"~": 1}}),
        ({"a": 1}, {"a": {"b": 1}}),
    ],
)
def test_differences_applied_give_the_changed_object(present: dict[str, Any], after: dict[str, Any]) -> None:
    patch = differences(present, after, present)
    assert json_and_merge.json_patch(present, patch) == after


class OldSpec(Model):
    host_port: str = "localhost:80"


class NewSpec(Model):
    host: str = "localhost"
    port: int = Field(default=80)


class ServerV1(CustomResource[OldSpec, None], group="example.com", version="v1", kind="Server", storage=False):
    """A server, as one text."""


class ServerV2(CustomResource[NewSpec, None], group="example.com", version="v2", kind="Server"):
    """A server, in two parts."""


def converter() -> Operator:
    operator = Operator("converter")

    @operator.convert(ServerV1, ServerV2)
    def split(old: ServerV1) -> ServerV2:
        host, _, port = old.spec.host_port.partition(":")
        return ServerV2(spec=NewSpec(host=host, port=int(port)))

    @operator.convert(ServerV2, ServerV1)
    async def join(new: ServerV2) -> ServerV1:
        return ServerV1(spec=OldSpec(host_port=f"{new.spec.host}:{new.spec.port}"))

    return operator


async def test_the_server_converts_between_versions_through_the_operator(cluster: Cluster) -> None:
    await cluster.run(converter())
    old = {"apiVersion": "example.com/v1", "kind": "Server", "metadata": {"name": "web", "labels": {"a": "b"}}}
    await cluster.client.create({**old, "spec": {"hostPort": "example.com:8080"}})
    new = await cluster.client.get("example.com/v2/Server", "web")
    assert new["spec"] == {"host": "example.com", "port": 8080}
    assert new["metadata"]["labels"] == {"a": "b"}
    back = await cluster.client.get("example.com/v1/Server", "web")
    assert back["spec"] == {"hostPort": "example.com:8080"}


async def test_an_object_that_cannot_be_converted_is_refused_with_the_reason(cluster: Cluster) -> None:
    await cluster.run(converter())
    bad = {"apiVersion": "example.com/v1", "kind": "Server", "metadata": {"name": "web"}, "spec": {"hostPort": "x:y"}}
    with pytest.raises(errors.ApiError, match="invalid literal for int"):
        await cluster.client.create(bad)


async def test_replicas_share_one_certificate_and_a_broken_one_is_replaced(cluster: Cluster) -> None:
    first = await shared_certificate(cluster.client, GATEKEEPER)
    assert await shared_certificate(cluster.client, GATEKEEPER) == first
    name = secret_name(GATEKEEPER)
    await cluster.client.patch("v1/Secret", name, {"data": {"tls.crt": base64.b64encode(b"rubbish").decode()}})
    assert await shared_certificate(cluster.client, GATEKEEPER) != first


async def test_an_operator_that_stops_leaves_no_webhook_that_leads_nowhere(cluster: Cluster) -> None:
    async with gatekeeper().running(cluster.client):
        assert len(await cluster.client.list(VALIDATING)) == 1
    assert await cluster.client.list(VALIDATING) == []
    assert await cluster.client.list(MUTATING) == []
    assert await cluster.client.create(website(gitRepo="https://example.com/test.git"))


async def test_the_server_asks_the_operator_before_it_stores(cluster: Cluster) -> None:
    manager = await cluster.run(gatekeeper())
    with pytest.raises(errors.ApiError, match="denied the request: serve something real"):
        await cluster.client.create(website(gitRepo="https://example.com/test.git"))
    made = await cluster.client.create(website())
    assert made["metadata"]["labels"] == {"made-by": "admin"}
    request = "/validate/extensions.example.com/v1/website/no-test-repos"
    assert manager.metrics.value("controller_runtime_webhook_requests_total", webhook=request, code="200") == 2
    assert f'controller_runtime_webhook_latency_seconds_count{{webhook="{request}"}} 2' in manager.metrics.text()


@pytest.mark.parametrize("make", [gatekeeper, converter])
async def test_in_a_cluster_the_operator_publishes_its_own_authority(
    cluster: Cluster, make: Callable[[], Operator]
) -> None:
    operator = make()
    place = DeploymentOptions(namespace="default", image="example.com/operator:1", file="operator.py")
    for obj in [
        *definitions(operator.declarations, place),
        *roles(operator.declarations, place),
        *workload(operator.declarations, place),
    ]:
        await cluster.client.create(obj)
    account = cluster.client_as(f"system:serviceaccount:default:{operator.name}", "system:serviceaccounts")
    await cluster.run(operator, client=account, install=False, webhook_service=f"default/{operator.name}")
    trusted = (await shared_certificate(cluster.client, ServiceName("default", operator.name))).ca
    configurations = [*await cluster.client.list(VALIDATING), *await cluster.client.list(MUTATING)]
    reached = [webhook["clientConfig"] for configuration in configurations for webhook in configuration["webhooks"]]
    for crd in await cluster.client.list("apiextensions.k8s.io/v1/CustomResourceDefinition"):
        if crd["spec"]["conversion"]["strategy"] == "Webhook":
            reached.append(crd["spec"]["conversion"]["webhook"]["clientConfig"])
    assert reached
    for client_config in reached:
        assert client_config["service"]["name"] == operator.name
        assert base64.b64decode(client_config["caBundle"]) == trusted
