"""The metrics of single controllers, on the server's page and under the names of Kubernetes."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pinnace.controllers.metric_names import (
    CRON_JOB_SKEW,
    ENDPOINT_SLICE_SYNCS,
    JOB_PODS_FINISHED,
    JOB_SYNC_SECONDS,
    JOB_SYNCS,
    JOB_TRACKED_PODS,
    JOBS_FINISHED,
    TAINT_DELETIONS,
    TTL_DELETION_SECONDS,
)
from pinnace.model.objects import Object
from pinnace.testing.cluster import Cluster

Samples = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture
async def busy(cluster: Cluster) -> Cluster:
    """A Service, a CronJob whose Job ends and expires, and a pod on a node that is tainted."""
    await cluster.add_nodes(1)
    containers = [{"name": "main", "image": "worker", "command": ["true"]}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    job = {"spec": {"ttlSecondsAfterFinished": 10, "template": template}}
    await make(cluster, "batch/v1", "CronJob", {"schedule": "* * * * *", "jobTemplate": job})
    await make(cluster, "v1", "Service", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await make(cluster, "v1", "Pod", {"nodeName": "node-0", "containers": [{"name": "main", "image": "web"}]})
    await cluster.advance(90)
    taints = [{"key": "broken", "effect": "NoExecute"}]
    await cluster.client.patch("v1/Node", "node-0", {"spec": {"taints": taints}})
    await cluster.advance(1)
    return cluster


async def make(cluster: Cluster, version: str, kind: str, spec: Object) -> None:
    metadata = {"name": "one", "namespace": "default"}
    await cluster.client.create({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


async def test_controllers_count_under_kubernetes_names(busy: Cluster) -> None:
    page = (await busy.client.read("/metrics")).decode()
    results: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            results.setdefault(sample.name, []).append((sample.labels, sample.value))
    mode = {"completion_mode": "NonIndexed"}
    assert ({**mode, "result": "succeeded", "reason": "CompletionsReached"}, 1.0) in results[JOBS_FINISHED]
    syncs = [{**mode, "result": "success", "action": action} for action in ("pods_created", "tracking")]
    assert [labels for labels, value in results[JOB_SYNCS] if value] == syncs
    assert [labels for labels, _ in results[f"{JOB_SYNC_SECONDS}_count"]] == syncs
    assert ({**mode, "result": "succeeded"}, 1.0) in results[JOB_PODS_FINISHED]
    assert results[JOB_TRACKED_PODS] == [({"event": "add"}, 1.0), ({"event": "delete"}, 1.0)]
    assert results[f"{CRON_JOB_SKEW}_count"] == [({}, 1.0)]
    assert results[f"{TTL_DELETION_SECONDS}_count"] == [({}, 1.0)]
    assert results[TAINT_DELETIONS] == [({}, 1.0)]
    assert f'{ENDPOINT_SLICE_SYNCS}{{result="success"}} ' in page  # The parser adds _total to such a name.
