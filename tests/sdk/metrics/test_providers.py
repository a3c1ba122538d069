"""Several metrics servers side by side: each request goes to the one that claims its metric."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.sdk.metrics.worlds import CUSTOM, EXTERNAL, error, get, make_pods, values

from pinnace.model.objects import Object
from pinnace.reconcile.conditions import condition
from pinnace.sdk import Operator
from pinnace.sdk.metrics.providers import ProviderTable
from pinnace.testing.cluster import Cluster

PROVIDER = "metrics.pinnace.dev/v1alpha1/MetricsProvider"
PODS = f"{CUSTOM}/namespaces/default/pods"


def provider(name: str, *, age: int = 0, custom: Any = (), external: Any = ()) -> Object:
    metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{age:02}Z"}
    spec = {"service": {"namespace": "default", "name": name}, "custom": list(custom), "external": list(external)}
    return {"metadata": metadata, "spec": spec}


def operator(name: str, **metrics: float) -> Operator:
    """An operator with metrics of pods that have the same value for each."""
    made = Operator(name)
    for metric, value in metrics.items():
        made.metrics.pods(metric, lambda pod, query, value=value: value)
    return made


async def status_of(cluster: Cluster, name: str, type: str, status: str) -> Object:
    """Wait for a condition of a provider."""
    async with asyncio.timeout(60):
        while True:
            stated = condition(await cluster.client.get(PROVIDER, name), type)
            if stated is not None and stated["status"] == status:
                return stated
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("resource", "metric", "owner"),
    [
        ("pods", "queue_depth", "names"),
        ("pods", "queue_length", "prefix"),
        ("pods", "kafka_lag", "any"),
        ("services", "queue_length", None),
        ("deployments.apps", "kafka_lag", "any"),
        ("pods", "messages", None),
        ("", "messages", "names"),
        ("", "queue_depth", None),
        ("", "sqs_orders", "prefix"),
    ],
)
def test_the_most_precise_claim_finds_the_provider(resource: str, metric: str, owner: str | None) -> None:
    table = ProviderTable()
    table.put(provider("any", custom=["*/kafka_*"]))
    table.put(provider("prefix", custom=["pods/queue_*"], external=["sqs_*"]))
    table.put(provider("names", custom=["pods/queue_depth"], external=["messages"]))
    assert table.find(resource, metric) == owner


def test_of_two_equal_claims_the_older_provider_has_the_metric() -> None:
    table = ProviderTable()
    table.put(provider("young", age=5, custom=["pods/depth", "pods/other"]))
    table.put(provider("old", age=1, custom=["pods/depth"]))
    assert (table.find("pods", "depth"), table.find("pods", "other")) == ("old", "young")
    assert [(str(claim), other) for claim, other in table.conflicts("young")] == [("pods/depth", "old")]
    assert table.conflicts("old") == []
    table.drop("old")
    assert (table.find("pods", "depth"), table.conflicts("young")) == ("young", [])


def test_claims_that_name_no_metric_are_left_out() -> None:
    table = ProviderTable()
    table.put(provider("odd", custom=["", "pods", "/x", "pods/"], external=[""]))
    assert (table.claims(), len(table)) == ([], 1)


async def test_two_operators_serve_metrics_beside_each_other(cluster: Cluster) -> None:
    await make_pods(cluster, "a")
    await cluster.run(operator("mail", mail_depth=3))
    await cluster.run(operator("print", print_depth=4))
    assert await values(cluster, f"{PODS}/*/mail_depth") == {"a": "3"}
    assert await values(cluster, f"{PODS}/*/print_depth") == {"a": "4"}
    rows = (await get(cluster.client, CUSTOM))["resources"]
    assert [row["name"] for row in rows] == ["pods/mail_depth", "pods/print_depth"]


async def test_a_conflict_is_shown_in_the_status_and_an_event(cluster: Cluster) -> None:
    await make_pods(cluster, "a")
    await cluster.run(operator("first", depth=3))
    await cluster.clock.advance(5)
    await cluster.run(operator("second", depth=4, other=5))
    result = await status_of(cluster, "second", "Conflicted", "True")
    assert result["message"].startswith("pods/depth is provided by first; rename")
    assert (await status_of(cluster, "first", "Conflicted", "False"))["reason"] == "NoConflict"
    assert await values(cluster, f"{PODS}/*/depth") == {"a": "3"}
    assert await values(cluster, f"{PODS}/*/other") == {"a": "5"}
    async with asyncio.timeout(60):
        while not (events := await cluster.client.list("v1/Event", fields="reason=MetricConflict")):
            await asyncio.sleep(0.01)
    assert [(event["involvedObject"]["name"], event["type"]) for event in events] == [("second", "Warning")]


async def test_a_provider_that_is_down_affects_only_its_own_metrics(cluster: Cluster) -> None:
    await make_pods(cluster, "a")
    await cluster.run(operator("alive", depth=3))
    gone = await cluster.run(operator("gone", lost=1))
    await cluster.kill(gone)
    spec = provider("lost", external=["nowhere"])["spec"]
    metadata = {"name": "lost"}
    await cluster.client.create(
        {"apiVersion": "metrics.pinnace.dev/v1alpha1", "kind": "MetricsProvider"} | {"metadata": metadata, "spec": spec}
    )
    code, message = await error(cluster, f"{EXTERNAL}/namespaces/default/nowhere")
    assert (code, message.startswith("metrics provider lost is unavailable")) == (503, True)
    assert (await status_of(cluster, "lost", "Available", "False"))["reason"] == "FailedDiscoveryCheck"
    assert await values(cluster, f"{PODS}/*/depth") == {"a": "3"}
    assert (await status_of(cluster, "alive", "Available", "True"))["reason"] == "Passed"


async def test_the_apis_exist_only_while_there_are_providers(cluster: Cluster) -> None:
    async def groups() -> set[str]:
        obj = (await get(cluster.client, "/apis"))["groups"]
        return {group["name"] for group in obj if group["name"].endswith(".metrics.k8s.io")}

    assert await groups() == set()
    await cluster.run(operator("mail", depth=1))
    assert await groups() == {"custom.metrics.k8s.io"}
    await cluster.client.delete(PROVIDER, "mail")
    assert await groups() == set()
    assert (await error(cluster, f"{PODS}/*/depth"))[0] == 404
