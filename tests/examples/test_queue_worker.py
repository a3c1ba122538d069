"""The queue worker of the examples: its replicas follow the length of a queue, in process, over HTTP, on real pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.network.services.conftest import run_pod_cluster

from pinnace.controllers.autoscaling import horizontal
from pinnace.reconcile.conditions import condition
from pinnace.sdk.command.operator_files import operator_in
from pinnace.testing.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "14-queue-worker"
AUTOSCALER = "autoscaling/v2/HorizontalPodAutoscaler"


class QueueService:
    """The queues, whose lengths the test sets."""

    def __init__(self) -> None:
        self.lengths: dict[str, Any] = {"mail": 3}

    async def list(self, request: web.Request) -> web.Response:
        return web.json_response([{"name": name, "messages": length} for name, length in self.lengths.items()])


@pytest.fixture
async def queues(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[QueueService]:
    service, app = QueueService(), web.Application()
    app.router.add_get("/queues", service.list)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("QUEUE_URL", f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield service
    await runner.cleanup()


@pytest.fixture
async def worker(cluster: Cluster, queues: QueueService) -> Cluster:
    await cluster.add_nodes(2)
    await cluster.run(operator_in(str(EXAMPLE / "queue_worker.py")))
    for manifest in yaml.safe_load_all((EXAMPLE / "worker.yaml").read_text()):
        await cluster.client.create(manifest)
    await cluster.advance(15)
    return cluster


async def replicas(cluster: Cluster) -> int:
    count: int = (await cluster.client.get("apps/v1/Deployment", "worker"))["spec"]["replicas"]
    return count


async def active(cluster: Cluster) -> tuple[str, str]:
    scaling = condition(await cluster.client.get(AUTOSCALER, "worker"), "ScalingActive")
    assert scaling is not None
    return scaling["status"], scaling["message"]


async def test_the_replicas_follow_the_queue(worker: Cluster, queues: QueueService) -> None:
    queues.lengths["orders"] = 75
    await worker.advance(15)
    assert await replicas(worker) == 8
    pods = await worker.client.list("v1/Pod", labels="app=worker")
    assert sum(pod["status"].get("phase") == "Running" for pod in pods) == 8
    queues.lengths["orders"] = 1000
    await worker.advance(15)
    assert await replicas(worker) == 12
    queues.lengths["orders"] = 0
    await worker.advance(100)
    assert await replicas(worker) == 1


async def test_a_queue_that_vanishes_changes_nothing(worker: Cluster, queues: QueueService) -> None:
    queues.lengths["orders"] = 40
    await worker.advance(15)
    assert await replicas(worker) == 4
    for gone in ({}, {"orders": "many"}, {"orders": None}):
        queues.lengths = gone
        await worker.advance(90)
        status, message = await active(worker)
        assert (status, await replicas(worker)) == ("False", 4)
        assert "the server could not find the metric queue_length for deployments.apps worker" in message or (
            "ValueError" in message
        )
    queues.lengths = {"orders": 20}
    await worker.advance(90)
    assert (await active(worker))[0] == "True"
    assert await replicas(worker) == 2


async def test_the_replicas_follow_the_queue_on_pods_that_run(
    queues: QueueService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horizontal, "SYNC_PERIOD", 0.2)
    async with run_pod_cluster() as pods, operator_in(str(EXAMPLE / "queue_worker.py")).running(pods.client):
        for manifest in yaml.safe_load_all((EXAMPLE / "worker.yaml").read_text()):
            if manifest["kind"] == "HorizontalPodAutoscaler":
                manifest["spec"]["behavior"]["scaleDown"] = {"stabilizationWindowSeconds": 0}
            else:
                manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
            await pods.client.create({**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}})

        async def count_running() -> tuple[int, int]:
            """The pods, and the containers among them in which a process runs."""
            listed = await pods.client.list("v1/Pod", namespace="default", labels="app=worker")
            states = [
                container_status for pod in listed for container_status in pod["status"].get("containerStatuses") or ()
            ]
            return len(listed), sum("running" in state["state"] for state in states)

        await pods.until(count_running, (1, 1))
        for length, expected in ((35, 4), (12, 2), (0, 1)):
            queues.lengths["orders"] = length
            await pods.until(count_running, (expected, expected))
