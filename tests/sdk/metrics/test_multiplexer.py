"""The multiplexer as an operator, for clusters whose API server has none: it takes the place of pinnace's own here."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.sdk.metrics.test_providers import PODS, PROVIDER, operator, provider, status_of
from tests.sdk.metrics.worlds import CUSTOM, EXTERNAL, error, get, make_pods, values

from pinnace.model.objects import Object
from pinnace.sdk import MetricQuery, Operator, Sample
from pinnace.sdk.installation.manifests import DeploymentOptions, cluster_permissions, own_permissions, roles
from pinnace.sdk.metrics.providers import MULTIPLEXER
from pinnace.sdk.multiplexer import READER, multiplexer
from pinnace.sdk.resources.readiness import NotEstablished
from pinnace.testing.cluster import Cluster

BASE: Object = {"apiVersion": "metrics.pinnace.dev/v1alpha1", "kind": "MetricsProvider"}
SERVICE = "apiregistration.k8s.io/v1/APIService"


@pytest.fixture
async def multiplexed(cluster: Cluster) -> Cluster:
    await cluster.run(multiplexer())
    return cluster


async def test_two_operators_serve_custom_and_external_metrics_behind_it(multiplexed: Cluster) -> None:
    await make_pods(multiplexed, "a", "b", app="x")
    await make_pods(multiplexed, "c", app="y")
    await multiplexed.run(operator("mail", mail_depth=3))
    printing = Operator("print")

    @printing.metrics.external("pages")
    async def pages(query: MetricQuery) -> list[Sample]:
        return [Sample(7, labels={"printer": "one"}), Sample(8, labels={"printer": "two"})]

    await multiplexed.run(printing)
    for version in ("v1beta1", "v1beta2"):
        place = await multiplexed.client.get(SERVICE, f"{version}.custom.metrics.k8s.io")
        assert place["spec"]["service"]["name"] == f"{MULTIPLEXER}-dev"
    assert await values(multiplexed, f"{PODS}/*/mail_depth", labelSelector="app=x") == {"a": "3", "b": "3"}
    obj = await get(multiplexed.client, f"{EXTERNAL}/namespaces/default/pages", labelSelector="printer=two")
    assert [item["value"] for item in obj["items"]] == ["8"]
    rows = (await get(multiplexed.client, CUSTOM))["resources"]
    assert [row["name"] for row in rows] == ["pods/mail_depth"]
    assert (await status_of(multiplexed, "mail", "Available", "True"))["reason"] == "Passed"


async def test_a_metric_that_no_provider_claims_is_not_found(multiplexed: Cluster) -> None:
    code, message = await error(multiplexed, f"{EXTERNAL}/namespaces/default/pages")
    assert (code, message) == (404, "the server could not find the metric pages for external.metrics.k8s.io")


async def test_a_provider_that_is_down_affects_only_its_own_metrics(multiplexed: Cluster) -> None:
    await make_pods(multiplexed, "a")
    await multiplexed.run(operator("alive", depth=3))
    nowhere = {"type": "ExternalName", "externalName": "127.0.0.1"}
    metadata = {"name": "gone", "namespace": "default"}
    await multiplexed.client.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": nowhere})
    spec = provider("gone", custom=["pods/lost"])["spec"]
    spec["service"]["port"] = 1
    await multiplexed.client.create({**BASE, "metadata": {"name": "gone"}, "spec": spec})
    await status_of(multiplexed, "gone", "Available", "False")
    code, message = await error(multiplexed, f"{PODS}/*/lost")
    assert (code, message.startswith("metrics provider gone is unavailable: ")) == (503, True)
    assert (await status_of(multiplexed, "gone", "Available", "False"))["reason"] == "FailedDiscoveryCheck"
    assert await values(multiplexed, f"{PODS}/*/depth") == {"a": "3"}


async def test_a_provider_that_hangs_is_a_timeout_for_its_own_metrics(multiplexed: Cluster) -> None:
    await make_pods(multiplexed, "a")
    released = threading.Event()
    hanging = Operator("hanging")
    hanging.metrics.pods("stuck", lambda pod: float(released.wait(60)), deadline=1000)
    await multiplexed.run(hanging)
    await multiplexed.run(operator("alive", depth=3))
    asking = asyncio.ensure_future(error(multiplexed, f"{PODS}/*/stuck", step=5))
    try:
        assert await values(multiplexed, f"{PODS}/*/depth") == {"a": "3"}
        assert await asking == (504, "Timeout: metrics provider hanging did not answer within 15 s")
    finally:
        released.set()


async def test_it_does_not_replace_another_metrics_server(cluster: Cluster) -> None:
    spec: Object = {"group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100}
    spec |= {"versionPriority": 100, "service": {"namespace": "keda", "name": "keda-metrics", "port": 443}}
    metadata = {"name": "v1beta1.external.metrics.k8s.io"}
    service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec}
    await cluster.client.create(service)
    with pytest.raises(NotEstablished, match=r"leads to keda/keda-metrics, and a cluster has one server for it"):
        await cluster.run(multiplexer())


async def test_a_bad_provider_says_what_is_wrong(multiplexed: Cluster) -> None:
    lost = {**BASE, "metadata": {"name": "lost"}, "spec": provider("lost", external=["x"])["spec"]}
    await multiplexed.client.create(lost)
    result = await status_of(multiplexed, "lost", "Available", "False")
    assert "lost" in result["message"]
    await multiplexed.client.delete(PROVIDER, "lost")


def test_its_manifests_have_the_least_permissions() -> None:
    declared = multiplexer().declarations
    made = roles(
        declared, DeploymentOptions(namespace="monitoring", image="pinnace", file="-m pinnace.sdk.multiplexer")
    )
    by_name = {(obj["kind"], obj["metadata"]["name"]): obj for obj in made}
    assert by_name["ServiceAccount", READER]["metadata"]["namespace"] == "monitoring"
    rules = by_name["ClusterRole", READER]["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list"}
    assert ("ClusterRoleBinding", f"{MULTIPLEXER}-auth-delegator") in by_name
    own = [permission.to_rule() for permission in own_permissions(declared)]
    assert {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "verbs": ["create"],
        "resourceNames": [READER],
    } in own
    names = [
        permission.names
        for permission in cluster_permissions(declared)
        if permission.resource == "apiservices" and permission.names
    ]
    assert names == [
        ("v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")
    ]
