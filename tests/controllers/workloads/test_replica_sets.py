"""ReplicaSets and ReplicationControllers have as many pods as they want, and no others."""

from __future__ import annotations

import pytest
from tests.controllers.kubelet import Kubelet
from tests.controllers.workloads.objects import (
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    change,
    condition,
    events,
    listed,
    pod,
    status_of,
    workload,
)
from tests.controllers.world import World

from pinnace.model.objects import Object
from pinnace.reconcile.owners import controller_of, owner_reference
from pinnace.testing.clock import ManualClock

BOTH = pytest.mark.parametrize("kind", [REPLICA_SET, REPLICATION_CONTROLLER])


@BOTH
async def test_pods_are_created_and_counted(world: World, kubelet: Kubelet, kind: str) -> None:
    made = await world.client.create(workload(kind, replicas=3))
    await world.settle()
    pods = await listed(world, POD)
    assert [pod["metadata"]["generateName"] for pod in pods] == ["web-"] * 3
    assert [pod["metadata"]["ownerReferences"] for pod in pods] == [[owner_reference(made)]] * 3
    status = await status_of(world, kind)
    assert (status["replicas"], status["fullyLabeledReplicas"], status["observedGeneration"]) == (3, 3, 1)
    assert "readyReplicas" not in status
    await kubelet.run_all()
    status = await status_of(world, kind)
    assert (status["readyReplicas"], status["availableReplicas"]) == (3, 3)
    assert ("terminatingReplicas" in status) == (kind == REPLICA_SET)


@BOTH
async def test_events_name_every_pod_and_the_controller(world: World, kind: str) -> None:
    await world.client.create(workload(kind, replicas=2))
    await world.settle()
    component = {REPLICA_SET: "replicaset-controller", REPLICATION_CONTROLLER: "replication-controller"}[kind]
    names = sorted(await world.names(POD))
    assert sorted(await events(world)) == [(component, "SuccessfulCreate", f"Created pod: {name}") for name in names]
    await world.client.scale(kind, "web", 1, namespace="default")
    await world.settle()
    (left,) = await world.names(POD)
    (gone,) = set(names) - {left}
    assert (await events(world))[-1] == (component, "SuccessfulDelete", f"Deleted pod: {gone}")


@BOTH
async def test_it_scales_up_and_down(world: World, kubelet: Kubelet, kind: str) -> None:
    await world.client.create(workload(kind, replicas=1))
    for replicas in (5, 2, 0, 3):
        await world.client.scale(kind, "web", replicas, namespace="default")
        await kubelet.run_all()
        assert len(await listed(world, POD)) == replicas
        status = await status_of(world, kind)
        assert (status["replicas"], status.get("availableReplicas", 0)) == (replicas, replicas)


async def test_a_pod_that_is_deleted_or_ends_is_replaced(world: World, kubelet: Kubelet) -> None:
    await world.client.create(workload(REPLICA_SET, replicas=2))
    await kubelet.run_all()
    first, second = sorted(await world.names(POD))
    await world.client.delete(POD, first, namespace="default")
    await world.settle()
    assert (await status_of(world, REPLICA_SET))["terminatingReplicas"] == 1
    await kubelet.finish(second, "Failed")
    await kubelet.run_all()
    names = await world.names(POD)
    assert first not in names
    assert second in names, "a failed pod stays for those who want to see why"
    assert len(names) == 3
    assert (await status_of(world, REPLICA_SET))["availableReplicas"] == 2


async def test_a_pod_is_available_after_its_min_ready_seconds(
    world: World, kubelet: Kubelet, clock: ManualClock
) -> None:
    await world.client.create(workload(REPLICA_SET, replicas=1, minReadySeconds=10))
    await kubelet.run_all()
    assert "availableReplicas" not in await status_of(world, REPLICA_SET)
    await clock.advance(9)
    await world.settle()
    assert "availableReplicas" not in await status_of(world, REPLICA_SET)
    await clock.advance(1)
    await world.settle()
    assert (await status_of(world, REPLICA_SET))["availableReplicas"] == 1


# Adoption


