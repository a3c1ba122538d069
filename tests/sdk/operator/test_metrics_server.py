"""The health checks and metrics of an operator."""

from __future__ import annotations

import aiohttp
from tests.sdk.websites import website, website_operator

from pinnace.sdk.operator.metrics_server import metrics_listening
from pinnace.testing.cluster import Cluster


async def test_metrics_and_health_are_served(cluster: Cluster) -> None:
    manager = await cluster.run(website_operator())
    await cluster.client.create(website())
    await cluster.settle()
    async with metrics_listening(manager, 0, host="127.0.0.1") as port, aiohttp.ClientSession() as session:
        for page in ("healthz", "readyz"):
            async with session.get(f"http://127.0.0.1:{port}/{page}") as answer:
                assert (answer.status, await answer.text()) == (200, "ok")
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            text = await answer.text()
    assert 'controller_runtime_reconcile_total{controller="website-controller-website",result="success"}' in text
