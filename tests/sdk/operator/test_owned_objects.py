"""Objects that a handler owns: listed, pruned and judged."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.sdk.operator.databases import WEBSITE, config_map
from tests.sdk.websites import Object, Website, deployment_of, website
from tests.testing.both_ways import in_process_only

from pinnace.client.client import Client
from pinnace.reconcile.readiness import readiness_of
from pinnace.sdk import Context, Operator, Retry, Select
from pinnace.testing.cluster import Cluster

CONFIG_MAP = "v1/ConfigMap"


async def names_of(client: Client) -> list[str]:
    names = [obj["metadata"]["name"] for obj in await client.list(CONFIG_MAP, namespace="default")]
    return sorted(name for name in names if not name.startswith("kube-"))


def one_per_replica(operator: Operator, *, select: str | Select = CONFIG_MAP) -> list[list[str]]:
    seen: list[list[str]] = []

    @operator.reconcile(Website, owns=[select], prune=True)
    async def handle(site: Website, ctx: Context) -> None:
        seen.append([obj["metadata"]["name"] for obj in await ctx.owned(CONFIG_MAP)])
        site.status.ready = site.spec.replicas
        for number in range(site.spec.replicas):
            await ctx.apply(config_map(f"{site.name}-{number}", app="web"))
        if site.spec.replicas == 0:
            raise Retry(reason="not yet", after=10)

    return seen


@pytest.mark.parametrize("select", [CONFIG_MAP, Select(CONFIG_MAP, labels="app=web")], ids=["all", "selected"])
async def test_owned_objects_that_a_call_does_not_apply_are_pruned(cluster: Cluster, select: str | Select) -> None:
    operator = Operator("pruning")
    seen = one_per_replica(operator, select=select)
    await cluster.run(operator)
    await cluster.client.create(config_map("mine", app="web"))
    for name in ("blog", "shop"):
        await cluster.client.create(website(name, replicas=3))
    await cluster.settle()
    assert await names_of(cluster.client) == ["blog-0", "blog-1", "blog-2", "mine", "shop-0", "shop-1", "shop-2"]
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 1}})
    await cluster.settle()
    assert await names_of(cluster.client) == ["blog-0", "mine", "shop-0", "shop-1", "shop-2"]
    assert ["blog-0", "blog-1", "blog-2"] in seen
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 0}})
    await cluster.settle()
    assert "blog-0" in await names_of(cluster.client)  # The call did not succeed.


@in_process_only
async def test_the_status_is_stored_though_an_object_cannot_be_pruned_yet(cluster: Cluster) -> None:
    operator = Operator("pruning")
    one_per_replica(operator)
    await cluster.run(operator)
    await cluster.client.create(website(replicas=2))
    await cluster.settle()
    with cluster.faults.error(500, verb="delete", resource="configmaps", client="pruning"):
        await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 1}})
        await cluster.settle()
        assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 1}
        assert await names_of(cluster.client) == ["blog-0", "blog-1"]
    await cluster.advance(60)
    assert await names_of(cluster.client) == ["blog-0"]


@in_process_only
async def test_an_owned_object_that_another_client_has_made_is_not_pruned(cluster: Cluster) -> None:
    operator = Operator("pruning")
    one_per_replica(operator)
    await cluster.run(operator)
    site = await cluster.client.create(website())
    await cluster.settle()
    owner = {
        "apiVersion": WEBSITE.rpartition("/")[0],
        "kind": "Website",
        "name": "blog",
        "uid": site["metadata"]["uid"],
    }
    other = config_map("other")
    other["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    await cluster.client.create(other)
    await cluster.settle()
    assert await names_of(cluster.client) == ["blog-0", "other"]


def test_two_functions_do_not_prune_the_objects_of_each_other() -> None:
    operator = Operator("pruning")

    @operator.reconcile(Website, owns=[CONFIG_MAP])
    async def first(site: Website, ctx: Context) -> None: ...

    with pytest.raises(ValueError, match="second and first both own ConfigMap"):

        @operator.reconcile(Website, owns=["v1/Secret", CONFIG_MAP], prune=True)
        async def second(site: Website, ctx: Context) -> None: ...

    with pytest.raises(ValueError, match=r"name them in owns=\[...\]"):

        @operator.reconcile(Website, prune=True)
        async def third(site: Website, ctx: Context) -> None: ...


async def test_a_handler_waits_until_its_deployment_is_ready(cluster: Cluster) -> None:
    operator = Operator("waiting")
    messages: list[str] = []

    @operator.reconcile(Website, owns=["apps/v1/Deployment"])
    async def handle(site: Website, ctx: Context) -> None:
        ready = ctx.ready(await ctx.apply(deployment_of(site)))
        messages.append(ready.message)
        site.status.ready = 1 if ready else 0

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert messages[0] == "replicas: 0 of 1"
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 0}
    await cluster.add_nodes(1)
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 1}


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def condition(type: str, status: str = "True", reason: str = "R", message: str = "m") -> Object:
    return {"type": type, "status": status, "reason": reason, "message": message}


def obj(kind: str, *, spec: Object | None = None, status: Object | None = None, **metadata: object) -> Object:
    api_version, _, name = kind.rpartition("/")
    return {"apiVersion": api_version, "kind": name, "metadata": metadata, "spec": spec or {}, "status": status or {}}


COUNTS = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}
LATE = condition("Progressing", "False", "ProgressDeadlineExceeded")
AVAILABLE = [condition("Available")]


@pytest.mark.parametrize(
    ("judged", "status", "message"),
    [
        (obj("a/v1/Site"), "Current", ""),
        (obj("a/v1/Site", deletionTimestamp="2026-01-01T00:00:00Z"), "Terminating", "it is being deleted"),
        (obj("a/v1/Site", status={"observedGeneration": 1}, generation=2), "InProgress", "generation 2"),
        (obj("a/v1/Site", status={"observedGeneration": 2}, generation=2), "Current", ""),
        (obj("a/v1/Site", status={"conditions": [condition("Ready", "False")]}), "InProgress", "m"),
        (obj("a/v1/Site", status={"conditions": [condition("Ready", "Unknown", "", "")]}), "InProgress", "Ready is"),
        (obj("a/v1/Site", status={"conditions": [condition("Ready"), condition("Stalled")]}), "Failed", "m"),
        (obj("a/v1/Site", status={"conditions": [condition("Reconciling")]}), "InProgress", "m"),
        (obj("a/v1/Site", status={"conditions": "odd", "observedGeneration": "odd"}, generation=2), "Current", ""),
        (obj("apps/v1/Deployment", spec={"replicas": 2}), "InProgress", "replicas: 0 of 2"),
        (obj("apps/v1/Deployment", spec={"replicas": 2}, status={**COUNTS, "conditions": AVAILABLE}), "Current", ""),
        (
            obj("apps/v1/Deployment", spec={"replicas": 1}, status={**COUNTS, "conditions": AVAILABLE}),
            *("InProgress", "1 pods are still to be removed"),
        ),
        (
            obj(
                "apps/v1/Deployment",
                spec={"replicas": 2, "progressDeadlineSeconds": 600},
                status={**COUNTS, "conditions": AVAILABLE},
            ),
            *("InProgress", "the new ReplicaSet is not available"),
        ),
        (
            obj(
                "apps/v1/Deployment",
                status={"conditions": [condition("Progressing", "False", "ProgressDeadlineExceeded")]},
            ),
            *("Failed", "m"),
        ),
        (obj("apps/v1/StatefulSet", spec={"updateStrategy": {"type": "OnDelete"}}), "Current", ""),
        (obj("apps/v1/StatefulSet", status={"replicas": 1, "readyReplicas": 1}), "InProgress", "current: 0 of 1"),
        (
            obj(
                "apps/v1/StatefulSet",
                status={"replicas": 1, "readyReplicas": 1, "currentReplicas": 1, "updateRevision": "b"},
            ),
            *("InProgress", "the new revision"),
        ),
        (obj("apps/v1/DaemonSet"), "InProgress", "it has not been observed yet"),
        (
            obj("apps/v1/DaemonSet", status={"observedGeneration": 1, "desiredNumberScheduled": 3}, generation=1),
            *("InProgress", "scheduled: 0 of 3"),
        ),
        (obj("apps/v1/ReplicaSet", status={"fullyLabeledReplicas": 1}), "InProgress", "available: 0 of 1"),
        (obj("v1/Pod"), "InProgress", "it has not been observed yet"),
        (obj("v1/Pod", status={"phase": "Running", "conditions": [condition("Ready")]}), "Current", ""),
        (
            obj(
                "v1/Pod",
                status={
                    "phase": "Running",
                    "containerStatuses": [{"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
                },
            ),
            *("Failed", "containers that crash again and again: web"),
        ),
        (
            obj(
                "v1/Pod",
                status={"phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable")]},
                creationTimestamp="2025-12-31T23:59:50Z",
            ),
            *("InProgress", "m"),
        ),
        (
            obj(
                "v1/Pod",
                status={"phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable")]},
                creationTimestamp="2025-12-31T23:59:40Z",
            ),
            *("Failed", "m"),
        ),
        (obj("v1/PersistentVolumeClaim", status={"phase": "Pending"}), "InProgress", "its phase is Pending"),
        (obj("v1/Service", spec={"type": "LoadBalancer"}), "InProgress", "it has no address yet"),
        (obj("batch/v1/Job"), "InProgress", "it has not been started yet"),
        (obj("batch/v1/Job", status={"startTime": "2026-01-01T00:00:00Z"}), "Current", "it runs"),
        (obj("batch/v1/Job", status={"conditions": [condition("Failed")]}), "Failed", "m"),
        (
            obj("apiextensions.k8s.io/v1/CustomResourceDefinition", status={"conditions": [condition("Established")]}),
            *("Current", ""),
        ),
        (obj("apiextensions.k8s.io/v1/CustomResourceDefinition"), "InProgress", "it is being installed"),
    ],
)
def test_readiness_follows_kstatus(judged: Object, status: str, message: str) -> None:
    readiness = readiness_of(judged, now=NOW)
    assert readiness.status == status
    assert readiness.message.startswith(message)
    assert bool(readiness) == (status == "Current")
