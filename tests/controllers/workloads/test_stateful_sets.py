"""StatefulSets give each pod a name and claims of its own, and change their pods one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.kubelet import Kubelet
from tests.controllers.workloads.objects import (
    POD,
    REVISION,
    STATEFUL_SET,
    change,
    events,
    listed,
    pod,
    revision_numbers,
    set_image,
    status_of,
    workload,
)
from tests.controllers.world import World

from pinnace.controllers.workloads import pod_control
from pinnace.model.objects import Object
from pinnace.reconcile.owners import controller_of, owner_reference
from pinnace.testing.clock import ManualClock

CLAIM = "v1/PersistentVolumeClaim"
REVISION_LABEL = "controller-revision-hash"


def stateful_set(**spec: Any) -> Object:
    return workload(STATEFUL_SET, serviceName="db", **spec)


def with_claims(when_scaled: str = "Retain", when_deleted: str = "Retain", **spec: Any) -> Object:
    template = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    policy = {"whenScaled": when_scaled, "whenDeleted": when_deleted}
    return stateful_set(volumeClaimTemplates=[template], persistentVolumeClaimRetentionPolicy=policy, **spec)


async def pods(world: World) -> dict[str, Object]:
    return {pod["metadata"]["name"]: pod for pod in await listed(world, POD)}


async def staying(world: World) -> list[str]:
    result = await pods(world)
    return sorted(name for name, obj in result.items() if "deletionTimestamp" not in obj["metadata"])


async def images(world: World) -> list[str]:
    result = await pods(world)
    return [result[name]["spec"]["containers"][0]["image"].partition("/")[2] for name in await staying(world)]


# Identity


async def test_pods_are_created_one_after_the_other_each_with_its_own_name(world: World, kubelet: Kubelet) -> None:
    made = await world.client.create(stateful_set(replicas=3))
    for count in (1, 2, 3):
        await world.settle()
        assert await staying(world) == [f"web-{ordinal}" for ordinal in range(count)]
        await kubelet.step()
    await kubelet.run_all()
    second = (await pods(world))["web-1"]
    assert (second["spec"]["hostname"], second["spec"]["subdomain"]) == ("web-1", "db")
    assert second["metadata"]["ownerReferences"] == [owner_reference(made)]
    (revision,) = await listed(world, REVISION)
    assert second["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-1",
        "apps.kubernetes.io/pod-index": "1",
        REVISION_LABEL: revision["metadata"]["name"],
    }
    assert await status_of(world, STATEFUL_SET) == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": revision["metadata"]["name"],
        "updateRevision": revision["metadata"]["name"],
        "collisionCount": 0,
    }


async def test_a_parallel_set_creates_and_deletes_all_at_once(world: World, kubelet: Kubelet) -> None:
    await world.client.create(stateful_set(replicas=4, podManagementPolicy="Parallel"))
    await world.settle()
    assert await staying(world) == ["web-0", "web-1", "web-2", "web-3"]
    await kubelet.run_all()
    await world.client.scale(STATEFUL_SET, "web", 1, namespace="default")
    await world.settle()
    assert await staying(world) == ["web-0"]


async def test_pods_are_deleted_from_the_highest_ordinal_each_after_the_last_is_gone(
    world: World, kubelet: Kubelet
) -> None:
    await world.client.create(stateful_set(replicas=3))
    await kubelet.run_all()
    await world.client.scale(STATEFUL_SET, "web", 0, namespace="default")
    for left in (["web-0", "web-1"], ["web-0"], []):
        await world.settle()
        assert await staying(world) == left
        await kubelet.step()
    messages = [message for _, reason, message in await events(world) if reason == "SuccessfulDelete"]
    assert messages == [f"Delete Pod web-{ordinal} in StatefulSet web successful" for ordinal in (2, 1, 0)]


async def test_nothing_is_deleted_while_another_pod_is_not_ready(world: World, kubelet: Kubelet) -> None:
    await world.client.create(stateful_set(replicas=3))
    await kubelet.run_all()
    await kubelet.start("web-0", ready=False)
    kubelet.is_healthy = lambda obj: obj["metadata"]["name"] != "web-0"
    await world.client.scale(STATEFUL_SET, "web", 1, namespace="default")
    await kubelet.run_all()
    assert await staying(world) == ["web-0", "web-1", "web-2"]
    kubelet.is_healthy = lambda pod: True
    await kubelet.run_all()
    assert await staying(world) == ["web-0"]


async def test_ordinals_may_start_elsewhere(world: World, kubelet: Kubelet) -> None:
    await world.client.create(stateful_set(replicas=2, ordinals={"start": 5}))
    await kubelet.run_all()
    assert await staying(world) == ["web-5", "web-6"]
    await change(world, STATEFUL_SET, {"spec": {"ordinals": {"start": 6}}})
    await kubelet.run_all()
    assert await staying(world) == ["web-6", "web-7"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_a_pod_that_has_ended_is_replaced_by_one_of_its_name(world: World, kubelet: Kubelet, phase: str) -> None:
    await world.client.create(stateful_set(replicas=2))
    await kubelet.run_all()
    before = (await pods(world))["web-0"]["metadata"]["uid"]
    await kubelet.finish("web-0", phase)
    await kubelet.run_all()
    after = (await pods(world))["web-0"]
    assert after["metadata"]["uid"] != before
    assert (await status_of(world, STATEFUL_SET))["readyReplicas"] == 2


async def test_min_ready_seconds_hold_the_next_pod_back(world: World, kubelet: Kubelet, clock: ManualClock) -> None:
    await world.client.create(stateful_set(replicas=2, minReadySeconds=10))
    await kubelet.run_all()
    assert await staying(world) == ["web-0"]
    await clock.advance(10)
    await kubelet.run_all()
    assert await staying(world) == ["web-0", "web-1"]


async def test_a_member_that_lost_its_labels_gets_them_back(world: World, kubelet: Kubelet) -> None:
    await world.client.create(stateful_set(replicas=1))
    await kubelet.run_all()
    label = "statefulset.kubernetes.io/pod-name"
    await change(world, POD, {"metadata": {"labels": {label: None}}}, "web-0")
    await world.settle()
    assert (await pods(world))["web-0"]["metadata"]["labels"][label] == "web-0"


async def test_orphans_are_adopted_by_name_and_released_by_label(world: World, kubelet: Kubelet) -> None:
    await world.client.create(pod("web-0"))
    await world.client.create(pod("web-x"))
    made = await world.client.create(stateful_set(replicas=2))
    await kubelet.run_all()
    result = await pods(world)
    assert result["web-0"]["metadata"]["ownerReferences"] == [owner_reference(made)]
    assert controller_of(result["web-x"]) is None
    assert "web-1" in result
    await change(world, POD, {"metadata": {"labels": {"app": "debug"}}}, "web-1")
    await world.settle()
    assert controller_of((await pods(world))["web-1"]) is None


# Updates


async def test_an_update_goes_from_the_highest_ordinal_down(world: World, kubelet: Kubelet) -> None:
    await world.client.create(stateful_set(replicas=3))
    await kubelet.run_all()
    before = await status_of(world, STATEFUL_SET)
    await set_image(world, STATEFUL_SET, "web:2")
    await world.settle()
    assert await staying(world) == ["web-0", "web-1"]
    status = await status_of(world, STATEFUL_SET)
    assert status["currentRevision"] == before["currentRevision"] != status["updateRevision"]
    assert status["currentReplicas"] == 2
    for expected in (["web:1", "web:1", "web:2"], ["web:1", "web:2", "web:2"], ["web:2", "web:2", "web:2"]):
        while len(await staying(world)) < 3:
            await kubelet.step()
            await world.settle()
        assert await images(world) == expected
        await kubelet.step()
        await world.settle()
    await kubelet.run_all()
    status = await status_of(world, STATEFUL_SET)
    assert status["currentRevision"] == status["updateRevision"] != before["updateRevision"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (3, 3)


async def test_an_update_stops_at_a_pod_that_does_not_become_ready(world: World, kubelet: Kubelet) -> None:
    await world.client.create(stateful_set(replicas=3))
    await kubelet.run_all()
    kubelet.is_healthy = lambda obj: "web:2" not in obj["spec"]["containers"][0]["image"]
    await set_image(world, STATEFUL_SET, "web:2")
    await kubelet.run_all()
    assert await images(world) == ["web:1", "web:1", "web:2"]


async def test_pods_below_the_partition_keep_their_revision_even_when_recreated(world: World, kubelet: Kubelet) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await world.client.create(stateful_set(replicas=3, updateStrategy=strategy))
    await kubelet.run_all()
    await set_image(world, STATEFUL_SET, "web:2")
    await kubelet.run_all()
    assert await images(world) == ["web:1", "web:1", "web:2"]
    await world.client.delete(POD, "web-0", namespace="default")
    await kubelet.run_all()
    assert await images(world) == ["web:1", "web:1", "web:2"]
    status = await status_of(world, STATEFUL_SET)
    assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
    await change(world, STATEFUL_SET, {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    await kubelet.run_all()
    assert await images(world) == ["web:2", "web:2", "web:2"]


async def test_on_delete_updates_only_pods_that_a_user_deletes(world: World, kubelet: Kubelet) -> None:
    await world.client.create(stateful_set(replicas=2, updateStrategy={"type": "OnDelete"}))
    await kubelet.run_all()
    await set_image(world, STATEFUL_SET, "web:2")
    await kubelet.run_all()
    assert await images(world) == ["web:1", "web:1"]
    await world.client.delete(POD, "web-0", namespace="default")
    await kubelet.run_all()
    assert await images(world) == ["web:2", "web:1"]


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
async def test_more_than_one_pod_may_be_unavailable_during_an_update(
    world: World, kubelet: Kubelet, policy: str
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}
    await world.client.create(stateful_set(replicas=4, updateStrategy=strategy, podManagementPolicy=policy))
    await kubelet.run_all()
    await set_image(world, STATEFUL_SET, "web:2")
    await world.settle()
    assert await staying(world) == ["web-0", "web-1"]
    await kubelet.run_all()
    assert await images(world) == ["web:2"] * 4


async def test_revisions_are_numbered_reused_and_limited(world: World, kubelet: Kubelet) -> None:
    await world.client.create(stateful_set(replicas=1, revisionHistoryLimit=1))
    await kubelet.run_all()

    for image, expected in (
        ("web:2", {"1": 1, "2": 2}),
        ("web:1", {"1": 3, "2": 2}),
        ("web:3", {"1": 3, "3": 4}),
        ("web:4", {"3": 4, "4": 5}),
    ):
        await set_image(world, STATEFUL_SET, image)
        await kubelet.run_all()
        assert await revision_numbers(world) == expected
    (obj, _) = await listed(world, REVISION)
    assert obj["data"]["spec"]["template"]["$patch"] == "replace"
    assert obj["metadata"]["name"] == f"web-{obj['metadata']['labels']['controller.kubernetes.io/hash']}"


# Claims


async def owners_of(world: World, claim: str) -> list[str]:
    obj = await world.client.get(CLAIM, claim, namespace="default")
    return [owner["kind"] for owner in obj["metadata"].get("ownerReferences") or ()]


async def test_each_pod_has_claims_of_its_own_that_outlive_it(world: World, kubelet: Kubelet) -> None:
    await world.client.create(with_claims(replicas=2))
    await kubelet.run_all()
    assert await world.names(CLAIM) == {"data-web-0", "data-web-1"}
    volumes = (await pods(world))["web-1"]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}} in volumes
    claim = await world.client.get(CLAIM, "data-web-1", namespace="default")
    assert claim["metadata"]["labels"] == {"app": "web"}
    assert (
        "statefulset-controller",
        "SuccessfulCreate",
        "Create Claim data-web-0 Pod web-0 in StatefulSet web success",
    ) in (await events(world))
    await world.client.scale(STATEFUL_SET, "web", 0, namespace="default")
    await kubelet.run_all()
    assert await world.names(CLAIM) == {"data-web-0", "data-web-1"}


async def test_claims_go_with_the_pods_that_are_scaled_down(world: World, kubelet: Kubelet, clock: ManualClock) -> None:
    await world.client.create(with_claims(when_scaled="Delete", replicas=2))
    await kubelet.run_all()
    assert await owners_of(world, "data-web-1") == []
    await world.client.scale(STATEFUL_SET, "web", 1, namespace="default")
    await world.settle()
    assert await owners_of(world, "data-web-1") == ["Pod"]
    for _ in range(5):
        await kubelet.run_all()
        await clock.advance(1)
    assert await world.names(CLAIM) == {"data-web-0"}


async def test_claims_go_with_the_set(world: World, kubelet: Kubelet, clock: ManualClock) -> None:
    await world.client.create(with_claims(when_deleted="Delete", replicas=2))
    await kubelet.run_all()
    assert await owners_of(world, "data-web-0") == ["StatefulSet"]
    await world.client.delete(STATEFUL_SET, "web", namespace="default", propagation="Background")
    for _ in range(5):
        await kubelet.run_all()
        await clock.advance(1)
    assert await world.names(CLAIM) == set()


async def test_owners_follow_a_change_of_the_retention_policy(world: World, kubelet: Kubelet) -> None:
    await world.client.create(with_claims(replicas=1))
    await kubelet.run_all()
    for policy, expected in (
        ({"whenDeleted": "Delete"}, ["StatefulSet"]),
        ({"whenScaled": "Delete"}, ["StatefulSet"]),
        ({"whenDeleted": "Retain"}, []),
    ):
        await change(world, STATEFUL_SET, {"spec": {"persistentVolumeClaimRetentionPolicy": policy}})
        await world.settle()
        assert await owners_of(world, "data-web-0") == expected


async def test_an_adopted_pod_without_the_volumes_of_its_set_is_reported(
    world: World, kubelet: Kubelet, clock: ManualClock
) -> None:
    template = with_claims()["spec"]["template"]
    metadata = {**template["metadata"], "name": "web-0", "namespace": "default"}
    await world.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    await kubelet.run_all()
    await world.client.create(with_claims(replicas=1))
    await world.settle()
    assert await world.names(CLAIM) == {"data-web-0"}
    recorded = {(reason, message) for _, reason, message in await events(world)}
    assert not [message for reason, message in recorded if reason == "SuccessfulUpdate"]
    (failed,) = [message for reason, message in recorded if reason == "FailedUpdate"]
    assert failed.startswith(
        'Update Pod web-0 in StatefulSet web failed error: Pod "web-0" is invalid: spec: Forbidden: '
        "pod updates may not change fields other than"
    )
    await world.client.delete("v1/Pod", "web-0", namespace="default", grace_seconds=0)
    await kubelet.run_all()
    await clock.advance(5)
    await kubelet.run_all()
    volumes = (await pods(world))["web-0"]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}} in volumes
    assert (await world.client.get(STATEFUL_SET, "web", namespace="default"))["status"]["readyReplicas"] == 1


async def test_a_claim_that_is_being_deleted_holds_its_pod_back(world: World, clock: ManualClock) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-web-0", "namespace": "default", "finalizers": ["example.com/keep"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await world.client.create(claim)
    await world.client.delete(CLAIM, "data-web-0", namespace="default")
    await world.client.create(with_claims(replicas=1))
    await world.settle()
    assert await staying(world) == []
    failed = [message for _, reason, message in await events(world) if reason == "FailedCreate"]
    assert failed[0] == "Create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted"
    await world.client.patch(CLAIM, "data-web-0", {"metadata": {"finalizers": None}}, namespace="default")
    await clock.advance(5)
    await world.settle()
    assert await staying(world) == ["web-0"]


# Numbers that no cluster can hold

MOST_INT32 = 2**31 - 1


@pytest.fixture
def few_unscheduled(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit of pods without a node that a test reaches soon, with two batches."""
    monkeypatch.setattr(pod_control, "BURST", 20)
    monkeypatch.setattr(pod_control, "MOST_UNSCHEDULED", 30)
    return 30


