"""The Grafana dashboard shows metrics that /metrics of a server has: its own, its controllers' and its scheduler's."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.testing.both_ways import cluster

from pinnace.testing.cluster import Cluster

__all__ = ["cluster"]

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
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


async def test_every_metric_of_the_dashboard_exists(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web"}]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    await cluster.client.create(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    )
    await cluster.client.create(AUTOSCALER)
    await cluster.advance(15)
    text = (await cluster.client.read("/metrics", accept="*/*")).decode()
    typed = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    missing = [
        name
        for name in named_metrics()
        if name not in typed and typed.get(re.sub(r"_(bucket|sum|count)$", "", name)) != "histogram"
    ]
    assert missing == []
    assert len(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) == len(typed)  # No name has two blocks.
    assert 'workqueue_adds_total{name="deployment' in text


def test_panels_have_names_and_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
