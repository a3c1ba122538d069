"""Metrics from Prometheus and from JSON over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from tests.sdk.metrics.worlds import CUSTOM, EXTERNAL, error, get, make_pods, values

from pinnace.model.selectors import label_selector
from pinnace.sdk import HttpJson, MetricQuery, Operator, Prometheus
from pinnace.sdk.metrics.http_json import find_value
from pinnace.sdk.metrics.prometheus import matchers_of
from pinnace.testing.cluster import Cluster

PODS = f"{CUSTOM}/namespaces/default/pods"


class Service:
    """An HTTP service that answers every request with the same JSON."""

    def __init__(self) -> None:
        self.answer: Any = {}
        self.status = 200
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, dict(request.query)))
        if isinstance(self.answer, str):
            return web.Response(text=self.answer)
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    served, application = Service(), web.Application()
    application.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    await runner.cleanup()


def vector(*series: tuple[dict[str, str], str]) -> Any:
    result = [{"metric": labels, "value": [1767225600, value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


async def test_one_query_of_prometheus_gives_the_values_of_all_pods(cluster: Cluster, service: Service) -> None:
    await make_pods(cluster, "a", "b.c", app="web")
    operator = Operator("prometheus")
    query = Prometheus(service.url).query("sum by (pod) (rate(hits{$matchers}[2m]))", window=120)
    operator.metrics.pods("rps", query)
    await cluster.run(operator)
    service.answer = vector(({"pod": "a"}, "1.5"), ({"pod": "b.c"}, "NaN"), ({"pod": "other"}, "9"))
    obj = await get(cluster.client, f"{PODS}/*/rps", metricLabelSelector="code in (500,502),path=shop")
    (item,) = obj["items"]
    assert (item["describedObject"]["name"], item["value"], item["windowSeconds"]) == ("a", "1500m", 120)
    assert item["timestamp"] == "2026-01-01T00:00:00Z"
    ((path, request),) = service.requests
    matchers = r'namespace="default",pod=~"a|b\\.c",code=~"500|502",path="shop"'
    assert (path, request["query"]) == ("/api/v1/query", f"sum by (pod) (rate(hits{{{matchers}}}[2m]))")


async def test_prometheus_serves_external_metrics(cluster: Cluster, service: Service) -> None:
    operator = Operator("prometheus")
    operator.metrics.external("lag", Prometheus(service.url).query("max by (topic) (lag{$matchers})"))
    await cluster.run(operator)
    service.answer = vector(({"topic": "mail"}, "7"))
    obj = await get(cluster.client, f"{EXTERNAL}/namespaces/default/lag", labelSelector="topic=mail")
    assert [(item["metricLabels"], item["value"]) for item in obj["items"]] == [({"topic": "mail"}, "7")]
    assert service.requests[-1][1]["query"] == 'max by (topic) (lag{topic="mail"})'
    service.answer = {"status": "success", "data": {"resultType": "scalar", "result": [1, "3"]}}
    obj = await get(cluster.client, f"{EXTERNAL}/namespaces/default/lag")
    assert [item["value"] for item in obj["items"]] == ["3"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"status": "error", "error": "parse error at char 3"}, "parse error at char 3"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "has a matrix as its result"),
        ({"status": "success", "data": {}}, "no result of a query"),
        ([1], "answered 200"),
        ("<html>", "no JSON"),
    ],
    ids=["error", "matrix", "empty", "list", "html"],
)
async def test_a_bad_answer_of_prometheus_is_the_message(
    cluster: Cluster, service: Service, answer: Any, message: str
) -> None:
    operator = Operator("prometheus")
    operator.metrics.external("lag", Prometheus(service.url).query("lag"))
    await cluster.run(operator)
    service.answer = answer
    code, result = await error(cluster, f"{EXTERNAL}/namespaces/default/lag")
    assert (code, message in result) == (500, True), result


@pytest.mark.parametrize(
    ("selector", "matchers"),
    [
        ("a=b", ['a="b"']),
        ("a!=b,c/d=e", ['a!="b"', 'c_d="e"']),
        ("a in (x.y,z)", [r'a=~"x\\.y|z"']),
        ("a notin (x)", ['a!~"x"']),
        ("a,!b", ['a!=""', 'b=""']),
    ],
)
def test_label_selectors_become_matchers(selector: str, matchers: list[str]) -> None:
    assert sorted(matchers_of(label_selector(selector))) == sorted(matchers)


async def test_rows_of_json_are_samples_with_labels(cluster: Cluster, service: Service) -> None:
    operator = Operator("json")
    source = HttpJson(f"{service.url}/$namespace/stats", rows="queues", value="size.now", labels={"queue": "name"})
    operator.metrics.external("messages", source)
    await cluster.run(operator)
    rows = [{"name": "mail", "size": {"now": 4}}, {"name": "print", "size": {"now": 5}}, {"name": "fax"}]
    service.answer = {"queues": rows}
    obj = await get(cluster.client, f"{EXTERNAL}/namespaces/default/messages", labelSelector="queue=print")
    assert [item["value"] for item in obj["items"]] == ["5"]
    assert service.requests == [("/default/stats", {})]


async def test_each_pod_is_asked_at_its_own_address(cluster: Cluster, service: Service) -> None:
    await make_pods(cluster, "a", "b")
    pod = await cluster.client.get("v1/Pod", "a", namespace="default")
    pod["status"] = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    await cluster.client.update_status(pod)
    operator = Operator("json")
    url = service.url.replace("127.0.0.1", "$ip")
    operator.metrics.pods("jobs", HttpJson(f"{url}/$name/$metric", value="waiting.0"))
    await cluster.run(operator)
    service.answer = {"waiting": [12]}
    assert await values(cluster, f"{PODS}/*/jobs") == {"a": "12"}
    assert service.requests == [("/a/jobs", {})]


@pytest.mark.parametrize(("status", "rows", "message"), [(500, None, "answered 500"), (200, "x", "x is no list")])
async def test_a_bad_answer_of_json_is_the_message(service: Service, status: int, rows: str, message: str) -> None:
    service.status = status
    source = HttpJson(service.url, value="a", rows=rows)
    with pytest.raises(Exception, match=message):
        await source(MetricQuery("m", "default", label_selector("")))
    await source.aclose()


async def test_a_service_that_is_down_is_named() -> None:
    source = HttpJson("http://127.0.0.1:1/stats", value="a")
    with pytest.raises(Exception, match=r"http://127\.0\.0\.1:1/stats cannot be reached"):
        await source(MetricQuery("m", "default", label_selector("")))
    await source.aclose()


@pytest.mark.parametrize(
    ("path", "value"), [("a.b", 1), ("c.1", 3), ("c.7", None), ("a.x.y", None), ("c.x", None), ("", {"a": 0})]
)
def test_paths_lead_to_values(path: str, value: Any) -> None:
    result = {"a": {"b": 1}, "c": [2, 3]} if path else {"a": 0}
    assert find_value(result, path) == value
