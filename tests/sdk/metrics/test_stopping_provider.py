"""A metrics server that stops while the API server does not answer: it ends all the same, and says what is left."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pinnace.sdk import Operator
from pinnace.testing.cluster import Cluster

PROVIDER = "metrics.pinnace.dev/v1alpha1/MetricsProvider"


async def test_a_provider_ends_although_the_api_server_is_silent(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator("depths")
    operator.metrics.external("queue_depth", lambda query: 30)
    is_running, stop = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with operator.running(cluster.client):
            is_running.set()
            await stop.wait()

    task = asyncio.create_task(work())
    async with asyncio.timeout(60):
        await is_running.wait()
        cluster.faults.latency(3600, verb="delete", resource="metricsproviders")
        stop.set()
        seconds = 0
        with caplog.at_level(logging.WARNING):
            while not task.done():
                await asyncio.sleep(0.02)
                await cluster.clock.advance(1)
                seconds += 1
        await task
    assert seconds < 3600
    left = [line for line in caplog.messages if "within 15 s of the stop" in line]
    assert left == ["MetricsProvider depths is not undone: the API server did not answer within 15 s of the stop"]
    cluster.faults.lift()
    assert await cluster.client.get_or_none(PROVIDER, "depths") is not None, "the next run takes it over"