@BOTH
async def test_orphans_that_match_are_adopted(world: World, kind: str) -> None:
    await world.client.create(pod("old"))
    await world.client.create(pod("other", {"app": "db"}))
    made = await world.client.create(workload(kind, replicas=2))
    await world.settle()
    objects = {pod["metadata"]["name"]: pod for pod in await listed(world, POD)}
    assert len(objects) == 3
    assert objects["old"]["metadata"]["ownerReferences"] == [owner_reference(made)]
    assert controller_of(objects["other"]) is None


async def test_an_orphan_that_comes_later_is_adopted_and_one_too_many(world: World) -> None:
    await world.client.create(workload(REPLICA_SET, replicas=2))
    await world.settle()
    await world.client.create(pod("late"))
    await world.settle()
    assert len(await listed(world, POD)) == 2


async def test_a_pod_whose_labels_change_is_released_and_replaced(world: World) -> None:
    await world.client.create(workload(REPLICA_SET, replicas=2))
    await world.settle()
    name = sorted(await world.names(POD))[0]
    await change(world, POD, {"metadata": {"labels": {"app": "debug"}}}, name)
    await world.settle()
    pods = {pod["metadata"]["name"]: pod for pod in await listed(world, POD)}
    assert len(pods) == 3
    assert "ownerReferences" not in pods[name]["metadata"]
    assert (await status_of(world, REPLICA_SET))["replicas"] == 2
    await change(world, POD, {"metadata": {"labels": {"app": "web"}}}, name)
    await world.settle()
    assert len(await listed(world, POD)) == 2, "it is adopted again, and one goes"


async def test_a_pod_of_another_controller_is_left_alone(world: World) -> None:
    """Two ReplicaSets with one selector: each keeps its own pods, whatever the labels say."""
    await world.client.create(workload(REPLICA_SET, "one", replicas=2))
    await world.client.create(workload(REPLICA_SET, "two", replicas=2))
    await world.settle()
    owners = [controller_of(pod) for pod in await listed(world, POD)]
    assert sorted(owner["name"] for owner in owners if owner is not None) == ["one", "one", "two", "two"]
    await world.client.scale(REPLICA_SET, "one", 0, namespace="default")
    await world.settle()
    assert (await status_of(world, REPLICA_SET, "two"))["replicas"] == 2


async def test_pods_of_a_namesake_with_another_uid_are_not_counted(world: World) -> None:
    made = await world.client.create(workload(REPLICA_SET, replicas=1))
    await world.settle()
    foreign = {**owner_reference(made), "uid": "00000000-0000-4000-8000-000000000000"}
    stray = pod("stray", finalizers=["example.com/keep"], ownerReferences=[foreign])
    await world.client.create(stray)
    await world.settle()
    assert (await status_of(world, REPLICA_SET))["replicas"] == 1


async def test_a_replica_set_that_is_being_deleted_adopts_and_creates_nothing(world: World) -> None:
    wanted = workload(REPLICA_SET, replicas=0)
    wanted["metadata"]["finalizers"] = ["example.com/wait"]
    await world.client.create(wanted)
    await world.client.delete(REPLICA_SET, "web", namespace="default", propagation="Background")
    await world.client.scale(REPLICA_SET, "web", 2, namespace="default")
    await world.client.create(pod("orphan"))
    await world.settle()
    (orphan,) = await listed(world, POD)
    assert controller_of(orphan) is None


# The order of deletion


async def staying(world: World) -> set[str]:
    pods = await listed(world, POD)
    return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


async def scaled_down(world: World, replicas: int) -> set[str]:
    before = await staying(world)
    await world.client.scale(REPLICA_SET, "web", replicas, namespace="default")
    await world.settle()
    return before - await staying(world)


async def test_pods_go_in_the_order_of_how_little_is_lost(world: World, kubelet: Kubelet, clock: ManualClock) -> None:
    await world.client.create(workload(REPLICA_SET, replicas=6))
    await world.settle()
    unbound, pending, unready, costly, cheap, old = sorted(await world.names(POD))
    for name in (pending, unready, costly, cheap, old):
        await kubelet.bind(name, f"node-of-{name}")
    await kubelet.start(old)
    await clock.advance(100)
    await kubelet.start(unready, ready=False)
    await kubelet.start(costly)
    await kubelet.start(cheap)
    for name, cost in ((costly, "10"), (cheap, "-5"), (old, "7")):
        annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
        await change(world, POD, {"metadata": {"annotations": annotations}}, name)
    for replicas, expected in ((5, unbound), (4, pending), (3, unready), (2, cheap), (1, old)):
        assert await scaled_down(world, replicas) == {expected}


