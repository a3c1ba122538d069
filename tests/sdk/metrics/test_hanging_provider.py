"""A provider that hangs behind the multiplexer: autoscalers of other providers go on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pinnace.model.objects import Object
from pinnace.reconcile.conditions import condition
from pinnace.sdk import Operator
from pinnace.sdk.multiplexer import multiplexer
from pinnace.testing.cluster import Cluster

AUTOSCALER = "autoscaling/v2/HorizontalPodAutoscaler"


async def scale_by(cluster: Cluster, name: str) -> None:
    """A Deployment with one pod, and its autoscaler by the external metric of the same name."""
    head = {"metadata": {"name": name, "namespace": "default"}}
    labels = {"app": name}
    containers = [{"name": "main", "image": "worker"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec: Object = {"selector": {"matchLabels": labels}, "template": template}
    await cluster.client.create({"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec})
    external = {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "10"}}
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": 5}
    spec["metrics"] = [{"type": "External", "external": external}]
    await cluster.client.create(
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": spec}
    )


@pytest.mark.parametrize("kind", ["built in", "operator"])
async def test_a_provider_that_hangs_behind_the_multiplexer_holds_up_no_other_autoscaler(
    cluster: Cluster, kind: str
) -> None:
    if kind == "operator":
        await cluster.run(multiplexer())
    released = threading.Event()
    hanging, alive = Operator("hanging"), Operator("alive")
    hanging.metrics.external("stuck", lambda query: float(released.wait(60)), deadline=1000)
    alive.metrics.external("busy", lambda query: 40)
    for operator in (hanging, alive):
        await cluster.run(operator)
    try:
        await scale_by(cluster, "stuck")
        await scale_by(cluster, "busy")
        async with asyncio.timeout(60):
            while True:
                await asyncio.sleep(0.02)
                await cluster.clock.advance(1)
                stuck = condition(await cluster.client.get(AUTOSCALER, "stuck"), "ScalingActive")
                busy = await cluster.client.get("apps/v1/Deployment", "busy")
                if stuck is not None and busy["spec"]["replicas"] == 4:
                    break
    finally:
        released.set()
    assert (stuck["status"], stuck["reason"]) == ("False", "FailedGetExternalMetric")
    assert (await cluster.client.get("apps/v1/Deployment", "stuck"))["spec"]["replicas"] == 1
