"""The cost of autoscaling: a round of all autoscalers, a query of a custom metric, and a backtest of one day.

    python bench/autoscaling.py [--autoscalers 1000] [--pods 10000]

Each autoscaler follows the CPU of its pods on simulated nodes. A round is what happens every 15 seconds: each
autoscaler reads its scale and its metrics, computes, and writes its status if that has changed. CPU seconds of the
process are printed, so that other work on the machine does not count; the share of a core is by 15 seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import time
from collections.abc import Mapping
from typing import Any

import orjson
import uvloop

from pinnace.client.client import Client
from pinnace.cluster.controllers import controllers_of
from pinnace.controllers.autoscaling.backtest import Backtest, LoadPoint, PodShape
from pinnace.controllers.autoscaling.horizontal import SYNC_PERIOD
from pinnace.metrics.resource_metrics import ContainerUsages, add_usage_source
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import Quantity
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.manager import Manager
from pinnace.sdk import Operator
from pinnace.testing.cluster import Cluster, running_cluster

NAMESPACES, ROUNDS, QUERIES = 20, 4, 300
GOAL_SHARE, GOAL_QUERY, GOAL_BACKTEST = 5.0, 5.0, 2.0
AT_ONCE = 100
CONTROLLER = "horizontal-pod-autoscaler-controller"


class RandomUsage:
    """The usage of all pods: half of their request, more or less by `spread`."""

    def __init__(self) -> None:
        self.spread = 0.0
        self._random = random.Random(20)
        self._memory = quantity.parse("64Mi")

    async def refresh(self) -> None:
        """Each read is another value."""

    def usage_of(self, pod: Object, node: Object) -> ContainerUsages | None:
        used = round(50 * (1 + self._random.uniform(-self.spread, self.spread)))
        return {
            container["name"]: {"cpu": quantity.parse(f"{used}m"), "memory": self._memory}
            for container in containers_of(pod)
        }

    def node_usage_of(self, node: Object) -> Mapping[str, Quantity] | None:
        return None


def containers_of(pod: Object) -> list[Object]:
    containers: list[Object] = pod["spec"]["containers"]
    return containers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autoscalers", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=10_000)
    chosen = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure_rounds(chosen.autoscalers, chosen.pods))
        runner.run(measure_queries())
    measure_backtest()


def show(name: str, figure: float, unit: str, goal: float) -> None:
    print(f"{name:64} {figure:9.2f} {unit}   to stay under {goal:g}", flush=True)


# Rounds


async def measure_rounds(autoscalers: int, pods: int) -> None:
    async with running_cluster(controllers=False) as cluster:
        usage = RandomUsage()
        add_usage_source(cluster.plane.aggregation.api_services, cluster.plane.fanout, cluster.clock, usage)
        await fill(cluster.client, autoscalers, pods // autoscalers, to_rfc3339(cluster.clock.now()))
        await cluster.clock.advance(600)  # The CPU of young pods does not count.
        manager = controllers_of(cluster.plane, None, clock=cluster.clock, only=(CONTROLLER,))
        async with manager.running():
            await manager.settle()
            for name, spread in (("equal values", 0.0), ("values that change", 0.08)):
                usage.spread = spread
                seconds = [await round_of(cluster, manager) for _ in range(ROUNDS)]
                share = 100 * statistics.median(seconds) / SYNC_PERIOD
                what = f"{autoscalers:,} autoscalers over {pods:,} pods, {name}"
                show(what, share, f"% of a core ({statistics.median(seconds):.3f} s)", GOAL_SHARE)
            listed = await cluster.client.list("autoscaling/v2/HorizontalPodAutoscaler")
            active = [autoscaler for autoscaler in listed if _is_active(autoscaler)]
            assert len(active) == autoscalers, f"{autoscalers - len(active)} autoscalers have no value"


async def round_of(cluster: Cluster, manager: Manager) -> float:
    gc.collect()
    began = time.process_time()
    await cluster.clock.advance(SYNC_PERIOD)
    await manager.settle()
    return time.process_time() - began


def _is_active(autoscaler: Object) -> bool:
    conditions = (autoscaler.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "ScalingActive" and condition["status"] == "True" for condition in conditions)


async def fill(client: Client, autoscalers: int, pods: int, now: str) -> None:
    """Create ReplicaSets with running pods and their autoscalers. No other controller runs."""
    for number in range(NAMESPACES):
        name = f"team-{number}"
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}})
    for first in range(0, autoscalers, AT_ONCE):
        some = range(first, min(first + AT_ONCE, autoscalers))
        await asyncio.gather(*(make_target(client, number, pods, now) for number in some))


async def make_target(client: Client, number: int, pods: int, now: str) -> None:
    name, namespace, labels = f"web-{number}", f"team-{number % NAMESPACES}", {"app": f"web-{number}"}
    spec: Object = {
        "nodeName": "node",
        "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "100m"}}}],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": spec["containers"]}}
    head = {"metadata": {"name": name, "namespace": namespace}}
    made = await client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            **head,
            "spec": {"replicas": pods, "selector": {"matchLabels": labels}, "template": template},
        }
    )
    await client.update_status({**made, "status": {"replicas": pods, "readyReplicas": pods}})
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    status = {"phase": "Running", "startTime": now, "conditions": [ready]}
    for place in range(pods):
        metadata = {"name": f"{name}-{place}", "namespace": namespace, "labels": labels}
        pod = await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        await client.update_status({**pod, "status": status})
    metric = {"type": "Resource", "resource": {"name": "cpu"}}
    metric["resource"] = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name}
    await client.create(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            **head,
            "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 100, "metrics": [metric]},
        }
    )


# Queries


async def measure_queries() -> None:
    """Read a custom metric of ten pods through the server, the multiplexer and an operator over HTTPS."""
    operator = Operator("depths")
    operator.metrics.pods("queue_depth", lambda pod: 30)
    async with running_cluster(controllers=False, over_http=True) as cluster:
        for number in range(10):
            metadata = {"name": f"web-{number}", "namespace": "default", "labels": {"app": "web"}}
            spec = {"containers": [{"name": "main", "image": "web"}]}
            await cluster.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        await cluster.run(operator)
        await cluster.settle()
        path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/queue_depth?labelSelector=app%3Dweb"
        walls, cpu = [], time.process_time()
        for _ in range(QUERIES):
            began = time.perf_counter()
            answer = orjson.loads(await cluster.client.read(path))
            walls.append(time.perf_counter() - began)
        cpu = (time.process_time() - cpu) / QUERIES
        assert len(answer["items"]) == 10
    show("a query of a custom metric, client and operator included", 1e3 * statistics.median(walls), "ms", GOAL_QUERY)
    show("the same, CPU of all three", 1e3 * cpu, "ms", GOAL_QUERY)


# The backtest


def measure_backtest() -> None:
    metric = {"type": "Resource", "resource": {"name": "cpu"}}
    metric["resource"] = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec: Any = {"minReplicas": 2, "maxReplicas": 100, "metrics": [metric]}
    choose = random.Random(20)
    load = [LoadPoint(60.0 * minute, round(1000 * choose.uniform(5, 40))) for minute in range(24 * 60 + 1)]
    began = time.process_time()
    steps = Backtest(spec, PodShape(startup=30.0, request=1000)).run(load)
    show(f"a backtest of one day, {len(steps):,} evaluations", time.process_time() - began, "s", GOAL_BACKTEST)


if __name__ == "__main__":
    main()