async def test_pods_on_crowded_nodes_go_before_others_then_the_younger(
    world: World, kubelet: Kubelet, clock: ManualClock
) -> None:
    await world.client.create(workload(REPLICA_SET, replicas=4))
    await world.settle()
    crowded, fellow, old, young = sorted(await world.names(POD))
    for name, node in ((crowded, "a"), (fellow, "a"), (old, "b"), (young, "c")):
        await kubelet.bind(name, node)
    await kubelet.start(old)
    await clock.advance(1000)
    for name in (crowded, fellow, young):
        await kubelet.start(name)
    assert await scaled_down(world, 3) <= {crowded, fellow}
    await clock.advance(1)
    (left,) = {crowded, fellow} & await staying(world)
    assert await scaled_down(world, 1) == {left, young}


async def test_of_equal_pods_the_one_with_more_restarts_goes(world: World, kubelet: Kubelet) -> None:
    await world.client.create(workload(REPLICA_SET, replicas=3))
    await world.settle()
    names = sorted(await world.names(POD))
    for at, name in enumerate(names):
        await kubelet.bind(name, f"node-{at}")
        await kubelet.start(name, restarts=3 if at == 1 else 0)
    assert await scaled_down(world, 2) == {names[1]}


# Refusals


def quota(pods: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": "default"},
        "spec": {"hard": {"pods": str(pods)}},
    }


async def test_a_quota_that_refuses_some_pods_is_reported_and_gone_when_it_is_lifted(
    world: World, clock: ManualClock
) -> None:
    await world.client.create(quota(2))
    await world.client.create(workload(REPLICA_SET, replicas=4))
    await world.settle()
    assert len(await listed(world, POD)) == 2
    stated = await condition(world, REPLICA_SET, "ReplicaFailure")
    assert stated is not None
    assert stated[:2] == ("True", "FailedCreate")
    assert "exceeded quota: small" in stated[2]
    failed = [message for _, reason, message in await events(world) if reason == "FailedCreate"]
    assert failed[0].startswith("Error creating: pods ")
    assert not [reason for _, reason, _ in await events(world) if reason == "ReconcileFailed"]
    await change(world, "v1/ResourceQuota", {"spec": {"hard": {"pods": "9"}}}, "small")
    await clock.advance(10)
    await world.settle()
    assert len(await listed(world, POD)) == 4
    assert await condition(world, REPLICA_SET, "ReplicaFailure") is None


async def test_where_every_pod_is_refused_one_is_tried_not_all(world: World) -> None:
    await world.client.create(quota(0))
    await world.client.create(workload(REPLICA_SET, replicas=100))
    await world.settle()
    failed = [message for _, reason, message in await events(world) if reason == "FailedCreate"]
    assert 1 <= len(failed) <= 3, "one in each try, not a hundred"


async def test_a_webhook_that_refuses_every_pod_is_reported_and_pods_come_when_it_is_gone(
    world: World, clock: ManualClock
) -> None:
    kind = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
    webhook = {
        "name": "no.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/no"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    api_version, _, name = kind.rpartition("/")
    await world.client.create(
        {"apiVersion": api_version, "kind": name, "metadata": {"name": "no"}, "webhooks": [webhook]}
    )
    await world.client.create(workload(REPLICA_SET, replicas=3))
    await world.settle()
    assert await listed(world, POD) == []
    stated = await condition(world, REPLICA_SET, "ReplicaFailure")
    assert stated is not None
    assert stated[:2] == ("True", "FailedCreate")
    assert 'failed calling webhook "no.example.com"' in stated[2]
    await world.client.delete(kind, "no")
    await clock.advance(30)
    await world.settle()
    assert len(await listed(world, POD)) == 3
    assert await condition(world, REPLICA_SET, "ReplicaFailure") is None
