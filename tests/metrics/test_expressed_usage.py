"""The usage of simulated pods by KWOK's ResourceUsage and ClusterResourceUsage, from a file and as objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from tests.metrics.test_resource_metrics import deployment, read

from pinnace.model.objects import Object
from pinnace.node.simulated.kwok.usage import (
    UsageExpressions,
    as_variable,
    container_variable,
    load_usages,
    parse_usage,
)
from pinnace.node.simulated.stages import InvalidUsage
from pinnace.testing.clock import ManualClock
from pinnace.testing.cluster import Cluster

DEFINITIONS = Path(__file__).parents[2] / "docs" / "resource-usage-crds.yaml"
FROM_ANNOTATIONS = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterResourceUsage
metadata: {name: usage-from-annotation}
spec:
  usages:
  - usage:
      cpu:
        expression: |
          "kwok.x-k8s.io/usage-cpu" in pod.metadata.annotations
          ? Quantity(pod.metadata.annotations["kwok.x-k8s.io/usage-cpu"])
          : Quantity("1m")
      memory: {expression: 'Quantity("1Mi") * (pod.SinceSecond() / 60.0)'}
"""


def usage(name: str, *groups: Object, kind: str = "ClusterResourceUsage", **spec: Any) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": "default"} if kind == "ResourceUsage" else {})},
        "spec": {"usages": list(groups), **spec},
    }


def group(cpu: str, memory: str = "1Mi", *containers: str) -> Object:
    """Return amounts for some containers; an amount that is no quantity is an expression."""
    amounts = {"cpu": cpu, "memory": memory}
    fields = {name: {"value" if text[0].isdigit() else "expression": text} for name, text in amounts.items()}
    return {"usage": fields, **({"containers": list(containers)} if containers else {})}


async def usages(cluster: Cluster) -> dict[str, Any]:
    metrics = await read(cluster, "/namespaces/default/pods")
    return {
        pod["metadata"]["name"]: {container["name"]: container["usage"] for container in pod["containers"]}
        for pod in metrics["items"]
    }


async def run_pod(cluster: Cluster, name: str, *, cpu: str = "", namespace: str = "default") -> None:
    annotations = {"kwok.x-k8s.io/usage-cpu": cpu} if cpu else {}
    containers = [
        {"name": container, "image": "web", "resources": {"requests": {"cpu": "500m"}}}
        for container in ("main", "proxy")
    ]
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"containers": containers},
        }
    )
    await cluster.settle()


async def test_a_file_of_kwok_is_the_usage_of_the_pods(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "usage.yaml").write_text(FROM_ANNOTATIONS)
    await cluster.add_nodes(1, usage=tmp_path / "usage.yaml")
    await run_pod(cluster, "stated", cpu="250m")
    await run_pod(cluster, "plain")
    await cluster.advance(120)
    grown = {"memory": "2Mi"}
    assert await usages(cluster) == {
        "stated": {"main": {"cpu": "250m", **grown}, "proxy": {"cpu": "250m", **grown}},
        "plain": {"main": {"cpu": "1m", **grown}, "proxy": {"cpu": "1m", **grown}},
    }
    assert (await read(cluster, "/nodes/node-0"))["usage"] == {"cpu": "502m", "memory": "8Mi"}


