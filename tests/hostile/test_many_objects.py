"""No controller reads thousands of objects of one owner in one step: other work has its turn in between.

Counted in reads of objects and not in seconds, with smaller limits: the same code with few objects.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.controllers.workloads.objects import DAEMON_SET, DEPLOYMENT, LABELS, REPLICA_SET, STATEFUL_SET, workload
from tests.loop_turns import counting_turns

from pinnace.auth.authorization.rules import choose_roles
from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Object
from pinnace.node.simulated.machines import NodeShape
from pinnace.process import work_slices
from pinnace.process.work_slices import DECODING, in_turns
from pinnace.server.status import role_aggregation
from pinnace.testing.cluster import Cluster, running_cluster

JOB = "batch/v1/Job"
OBJECTS = 600
AT_ONCE = 40
MOST_READS = 300
"""Several parts of `AT_ONCE`: a step may end one walk over the objects and begin another, or handle some events."""


@dataclass
class Reads:
    """The most encoded objects that one step of the event loop reads."""

    most: int = 0

    @contextmanager
    def counting(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        run: Callable[[Any], None] = asyncio.Handle._run
        derive, decoded = Snapshot.derive, Snapshot.object
        in_step: set[Snapshot] = set()

        def counted_step(handle: Any) -> None:
            in_step.clear()
            run(handle)
            self.most = max(self.most, len(in_step))

        def counted(snapshot: Snapshot, function: Callable[[Snapshot], Any]) -> Any:
            in_step.add(snapshot)
            return derive(snapshot, function)

        def counted_object(snapshot: Snapshot) -> Object:
            in_step.add(snapshot)
            obj: Object = decoded.__get__(snapshot)
            return obj

        with monkeypatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", counted_step)
            patch.setattr(Snapshot, "derive", counted)
            patch.setattr(Snapshot, "object", property(counted_object))
            yield


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_slices, "AT_ONCE", AT_ONCE)
    monkeypatch.setattr("pinnace.testing.cluster.PATIENCE", 120.0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster() as fresh:
        yield fresh


async def add_nodes(cluster: Cluster) -> None:
    await cluster.add_nodes(3, shape=NodeShape(cpu="640", pods="240"))


def job(**spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}
    fields = {"parallelism": OBJECTS, "completions": OBJECTS, "template": template, **spec}
    return {**workload(JOB), "spec": fields}


WORKLOADS: dict[str, Object] = {
    "StatefulSet at once": workload(STATEFUL_SET, replicas=OBJECTS, serviceName="web", podManagementPolicy="Parallel"),
    "ReplicaSet": workload(REPLICA_SET, replicas=OBJECTS),
    "Deployment": workload(DEPLOYMENT, replicas=OBJECTS),
    "Job": job(),
    "indexed Job": job(completionMode="Indexed"),
}


@pytest.mark.parametrize("obj", WORKLOADS.values(), ids=WORKLOADS)
async def test_a_workload_reads_its_pods_in_turns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, obj: Object
) -> None:
    await add_nodes(cluster)
    reads, kind = Reads(), f"{obj['apiVersion']}/{obj['kind']}"
    with reads.counting(monkeypatch):
        await cluster.client.create(obj)
        await cluster.settle()
        if kind != JOB:
            await cluster.client.patch(kind, "web", {"spec": {"replicas": OBJECTS // 2}}, namespace="default")
        await cluster.advance(5)
    assert AT_ONCE <= reads.most <= MOST_READS


async def test_a_daemon_set_reads_its_nodes_and_pods_in_turns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.add_nodes(OBJECTS)
    reads = Reads()
    with reads.counting(monkeypatch):
        await cluster.client.create(workload(DAEMON_SET))
        await cluster.settle()
    assert AT_ONCE <= reads.most <= MOST_READS


def about_pods(kind: str, **spec: Any) -> Object:
    return {**workload(kind), "spec": spec}


SELECTOR = {"matchLabels": LABELS}
READERS: dict[str, Object] = {
    "Service": about_pods("v1/Service", selector=LABELS, ports=[{"port": 80}]),
    "PodDisruptionBudget": about_pods("policy/v1/PodDisruptionBudget", maxUnavailable=1, selector=SELECTOR),
    "ResourceQuota": about_pods("v1/ResourceQuota", hard={"pods": "1000", "cpu": "1000"}),
    "HorizontalPodAutoscaler": about_pods(
        "autoscaling/v2/HorizontalPodAutoscaler",
        maxReplicas=OBJECTS,
        scaleTargetRef={"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"},
        metrics=[{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Value", "averageValue": "1"}}}],
    ),
}


@pytest.mark.parametrize("obj", READERS.values(), ids=READERS)
async def test_an_object_about_many_pods_reads_them_in_turns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, obj: Object
) -> None:
    await add_nodes(cluster)
    await cluster.client.create(workload(REPLICA_SET, replicas=OBJECTS))
    await cluster.settle()
    reads = Reads()
    with reads.counting(monkeypatch):
        await cluster.client.create(obj)
        await cluster.settle()
        await cluster.advance(20)
    assert AT_ONCE // DECODING <= reads.most <= MOST_READS


async def test_a_namespace_is_emptied_in_turns(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "many"}})
    for number in range(OBJECTS):
        metadata = {"name": f"c{number}", "namespace": "many"}
        await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await cluster.settle()
    reads = Reads()
    with reads.counting(monkeypatch):
        await cluster.client.delete("v1/Namespace", "many")
        await cluster.settle()
    assert AT_ONCE // DECODING <= reads.most <= MOST_READS
    assert await cluster.client.get_or_none("v1/Namespace", "many") is None


async def test_many_selectors_of_an_aggregated_role_are_compared_in_turns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_turn = Counter[int]()

    def choose(*arguments: Any) -> Iterator[Any]:
        for step in choose_roles(*arguments):
            at_turn[turns.count] += 1
            yield step

    monkeypatch.setattr(role_aggregation, "choose_roles", choose)
    await cluster.settle()
    selectors = [{"matchLabels": {f"l{number}": "yes"}} for number in range(OBJECTS)]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"}}
    async with counting_turns() as turns:
        await cluster.client.create({**role, "aggregationRule": {"clusterRoleSelectors": selectors}})
        while at_turn.total() < 50 * OBJECTS:  # There are more than fifty roles.
            await asyncio.sleep(0)
    assert max(at_turn.values()) <= 2 * AT_ONCE


async def test_parts_give_way_to_others() -> None:
    async with counting_turns() as turns:
        assert [len(part) async for part in in_turns(range(2 * AT_ONCE + 1))] == [AT_ONCE, AT_ONCE, 1]
        assert turns.count >= 2
        before = turns.count
        assert [len(part) async for part in in_turns(range(AT_ONCE - 1))] == [AT_ONCE - 1]
        assert turns.count == before
