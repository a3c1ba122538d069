"""A set of many pods is not read again for each change of a pod: changes wait for each other for milliseconds."""

from __future__ import annotations

import asyncio

import pytest
from tests.controllers.batch.jobs import JOB, job
from tests.controllers.workloads.objects import REPLICA_SET, workload

from pinnace.controllers.workloads.replica_sets import batch_seconds
from pinnace.model.objects import Key, Object
from pinnace.process.clock import to_rfc3339
from pinnace.testing.cluster import Cluster

POD = "v1/Pod"
PODS = 150
"""More than are reconciled one by one."""


async def report_each(cluster: Cluster, status: Object) -> None:
    """Write a status to every pod, and let the controllers hear of each before the next."""
    for pod in await cluster.client.list(POD, namespace="default"):
        name = pod["metadata"]["name"]
        await cluster.client.patch(POD, name, {"status": status}, namespace="default", subresource="status")
        for _ in range(5):
            await asyncio.sleep(0)


def reconciles(cluster: Cluster, controller: str, name: str) -> int:
    (result,) = [running for running in cluster.managers[0].controllers if running.name == controller]
    return len(result.why(Key("default", name)))


async def test_a_large_replica_set_counts_many_changes_at_once(cluster: Cluster) -> None:
    await cluster.client.create(workload(REPLICA_SET, replicas=PODS))
    await cluster.settle()
    before = reconciles(cluster, "replicaset", "web")
    now = to_rfc3339(cluster.clock.now())
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
    await report_each(cluster, {"phase": "Running", "conditions": ready})
    await cluster.advance(1)
    status = (await cluster.client.get(REPLICA_SET, "web", namespace="default"))["status"]
    assert (status["replicas"], status["readyReplicas"]) == (PODS, PODS)
    assert 1 <= reconciles(cluster, "replicaset", "web") - before <= 10


async def test_a_very_parallel_job_counts_many_pods_at_once(cluster: Cluster) -> None:
    await cluster.client.create(job(parallelism=PODS, completions=PODS))
    await cluster.settle()
    await cluster.advance(1)
    before = reconciles(cluster, "job", "work")
    await report_each(cluster, {"phase": "Succeeded"})
    await cluster.advance(2)
    status = (await cluster.client.get(JOB, "work", namespace="default"))["status"]
    assert status["succeeded"] == PODS
    assert "completionTime" in status
    assert 1 <= reconciles(cluster, "job", "work") - before <= 10


@pytest.mark.parametrize(
    ("size", "seconds"),
    [(1, 0.0), (100, 0.0), (200, 0.0025), (2000, 0.25), (4000, 1.0), (100_000, 1.0)],
)
def test_a_change_waits_longer_in_a_larger_set(size: int, seconds: float) -> None:
    assert batch_seconds(size) == pytest.approx(seconds)