async def test_a_parallel_set_of_any_size_creates_pods_in_batches_while_they_get_nodes(
    world: World, kubelet: Kubelet, clock: ManualClock, few_unscheduled: int
) -> None:
    await world.client.create(stateful_set(replicas=MOST_INT32, podManagementPolicy="Parallel"))
    await world.settle()
    await clock.advance(1)
    await world.settle()
    assert await staying(world) == sorted(f"web-{ordinal}" for ordinal in range(few_unscheduled))
    [controller] = [running for running in world.manager.controllers if running.name == "statefulset"]
    failures = [run.error for run in controller.latest()]
    assert any("30 pods have no node yet" in failure for failure in failures)
    await kubelet.step()
    await world.settle()
    await clock.advance(1)
    await world.settle()
    assert len(await staying(world)) == 2 * few_unscheduled


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "ReplicationController"])
async def test_a_set_that_is_too_large_is_scaled_down_at_once(
    world: World, kubelet: Kubelet, clock: ManualClock, few_unscheduled: int, kind: str
) -> None:
    parallel = {"serviceName": "db", "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    kind = f"v1/{kind}" if kind == "ReplicationController" else f"apps/v1/{kind}"
    await world.client.create(workload(kind, replicas=MOST_INT32, **parallel))
    await world.settle()
    await clock.advance(1)
    await world.settle()
    assert len(await staying(world)) == few_unscheduled
    await change(world, kind, {"spec": {"replicas": 3}})
    await kubelet.run_all()
    await clock.advance(1)
    await kubelet.run_all()
    assert len(await staying(world)) == 3


async def test_the_last_ordinal_is_that_of_an_int32(world: World, kubelet: Kubelet) -> None:
    await world.client.create(
        stateful_set(replicas=MOST_INT32, ordinals={"start": MOST_INT32}, podManagementPolicy="Parallel")
    )
    await kubelet.run_all()
    assert await staying(world) == [f"web-{MOST_INT32}"]


async def test_an_update_of_the_largest_set_reaches_the_pods_that_exist(
    world: World, kubelet: Kubelet, few_unscheduled: int
) -> None:
    await world.client.create(stateful_set(replicas=MOST_INT32, podManagementPolicy="Parallel"))
    await world.settle()
    await set_image(world, STATEFUL_SET, "web:2")
    await world.settle()
    assert "web:2" in await images(world)
