"""metrics.k8s.io on simulated nodes: kubectl top, and an autoscaler that follows the usage of its pods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.testing.cluster import Cluster

METRICS = "/apis/metrics.k8s.io/v1beta1"
DEPLOYMENT = "apps/v1/Deployment"


def deployment(replicas: int, **annotations: str) -> Object:
    requests = {"cpu": "1", "memory": "256Mi"}
    containers = [
        {"name": "main", "image": "example.com/web:1", "resources": {"requests": requests}},
        {"name": "proxy", "image": "example.com/proxy:1", "resources": {"requests": {"cpu": "500m"}}},
    ]
    usage = {f"kwok.x-k8s.io/usage-{name}": value for name, value in annotations.items()}
    template = {"metadata": {"labels": {"app": "web"}, "annotations": usage}, "spec": {"containers": containers}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    }


async def read(cluster: Cluster, path: str) -> Any:
    return orjson.loads(await cluster.client.read(f"{METRICS}{path}"))


async def test_pods_and_nodes_show_the_annotated_usage(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(deployment(2, cpu="250m", memory="50%"))
    await cluster.settle()
    metrics = await read(cluster, "/namespaces/default/pods?labelSelector=app%3Dweb")
    assert (metrics["kind"], len(metrics["items"])) == ("PodMetricsList", 2)
    (pod, _) = metrics["items"]
    assert pod["containers"] == [
        {"name": "main", "usage": {"cpu": "250m", "memory": "128Mi"}},
        {"name": "proxy", "usage": {"cpu": "250m", "memory": "0"}},
    ]
    assert (await read(cluster, f"/namespaces/default/pods/{pod['metadata']['name']}"))["containers"]
    assert (await read(cluster, "/nodes/node-0"))["usage"] == {"cpu": "1", "memory": "256Mi"}
    assert (await read(cluster, "/pods?labelSelector=app%3Dother"))["items"] == []
    with pytest.raises(errors.ApiError, match=r'pods.metrics.k8s.io "default/no" not found'):
        await read(cluster, "/namespaces/default/pods/no")


async def test_both_versions_of_the_api_show_the_same_usage(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(deployment(1, cpu="250m"))
    await cluster.settle()
    group = orjson.loads(await cluster.client.read("/apis/metrics.k8s.io"))
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
    usages = []
    for version in ("v1", "v1beta1"):
        pods = orjson.loads(await cluster.client.read(f"/apis/metrics.k8s.io/{version}/pods"))
        node = orjson.loads(await cluster.client.read(f"/apis/metrics.k8s.io/{version}/nodes/node-0"))
        kinds = {(result["apiVersion"], result["kind"]) for result in (pods, *pods["items"], node)}
        assert kinds == {
            (f"metrics.k8s.io/{version}", kind) for kind in ("PodMetricsList", "PodMetrics", "NodeMetrics")
        }
        usages.append((pods["items"][0]["containers"], node["usage"]))
    assert usages[0] == usages[1]


async def test_a_server_for_one_version_takes_the_place_of_both(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.settle()
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "service": {"namespace": "kube-system", "name": "metrics-server"},
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
    }
    api_service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": spec}
    name = "v1beta1.metrics.k8s.io"
    await cluster.client.create({**api_service, "metadata": {"name": name}})
    await cluster.settle()
    with pytest.raises(errors.ApiError, match=r"404|could not find"):
        await cluster.client.read("/apis/metrics.k8s.io/v1/nodes")
    groups = orjson.loads(await cluster.client.read("/apis"))["groups"]
    (group,) = (group for group in groups if group["name"] == "metrics.k8s.io")
    assert [version["version"] for version in group["versions"]] == ["v1beta1"]
    await cluster.client.delete("apiregistration.k8s.io/v1/APIService", name)
    await cluster.settle()
    for version in ("v1", "v1beta1"):
        assert await cluster.client.read(f"/apis/metrics.k8s.io/{version}/nodes")


async def test_an_amount_that_cannot_be_read_counts_as_idle(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(deployment(1, cpu="much", memory="half%"))
    await cluster.settle()
    (pod,) = (await read(cluster, "/pods"))["items"]
    assert pod["containers"][0]["usage"] == {"cpu": "1m", "memory": "1Mi"}


async def test_the_api_is_not_served_without_nodes_that_know_their_usage(cluster: Cluster) -> None:
    with pytest.raises(errors.ApiError, match=r"404|could not find"):
        await read(cluster, "/nodes")


async def test_an_autoscaler_follows_the_usage_of_simulated_pods(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(deployment(2, cpu="900m"))
    await cluster.settle()
    await cluster.advance(600)
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    target = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}
    await cluster.client.create(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "scaleTargetRef": reference,
                "maxReplicas": 10,
                "metrics": [{"type": "Resource", "resource": target}],
            },
        }
    )
    await cluster.settle()
    assert (await cluster.client.get(DEPLOYMENT, "web", namespace="default"))["spec"]["replicas"] == 4


async def test_kubectl_top_shows_nodes_pods_and_containers(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(deployment(1, cpu="250m", memory="64Mi"))
    await cluster.settle()
    kubectl = Kubectl(kubectl_binary(), await cluster.listen(tmp_path), tmp_path, "default")
    nodes = (await asyncio.to_thread(kubectl, "top nodes --no-headers")).split()
    assert nodes == ["node-0", "500m", "1%", "128Mi", "0%"]
    pods = (await asyncio.to_thread(kubectl, "top pods --no-headers")).split()
    assert pods[1:] == ["500m", "128Mi"]
    rows = (await asyncio.to_thread(kubectl, "top pods --containers --no-headers")).splitlines()
    assert [row.split()[1:] for row in rows] == [["main", "250m", "64Mi"], ["proxy", "250m", "64Mi"]]
    made = await asyncio.to_thread(kubectl, "autoscale deployment web --max 5 --cpu-percent 50")
    assert made == "horizontalpodautoscaler.autoscaling/web autoscaled\n"