async def test_objects_are_the_usage_and_the_one_of_a_single_pod_wins(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    for definition in yaml.safe_load_all(DEFINITIONS.read_text()):
        await cluster.client.create(definition)
    await cluster.settle()
    await run_pod(cluster, "one")
    await run_pod(cluster, "other")
    assert (await usages(cluster))["one"]["main"] == {"cpu": "1m", "memory": "1Mi"}
    half = group('container.resources.requests["cpu"] * 0.5', "64Mi")
    await cluster.client.create(usage("all", group("2", "1Gi", "proxy"), half))
    await cluster.client.create(usage("elsewhere", group("9"), selector={"matchNamespaces": ["elsewhere"]}))
    await cluster.client.create(usage("one", group("3"), kind="ResourceUsage"))
    await cluster.advance(1)
    assert await usages(cluster) == {
        "one": {"main": {"cpu": "3", "memory": "1Mi"}, "proxy": {"cpu": "3", "memory": "1Mi"}},
        "other": {"main": {"cpu": "250m", "memory": "64Mi"}, "proxy": {"cpu": "2", "memory": "1Gi"}},
    }
    await cluster.client.delete("kwok.x-k8s.io/v1alpha1/ResourceUsage", "one", namespace="default")
    await cluster.advance(1)
    assert (await usages(cluster))["one"]["main"] == {"cpu": "250m", "memory": "64Mi"}


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("pod.metadata.", "cannot be compiled"),
        ("Usage(pod, 'memory')", "undeclared reference"),
        ("pod.spec.nothing.at.all", "no such key"),
        ('Quantity("much")', "'much' is not a quantity"),
        ('"250m"', "returns str; expected a number"),
        ("(0.0 - 1.0)", "a negative number; expected an amount of at least 0"),
        ("(1.0 / 0.0)", "no finite number; expected an amount of at least 0"),
        ("[1,2,3].map(a, [1,2,3].map(b, a * b)).size() > 0 ? node.SinceSecond() - 1e9 : 0.0", "at least 0"),
    ],
)
async def test_a_bad_expression_is_an_event_and_no_usage(cluster: Cluster, expression: str, message: str) -> None:
    await cluster.add_nodes(1)
    for definition in yaml.safe_load_all(DEFINITIONS.read_text()):
        await cluster.client.create(definition)
    await cluster.settle()
    await run_pod(cluster, "good")
    await run_pod(cluster, "bad")
    await cluster.client.create(usage("broken", group(expression), selector={"matchNames": ["bad"]}))
    for _ in range(2):
        await cluster.advance(1)
        used = await usages(cluster)
        assert used["good"]["main"] == {"cpu": "1m", "memory": "1Mi"}
        # An expression that cannot be compiled is no usage; a pod whose expression fails is not idle, but unknown.
        assert ("bad" in used) is (message in ("cannot be compiled", "undeclared reference"))
    events = [event for event in await cluster.client.list("v1/Event") if event["reason"] == "InvalidUsage"]
    assert [event["involvedObject"]["name"] for event in events] == ["broken"]
    assert message in events[0]["message"]


async def test_an_autoscaler_does_not_scale_on_a_usage_that_fails(cluster: Cluster, tmp_path: Path) -> None:
    broken = usage("broken", group("pod.metadata.labels.missing"))
    (tmp_path / "usage.yaml").write_text(yaml.safe_dump(broken))
    await cluster.add_nodes(1, usage=tmp_path / "usage.yaml")
    await cluster.client.create(deployment(3))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}}
    ]
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5, "metrics": metrics}
    await cluster.client.create(
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}, "spec": spec}
    )
    await cluster.advance(600)
    scaled = await cluster.client.get("apps/v1/Deployment", "web", namespace="default")
    assert scaled["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod", "has no ResourceUsage or ClusterResourceUsage"),
        ("{", "is not YAML"),
        (yaml.safe_dump(usage("a", {"usage": {"cpu": {"amount": 1}}})), "the field amount is not known in usage"),
        (yaml.safe_dump(usage("a", group("Rand("))), "cannot be compiled"),
        (yaml.safe_dump(usage("a", {"usage": {"cpu": {"value": "1x"}}})), "'1x' is not a quantity"),
        (yaml.safe_dump(usage("a", {"usage": ["cpu"]})), "has not the form of a ClusterResourceUsage"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "usage.yaml"
    path.write_text(text)
    with pytest.raises(InvalidUsage, match=message) as refused:
        load_usages(path, UsageExpressions(ManualClock()))
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('Quantity("100m") + Quantity("200m") * 2', 0.5),
        ('"10Mi".Quantity() / 2', 5 * 1024.0 * 1024.0),
        ("Rand() < 1.0 ? 1 : 2", 1),
        ("UnixSecond(Now()) - UnixSecond(node.metadata.creationTimestamp)", 90.0),
        ("SinceSecond(node)", 90.0),
        ('node.status.allocatable["cpu"] - container.resources.limits["cpu"]', 3.5),
        ('"zone" in node.metadata.labels ? 1.0 : 0.25', 0.25),
        ("size(pod.spec.containers) * 2.5", 2.5),
        ('double(pod.metadata.name.size()) + (container.name == "main" ? 1 : 2)', 4.0),
    ],
)
async def test_expressions_have_the_functions_of_kwok(expression: str, value: float) -> None:
    clock = ManualClock()
    created = clock.now().isoformat()
    await clock.advance(90)
    container = {"name": "main", "resources": {"limits": {"cpu": "500m"}}}
    pod = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"containers": [container]}}
    node = {"metadata": {"name": "n", "creationTimestamp": created}, "status": {"allocatable": {"cpu": "4"}}}
    expressions = UsageExpressions(clock, Random(1))
    parsed = parse_usage(usage("a", group(expression)), expressions).of_container("main")
    assert parsed is not None
    variables: Mapping[str, Any] = {
        "pod": as_variable(pod),
        "node": as_variable(node),
        "container": container_variable(container),
    }
    assert parsed["cpu"].evaluate(variables) == pytest.approx(value)
