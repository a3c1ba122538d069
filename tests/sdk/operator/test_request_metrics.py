"""How many requests an operator has made, as dashboards for controller-runtime ask for it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.sdk.websites import website, website_operator

from pinnace.model import errors
from pinnace.testing.cluster import Cluster


async def test_requests_are_counted_by_status_method_and_host(cluster: Cluster) -> None:
    manager = await cluster.run(website_operator())
    await cluster.client.create(website())
    await cluster.settle()
    with pytest.raises(errors.NotFound):
        await cluster.client.get("v1/ConfigMap", "missing")
    families = {family.name: family for family in text_string_to_metric_families(manager.metrics.text())}
    requests = families["rest_client_requests"]
    assert requests.type == "counter"
    counted = {(sample.labels["method"], sample.labels["code"]): sample.value for sample in requests.samples}
    assert counted["POST", "201"] >= 1  # The website.
    assert counted["PATCH", "201"] >= 2  # Applied objects.
    assert counted["GET", "200"] >= 3
    assert counted["GET", "404"] >= 1
    assert {sample.labels["host"] for sample in requests.samples} == {cluster.client.host}
    assert families["workqueue_retries"].samples[0].value == 0
