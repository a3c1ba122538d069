"""A function that returns values is a metrics server: its answers, selectors, and bad values."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest
from tests.sdk.metrics.worlds import CUSTOM, EXTERNAL, error, get, make_pods, values
from tests.sdk.recipes import Recipe, recipe

from pinnace.model.objects import Object
from pinnace.sdk import MetricQuery, Operator, Sample
from pinnace.testing.cluster import Cluster

PODS = f"{CUSTOM}/namespaces/default/pods"


def worker(*, name: str = "queue_depth", **depths: Any) -> Operator:
    """An operator with one metric of pods, by their names."""
    operator = Operator("worker")

    @operator.metrics.pods(name)
    async def queue_depth(pod: Object) -> Any:
        return depths.get(pod["metadata"]["name"])

    return operator


async def test_a_function_of_a_pod_is_a_metric_of_pods(cluster: Cluster) -> None:
    await make_pods(cluster, "a", "b", "c", app="worker")
    await cluster.run(worker(a=3, b=4.5))
    assert await values(cluster, f"{PODS}/*/queue_depth") == {"a": "3", "b": "4500m"}
    assert await values(cluster, f"{PODS}/a/queue_depth") == {"a": "3"}


async def test_answers_have_the_form_of_their_version(cluster: Cluster) -> None:
    await make_pods(cluster, "a")
    await cluster.run(worker(a=Sample(7, labels={"queue": "mail"}, window=60)))
    now = cluster.clock.now().isoformat(timespec="seconds")[:19] + "Z"
    about = {"kind": "Pod", "namespace": "default", "name": "a", "apiVersion": "/v1"}
    selector = {"matchLabels": {"queue": "mail"}}
    path = "namespaces/default/pods/*/queue_depth"
    obj = await get(cluster.client, f"{CUSTOM}/{path}", metricLabelSelector="queue=mail")
    assert obj == {
        "kind": "MetricValueList",
        "apiVersion": "custom.metrics.k8s.io/v1beta2",
        "metadata": {},
        "items": [
            {
                "describedObject": about,
                "metric": {"name": "queue_depth", "selector": selector},
                "timestamp": now,
                "windowSeconds": 60,
                "value": "7",
            }
        ],
    }
    obj = await get(cluster.client, f"/apis/custom.metrics.k8s.io/v1beta1/{path}")
    assert obj["apiVersion"] == "custom.metrics.k8s.io/v1beta1"
    assert obj["items"] == [
        {
            "describedObject": about,
            "metricName": "queue_depth",
            "timestamp": now,
            "window": 60,
            "value": "7",
            "selector": None,
        }
    ]


async def test_metrics_are_in_discovery(cluster: Cluster) -> None:
    operator = worker()
    operator.metrics.objects("minutes", of=Recipe, function=lambda recipe: recipe.spec.minutes)
    operator.metrics.objects("load", of="v1/Node", function=lambda node: 1)
    operator.metrics.external("messages", lambda: 1)
    operator.metrics.external("kafka_*", lambda: 1)
    await cluster.run(operator)
    groups = {group["name"]: group for group in (await get(cluster.client, "/apis"))["groups"]}
    custom, external = groups["custom.metrics.k8s.io"], groups["external.metrics.k8s.io"]
    assert [version["version"] for version in custom["versions"]] == ["v1beta2", "v1beta1"]
    assert external["preferredVersion"]["version"] == "v1beta1"
    rows = (await get(cluster.client, CUSTOM))["resources"]
    assert [(row["name"], row["namespaced"], row["kind"], row["verbs"]) for row in rows] == [
        ("pods/queue_depth", True, "MetricValueList", ["get"]),
        ("recipes.kitchen.example.com/minutes", True, "MetricValueList", ["get"]),
        ("nodes/load", False, "MetricValueList", ["get"]),
    ]
    rows = (await get(cluster.client, EXTERNAL))["resources"]
    assert [(row["name"], row["kind"]) for row in rows] == [("messages", "ExternalMetricValueList")]


async def test_a_label_selector_chooses_pods(cluster: Cluster) -> None:
    await make_pods(cluster, "a", "b", app="mail", tier="back")
    await make_pods(cluster, "c", app="web")
    await make_pods(cluster, "d", app="mail", namespace="kube-system")
    await cluster.run(worker(a=1, b=2, c=3, d=4))
    chosen = {"app=mail": {"a", "b"}, "app=mail,tier!=back": set(), "app in (mail,web)": {"a", "b", "c"}}
    for text, names in chosen.items():
        assert set(await values(cluster, f"{PODS}/*/queue_depth", labelSelector=text)) == names
    assert await error(cluster, f"{PODS}/*/queue_depth", labelSelector="a=b=c")


async def test_series_of_one_pod_are_chosen_by_labels_and_added_up(cluster: Cluster) -> None:
    await make_pods(cluster, "a")
    series = [Sample(3, {"queue": "mail"}), Sample("500m", {"queue": "print"}), Sample(1, {"queue": "print"})]
    await cluster.run(worker(a=series))
    path = f"{PODS}/*/queue_depth"
    assert await values(cluster, path) == {"a": "4500m"}
    assert await values(cluster, path, metricLabelSelector="queue=print") == {"a": "1500m"}
    assert await values(cluster, path, metricLabelSelector="queue=fax") == {}


async def test_a_function_of_all_pods_is_called_once(cluster: Cluster) -> None:
    await make_pods(cluster, "a", "b")
    operator, calls = Operator("worker"), list[tuple[int, MetricQuery]]()

    @operator.metrics.pods("queue_depth")
    def queue_depth(pods: list[Object], query: MetricQuery) -> dict[str, float]:
        calls.append((len(pods), query))
        return {pod["metadata"]["name"]: 2.0 for pod in pods} | {"another": 1.0}

    await cluster.run(operator)
    assert await values(cluster, f"{PODS}/*/queue_depth", metricLabelSelector="") == {"a": "2", "b": "2"}
    ((count, query),) = calls
    assert (count, query.name, query.namespace, query.labels) == (2, "queue_depth", "default", {})


async def test_objects_of_any_kind_have_metrics(cluster: Cluster) -> None:
    operator = Operator("worker", kinds=[Recipe])
    operator.metrics.objects("minutes", of=Recipe, function=lambda recipe: recipe.spec.minutes)
    operator.metrics.objects("pods_made", of="v1/Namespace", function=lambda namespace: 12)
    operator.metrics.objects("load", of="v1/Node", function=lambda node: Decimal("0.25"))
    await cluster.run(operator)
    await cluster.client.create(recipe("soup", minutes=20))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await cluster.client.create(node)
    await cluster.settle()
    path = f"{CUSTOM}/namespaces/default/recipes.kitchen.example.com"
    assert await values(cluster, f"{path}/soup/minutes") == {"soup": "20"}
    assert await values(cluster, f"{CUSTOM}/namespaces/default/metrics/pods_made") == {"default": "12"}
    assert len(await values(cluster, f"{CUSTOM}/namespaces/*/metrics/pods_made")) > 3
    assert await values(cluster, f"{CUSTOM}/nodes/n1/load") == {"n1": "250m"}


async def test_external_metrics_belong_to_no_object(cluster: Cluster) -> None:
    operator = Operator("worker")

    @operator.metrics.external("messages")
    async def messages(query: MetricQuery) -> Iterable[Sample]:
        return [Sample(5, {"queue": "mail", "in": query.namespace}), Sample(6, {"queue": "print"})]

    await cluster.run(operator)
    obj = await get(cluster.client, f"{EXTERNAL}/namespaces/default/messages", labelSelector="queue=mail")
    assert (obj["kind"], obj["apiVersion"]) == ("ExternalMetricValueList", "external.metrics.k8s.io/v1beta1")
    (item,) = obj["items"]
    assert (item["metricName"], item["value"]) == ("messages", "5")
    assert item["metricLabels"] == {"queue": "mail", "in": "default"}
    obj = await get(cluster.client, f"{EXTERNAL}/namespaces/default/messages")
    assert [item["value"] for item in obj["items"]] == ["5", "6"]


async def test_a_name_wins_over_a_prefix_and_a_long_prefix_over_a_short_one(cluster: Cluster) -> None:
    operator = Operator("worker")
    for pattern, value in (("kafka_*", 1), ("kafka_lag_*", 2), ("kafka_lag_max", 3)):
        operator.metrics.external(pattern, lambda query, value=value: Sample(value, {"asked": query.name}))
    await cluster.run(operator)
    for name, expected in (("kafka_rate", "1"), ("kafka_lag_min", "2"), ("kafka_lag_max", "3")):
        (item,) = (await get(cluster.client, f"{EXTERNAL}/namespaces/default/{name}"))["items"]
        assert (item["value"], item["metricLabels"]) == (expected, {"asked": name})


async def test_an_unknown_metric_or_object_is_not_found(cluster: Cluster) -> None:
    await make_pods(cluster, "a", "b")
    await cluster.run(worker(a=1))
    start = "the server could not find the metric"
    assert await error(cluster, f"{PODS}/*/other") == (404, f"{start} other for pods")
    assert await error(cluster, f"{PODS}/b/queue_depth") == (404, f"{start} queue_depth for pods b")
    missing = await error(cluster, f"{PODS}/absent/queue_depth", metricLabelSelector="a=b")
    assert missing == (404, f"{start} queue_depth for pods absent with selector a=b")


@pytest.mark.parametrize("bad", [math.nan, math.inf, "12 MB", True, "many"], ids=repr)
async def test_a_value_that_is_none_is_left_out(cluster: Cluster, bad: Any) -> None:
    await make_pods(cluster, "a", "b")
    await cluster.run(worker(a=bad, b=2))
    assert await values(cluster, f"{PODS}/*/queue_depth") == {"b": "2"}


async def test_an_error_for_one_pod_spares_the_others(cluster: Cluster) -> None:
    await make_pods(cluster, "a", "b")
    operator, depths = Operator("worker"), {"b": 2}
    operator.metrics.pods("queue_depth", lambda pod: depths[pod["metadata"]["name"]])
    await cluster.run(operator)
    assert await values(cluster, f"{PODS}/*/queue_depth") == {"b": "2"}
    depths.clear()
    code, message = await error(cluster, f"{PODS}/*/queue_depth")
    assert (code, "KeyError" in message) == (500, True)


@pytest.mark.parametrize("result", [{"a": 1}, object(), b"3"], ids=["dict", "object", "bytes"])
async def test_a_result_of_the_wrong_type_is_an_error_that_says_what_to_return(cluster: Cluster, result: Any) -> None:
    operator = Operator("worker")
    operator.metrics.external("messages", lambda: result)
    await cluster.run(operator)
    code, message = await error(cluster, f"{EXTERNAL}/namespaces/default/messages")
    assert (code, "return a number" in message) == (500, True)


async def test_a_function_that_hangs_is_ended_at_its_deadline(cluster: Cluster) -> None:
    operator, entered = Operator("worker"), asyncio.Event()

    @operator.metrics.external("messages", deadline=3)
    async def messages() -> float:
        entered.set()
        await asyncio.get_running_loop().create_future()
        return 1

    operator.metrics.external("others", lambda: 4)
    await cluster.run(operator)
    asking = asyncio.ensure_future(error(cluster, f"{EXTERNAL}/namespaces/default/messages"))
    await entered.wait()
    assert (await get(cluster.client, f"{EXTERNAL}/namespaces/default/others"))["items"][0]["value"] == "4"
    code, message = await asking
    assert (code, "messages returned no value within 3 s" in message) == (504, True)


async def test_values_are_cached_for_the_seconds_of_cache(cluster: Cluster) -> None:
    operator, calls = Operator("worker"), list[int]()

    def counted() -> int:
        calls.append(1)
        return len(calls)

    operator.metrics.external("fresh", counted)
    operator.metrics.external("cached", counted, cache=10)

    async def read(name: str) -> str:
        (item,) = (await get(cluster.client, f"{EXTERNAL}/namespaces/default/{name}"))["items"]
        return str(item["value"])

    await cluster.run(operator)
    assert [await read("fresh"), await read("fresh")] == ["1", "2"]
    assert [await read("cached"), await read("cached")] == ["3", "3"]
    await cluster.clock.advance(11)
    assert await read("cached") == "4"


async def test_requests_at_the_same_time_share_one_call(cluster: Cluster) -> None:
    operator, calls, go = Operator("worker"), list[int](), asyncio.Event()

    @operator.metrics.external("messages")
    async def messages() -> int:
        calls.append(1)
        await go.wait()
        return 1

    await cluster.run(operator)
    path = f"{EXTERNAL}/namespaces/default/messages"
    asking = [asyncio.ensure_future(get(cluster.client, path)) for _ in range(5)]
    while not calls:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    go.set()
    await asyncio.gather(*asking)
    assert len(calls) < 5


async def test_rbac_decides_who_reads_metrics(cluster: Cluster) -> None:
    await make_pods(cluster, "a")
    await cluster.run(worker(a=1))
    path = f"{PODS}/*/queue_depth"
    jane = cluster.client_as("jane")
    with pytest.raises(
        Exception, match=r'cannot get resource "pods/queue_depth" in API group "custom\.metrics\.k8s\.io"'
    ):
        await get(jane, path)
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["custom.metrics.k8s.io"], "resources": ["pods/queue_depth"], "verbs": ["get"]}
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "depths"}, "rules": [rule]}
    await cluster.client.create(role)
    binding = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "depths"}}
    binding |= {"roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "depths"}}
    await cluster.client.create(binding | {"subjects": [{"apiGroup": rbac, "kind": "User", "name": "jane"}]})
    assert (await get(jane, path))["items"][0]["value"] == "1"


def _declare(declare: Callable[[Operator], Any]) -> str:
    with pytest.raises((TypeError, ValueError)) as refused:
        declare(Operator("worker"))
    return str(refused.value)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda operator: operator.metrics.pods("queue depth", lambda pod: 1), "cannot be a metric's name"),
        (lambda operator: operator.metrics.pods("a", lambda pod: 1, deadline=0), "deadline more than 0"),
        (lambda operator: operator.metrics.external("a", lambda operator, two: 1), "requires 2 arguments"),
        (
            lambda operator: operator.metrics.objects("a", of="Nothing at all", function=lambda obj: 1),
            "metrics.objects",
        ),
        (
            lambda operator: (operator.metrics.external("a", lambda: 1), operator.metrics.external("a", lambda: 1)),
            "use one function",
        ),
    ],
    ids=["name", "deadline", "parameters", "kind", "twice"],
)
def test_a_wrong_declaration_is_refused_where_it_is_written(declare: Callable[[Operator], Any], message: str) -> None:
    assert message in _declare(declare)
