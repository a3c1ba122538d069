"""The Grafana dashboard shows metrics that /metrics of a server has: its own, its controllers' and its scheduler's."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.testing.both_ways import cluster

from pinnace.node.agent.metrics.kubelet_metrics import (
    OPERATION_ERRORS,
    OPERATION_SECONDS,
    KubeletMetrics,
    MeteredRuntime,
)
from pinnace.node.agent.metrics.pod_metrics import EVICTIONS, PULL_SECONDS, PodMetrics
from pinnace.node.runtime.in_memory import InMemoryRuntime
from pinnace.reconcile.metrics import Metrics
from pinnace.testing.clock import ManualClock
from pinnace.testing.cluster import Cluster

__all__ = ["cluster"]

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
NOT_HERE = {"root_ca_cert_publisher_sync_total"}
"""A test cluster has no certificate to publish; tests/cluster/test_metrics_of_kubernetes.py reads a whole server."""
AUTOSCALER = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 3,
        "metrics": [
            {"type": "External", "external": {"metric": {"name": "x"}, "target": {"type": "Value", "value": "1"}}}
        ],
    },
}


def named_metrics() -> set[str]:
    """The metrics in the queries of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(queries) > 20
    return {name for query in queries for name in re.findall(r"\b(\w+)\{", query)}


async def node_page(directory: Path) -> str:
    """The page /metrics of a node on which each metric of pods was counted once."""
    metrics, clock = Metrics(), ManualClock()
    runtime = MeteredRuntime(InMemoryRuntime(directory, clock), metrics, clock)
    kubelet = KubeletMetrics(metrics, runtime, "node")
    for observed in (OPERATION_SECONDS, PULL_SECONDS):
        metrics.observe(observed, (), 1.0)
    for counted in (OPERATION_ERRORS, EVICTIONS):
        metrics.count(counted, ())
    PodMetrics(metrics, clock)
    return await kubelet.text()


async def test_every_metric_of_the_dashboard_exists(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.add_nodes(1)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web"}]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    await cluster.client.create(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    )
    await cluster.client.create(AUTOSCALER)
    worker = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "worker", "command": ["true"]}]}
    await cluster.client.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}, "spec": {"template": {"spec": worker}}}
    )
    await cluster.advance(30)
    page = (await cluster.client.read("/metrics", accept="*/*")).decode()
    assert "# TYPE kubelet_" not in page
    text = page + await node_page(tmp_path)
    typed = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    missing = [
        name
        for name in named_metrics() - NOT_HERE
        if name not in typed and typed.get(re.sub(r"_(bucket|sum|count)$", "", name)) != "histogram"
    ]
    assert missing == []
    own = re.findall(r"^# TYPE (\w+)", page, re.MULTILINE)
    assert len(own) == len(set(own))  # No name has two blocks.
    assert 'workqueue_adds_total{name="deployment' in text


def test_panels_have_names_and_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
