"""The usage of simulated pods from a recorded file: the time decides the row, and an autoscaler follows it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.metrics.test_resource_metrics import DEPLOYMENT, deployment, read

from pinnace.node.simulated.stages import InvalidUsage
from pinnace.node.simulated.usage_files import read_usage
from pinnace.testing.cluster import Cluster

LOAD = """time,pods,namespace,container,cpu,memory
0,app=web,,main,250m,64Mi
0,app=web,,proxy,50%,
60,app=web,,main,6/pods,1Gi/pods
60,app=other,elsewhere,,7,
"""


async def usages(cluster: Cluster) -> list[dict[str, Any]]:
    metrics = await read(cluster, "/namespaces/default/pods")
    return [{container["name"]: container["usage"] for container in pod["containers"]} for pod in metrics["items"]]


async def test_the_row_of_the_time_is_the_usage(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text(LOAD)
    await cluster.add_nodes(1, usage=tmp_path / "load.csv")
    await cluster.client.create(deployment(2, cpu="1"))
    await cluster.settle()
    first = {"main": {"cpu": "250m", "memory": "64Mi"}, "proxy": {"cpu": "250m", "memory": "1Mi"}}
    assert await usages(cluster) == [first, first]
    await cluster.advance(60)
    shared = {"main": {"cpu": "3", "memory": "512Mi"}, "proxy": {"cpu": "250m", "memory": "1Mi"}}
    assert await usages(cluster) == [shared, shared]
    assert (await read(cluster, "/nodes/node-0"))["usage"] == {"cpu": "6500m", "memory": "1026Mi"}


async def test_times_of_day_and_annotations_of_pods_without_a_row(cluster: Cluster, tmp_path: Path) -> None:
    later = (cluster.clock.now() + timedelta(seconds=30)).isoformat()
    (tmp_path / "load.csv").write_text(f"time,pods,cpu\n{later},app=web,300m\n")
    await cluster.add_nodes(1, usage=tmp_path / "load.csv")
    await cluster.client.create(deployment(1, cpu="20m", memory="2Mi"))
    await cluster.settle()
    assert (await usages(cluster))[0]["main"] == {"cpu": "20m", "memory": "2Mi"}
    await cluster.advance(30)
    assert (await usages(cluster))[0]["main"] == {"cpu": "300m", "memory": "1Mi"}


async def test_an_autoscaler_follows_a_recorded_load_that_its_pods_share(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("time,pods,container,cpu\n0,app=web,main,1/pods\n600,app=web,main,4/pods\n")
    await cluster.add_nodes(2, usage=tmp_path / "load.csv")
    await cluster.client.create(deployment(2))
    metric = {"name": "cpu", "container": "main", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 20,
        "metrics": [{"type": "ContainerResource", "containerResource": metric}],
    }
    metadata = {"name": "web", "namespace": "default"}
    await cluster.client.create(
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
    )
    await cluster.advance(599)
    assert (await cluster.client.get(DEPLOYMENT, "web"))["spec"]["replicas"] == 2
    await cluster.advance(120)
    assert (await cluster.client.get(DEPLOYMENT, "web"))["spec"]["replicas"] == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected a first line with time, pods and any of namespace, container, cpu, memory, found ''"),
        ("time,pods,gpu\n", r"found 'time,pods,gpu'"),
        ("time,pods,cpu\n", r"has no rows; write a time"),
        ("time,pods,cpu\nsoon,app=web,1\n", r"load.csv:2: expected seconds or a time such as .*, found 'soon'"),
        ("time,pods,cpu\n0,app=,=b,1\n", r"load.csv:2: more values than columns; quote a selector that has a comma"),
        ("time,pods,cpu\n0,a b,1\n", r"load.csv:2: pods is no label selector"),
        ("time,pods,cpu\n0,app=web,much\n", r"load.csv:2: expected cpu such as 250m, 80% or 12/pods, found 'much'"),
        ("time,pods,memory\n0,app=web,NaN\n", r"load.csv:2: expected memory such as"),
    ],
    ids=["empty", "column", "rows", "time", "comma", "selector", "cpu", "NaN"],
)
def test_a_bad_file_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(InvalidUsage, match=message):
        read_usage(path)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match=r"none.csv cannot be read: .*No such file"):
        read_usage(tmp_path / "none.csv")
