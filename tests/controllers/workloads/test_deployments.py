"""Deployments roll out: one ReplicaSet per template, never too many pods and never too few."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.kubelet import Kubelet
from tests.controllers.workloads.objects import (
    DEPLOYMENT,
    POD,
    REPLICA_SET,
    change,
    condition,
    events,
    listed,
    set_image,
    status_of,
    template,
    workload,
)
from tests.controllers.world import World

from pinnace.controllers.workloads.revisions import template_hash
from pinnace.model.objects import Object
from pinnace.model.typed_objects import PodTemplateSpec
from pinnace.reconcile.owners import controller_of, owner_reference
from pinnace.testing.clock import ManualClock

REVISION = "deployment.kubernetes.io/revision"


def image_of(obj: Object) -> str:
    spec = obj["spec"].get("template", obj)["spec"]
    image: str = spec["containers"][0]["image"]
    return image.removeprefix("example.com/")


async def sizes(world: World) -> dict[str, int]:
    """The wanted replicas of each image's ReplicaSet."""
    return {image_of(replica_set): replica_set["spec"]["replicas"] for replica_set in await listed(world, REPLICA_SET)}


async def revisions(world: World) -> dict[str, str]:
    return {
        image_of(replica_set): replica_set["metadata"]["annotations"][REVISION]
        for replica_set in await listed(world, REPLICA_SET)
    }


def rolling(surge: int | str, unavailable: int | str) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


async def test_a_deployment_makes_a_replica_set_named_by_its_template(world: World, kubelet: Kubelet) -> None:
    made = await world.client.create(workload(DEPLOYMENT, replicas=3))
    await kubelet.run_all()
    (replica_set,) = await listed(world, REPLICA_SET)
    hash_value = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{hash_value}"
    assert replica_set["metadata"]["ownerReferences"] == [owner_reference(made)]
    assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": hash_value}
    assert replica_set["metadata"]["annotations"] == {
        REVISION: "1",
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    }
    assert all(pod["metadata"]["labels"]["pod-template-hash"] == hash_value for pod in await listed(world, POD))
    deployment = await world.client.get(DEPLOYMENT, "web", namespace="default")
    assert deployment["metadata"]["annotations"][REVISION] == "1"
    conditions = {
        condition["type"]: (condition["status"], condition["reason"])
        for condition in deployment["status"].pop("conditions")
    }
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    generation = deployment["metadata"]["generation"]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 3)
    assert deployment["status"] == {**counts, "observedGeneration": generation, "terminatingReplicas": 0}
    name = replica_set["metadata"]["name"]
    assert ("deployment-controller", "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to 3") in await events(
        world
    )


async def test_nothing_is_written_when_nothing_changes(world: World, kubelet: Kubelet) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=2))
    await kubelet.run_all()
    before = [
        obj["metadata"]["resourceVersion"] for kind in (DEPLOYMENT, REPLICA_SET) for obj in await listed(world, kind)
    ]
    for controller in world.manager.controllers:
        for kind in (DEPLOYMENT, REPLICA_SET):
            if controller.kind is not None and kind.endswith(f"/{controller.kind.name}"):
                for key in world.manager.cache(kind):
                    controller.enqueue(key, "test")
    await world.settle()
    after = [
        obj["metadata"]["resourceVersion"] for kind in (DEPLOYMENT, REPLICA_SET) for obj in await listed(world, kind)
    ]
    assert after == before


@pytest.mark.parametrize(
    ("surge", "unavailable", "first", "second"),
    [
        (1, 0, {"web:1": 4, "web:2": 1}, {"web:1": 3, "web:2": 2}),
        (0, 1, {"web:1": 3, "web:2": 1}, {"web:1": 2, "web:2": 2}),
        (2, 2, {"web:1": 2, "web:2": 4}, {"web:1": 0, "web:2": 4}),
        ("25%", "25%", {"web:1": 3, "web:2": 2}, {"web:1": 1, "web:2": 4}),
        ("1%", "1%", {"web:1": 4, "web:2": 1}, {"web:1": 3, "web:2": 2}),
        ("0%", "1%", {"web:1": 3, "web:2": 1}, {"web:1": 2, "web:2": 2}),
        ("100%", 0, {"web:1": 4, "web:2": 4}, {"web:1": 0, "web:2": 4}),
    ],
    ids=str,
)
async def test_a_rollout_moves_by_surge_and_unavailable(
    world: World,
    kubelet: Kubelet,
    surge: int | str,
    unavailable: int | str,
    first: dict[str, int],
    second: dict[str, int],
) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=4, strategy=rolling(surge, unavailable)))
    await kubelet.run_all()
    await set_image(world, DEPLOYMENT, "web:2")
    await world.settle()
    assert await sizes(world) == first
    await kubelet.step()
    await world.settle()
    assert await sizes(world) == second
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 0, "web:2": 4}
    assert {image_of(pod) for pod in await listed(world, POD)} == {"web:2"}
    assert await revisions(world) == {"web:1": "1", "web:2": "2"}


async def test_a_rollout_that_does_not_become_ready_stops_and_misses_its_deadline(
    world: World, kubelet: Kubelet, clock: ManualClock
) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=3, strategy=rolling(1, 0), progressDeadlineSeconds=60))
    await kubelet.run_all()
    kubelet.is_healthy = lambda pod: image_of(pod) == "web:1"
    await set_image(world, DEPLOYMENT, "web:2")
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 3, "web:2": 1}
    await clock.advance(59)
    await world.settle()
    stated = await condition(world, DEPLOYMENT, "Progressing")
    assert stated is not None
    assert stated[:2] == ("True", "ReplicaSetUpdated")
    await clock.advance(3)
    await world.settle()
    name = next(
        replica_set["metadata"]["name"]
        for replica_set in await listed(world, REPLICA_SET)
        if image_of(replica_set) == "web:2"
    )
    assert await condition(world, DEPLOYMENT, "Progressing") == (
        "False",
        "ProgressDeadlineExceeded",
        f'ReplicaSet "{name}" has timed out progressing.',
    )
    assert await condition(world, DEPLOYMENT, "Available") == (
        "True",
        "MinimumReplicasAvailable",
        "Deployment has minimum availability.",
    )
    kubelet.is_healthy = lambda pod: True
    await kubelet.run_all()
    assert await condition(world, DEPLOYMENT, "Progressing") == (
        "True",
        "NewReplicaSetAvailable",
        f'ReplicaSet "{name}" has successfully progressed.',
    )


async def test_min_ready_seconds_hold_a_rollout_back(world: World, kubelet: Kubelet, clock: ManualClock) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=2, strategy=rolling(1, 0), minReadySeconds=10))
    await kubelet.run_all()
    await clock.advance(10)
    await set_image(world, DEPLOYMENT, "web:2")
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 2, "web:2": 1}
    await clock.advance(10)
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 1, "web:2": 2}


async def test_recreate_waits_until_the_last_old_pod_has_stopped(world: World, kubelet: Kubelet) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=2, strategy={"type": "Recreate"}))
    await kubelet.run_all()
    await set_image(world, DEPLOYMENT, "web:2")
    await world.settle()
    assert await sizes(world) == {"web:1": 0}
    first, second = sorted(await world.names(POD))
    await kubelet.end(first)
    await world.settle()
    assert await sizes(world) == {"web:1": 0}
    await kubelet.end(second)
    await world.settle()
    assert await sizes(world) == {"web:1": 0, "web:2": 2}
    await kubelet.run_all()
    assert (await status_of(world, DEPLOYMENT))["availableReplicas"] == 2


async def test_a_paused_deployment_scales_and_does_not_roll_out(world: World, kubelet: Kubelet) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=2))
    await kubelet.run_all()
    await change(world, DEPLOYMENT, {"spec": {"paused": True}})
    await set_image(world, DEPLOYMENT, "web:2")
    await world.client.scale(DEPLOYMENT, "web", 4, namespace="default")
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 4}
    assert await condition(world, DEPLOYMENT, "Progressing") == ("Unknown", "DeploymentPaused", "Deployment is paused")
    await change(world, DEPLOYMENT, {"spec": {"paused": False}})
    await world.settle()
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 0, "web:2": 4}
    stated = await condition(world, DEPLOYMENT, "Progressing")
    assert stated is not None
    assert stated[1] == "NewReplicaSetAvailable"


async def test_a_template_that_comes_back_reuses_its_replica_set_with_a_new_revision(
    world: World, kubelet: Kubelet
) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=1))
    await kubelet.run_all()
    for image in ("web:2", "web:1", "web:2"):
        await set_image(world, DEPLOYMENT, image)
        await kubelet.run_all()
    assert await revisions(world) == {"web:1": "3", "web:2": "4"}
    result = {
        image_of(replica_set): replica_set["metadata"]["annotations"]
        for replica_set in await listed(world, REPLICA_SET)
    }
    assert result["web:2"]["deployment.kubernetes.io/revision-history"] == "2"
    deployment = await world.client.get(DEPLOYMENT, "web", namespace="default")
    assert deployment["metadata"]["annotations"][REVISION] == "4"


async def test_a_rollback_by_annotation_takes_the_template_of_a_revision(world: World, kubelet: Kubelet) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=1))
    await kubelet.run_all()
    await set_image(world, DEPLOYMENT, "web:2")
    await kubelet.run_all()
    for wanted, image, reason in (
        ("1", "web:1", "DeploymentRollback"),
        ("0", "web:2", "DeploymentRollback"),
        ("9", "web:2", "DeploymentRollbackRevisionNotFound"),
    ):
        annotations = {"deprecated.deployment.rollback.to": wanted}
        await change(world, DEPLOYMENT, {"metadata": {"annotations": annotations}})
        await kubelet.run_all()
        deployment = await world.client.get(DEPLOYMENT, "web", namespace="default")
        assert image_of(deployment) == image
        assert "deprecated.deployment.rollback.to" not in deployment["metadata"]["annotations"]
        assert reason in [event_reason for _, event_reason, _ in await events(world)]


async def test_old_revisions_beyond_the_limit_are_deleted(world: World, kubelet: Kubelet) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=1, revisionHistoryLimit=2))
    for number in range(1, 6):
        await set_image(world, DEPLOYMENT, f"web:{number}")
        await kubelet.run_all()
    assert await revisions(world) == {"web:3": "3", "web:4": "4", "web:5": "5"}


async def test_scaling_in_the_middle_of_a_rollout_is_shared_in_proportion(world: World, kubelet: Kubelet) -> None:
    """The example of Kubernetes' documentation: 10 replicas, surge 3, unavailable 2, scaled to 15."""
    await world.client.create(workload(DEPLOYMENT, replicas=10, strategy=rolling(3, 2)))
    await kubelet.run_all()
    kubelet.is_healthy = lambda pod: image_of(pod) == "web:1"
    await set_image(world, DEPLOYMENT, "web:2")
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 8, "web:2": 5}
    await world.client.scale(DEPLOYMENT, "web", 15, namespace="default")
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 11, "web:2": 7}
    await world.client.scale(DEPLOYMENT, "web", 0, namespace="default")
    await kubelet.run_all()
    assert await sizes(world) == {"web:1": 0, "web:2": 0}


async def test_annotations_and_min_ready_seconds_follow_without_a_new_revision(world: World, kubelet: Kubelet) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=1))
    await kubelet.run_all()
    change_of = {"metadata": {"annotations": {"kubernetes.io/change-cause": "because"}}, "spec": {"minReadySeconds": 5}}
    await change(world, DEPLOYMENT, change_of)
    await world.settle()
    (replica_set,) = await listed(world, REPLICA_SET)
    assert replica_set["metadata"]["annotations"]["kubernetes.io/change-cause"] == "because"
    assert replica_set["spec"]["minReadySeconds"] == 5


# Ownership


async def test_the_revision_goes_on_from_that_of_an_adopted_replica_set(world: World, kubelet: Kubelet) -> None:
    old = workload(REPLICA_SET, "old", image="web:0", replicas=1)
    old["metadata"]["labels"] = {"app": "web"}
    old["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "3546343826724305832"}
    await world.client.create(old)
    await world.client.create(workload(DEPLOYMENT, replicas=1))
    await kubelet.run_all()
    made = await world.client.get(DEPLOYMENT, "web", namespace="default")
    assert made["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3546343826724305833"


async def test_replica_sets_are_adopted_and_released_by_their_labels(world: World, kubelet: Kubelet) -> None:
    orphan = workload(REPLICA_SET, "old", image="web:0", replicas=1)
    orphan["metadata"]["labels"] = {"app": "web"}
    await world.client.create(orphan)
    made = await world.client.create(workload(DEPLOYMENT, replicas=1))
    await kubelet.run_all()
    adopted = await world.client.get(REPLICA_SET, "old", namespace="default")
    assert adopted["metadata"]["ownerReferences"] == [owner_reference(made)]
    assert adopted["spec"]["replicas"] == 0
    await change(world, REPLICA_SET, {"metadata": {"labels": {"app": "debug"}}}, "old")
    await world.settle()
    released = await world.client.get(REPLICA_SET, "old", namespace="default")
    assert "ownerReferences" not in released["metadata"]


async def test_the_name_of_another_owners_replica_set_is_evaded(world: World, kubelet: Kubelet) -> None:
    """A hash collision: the name that follows from the template is taken, so it is counted and hashed anew."""
    await world.client.create(workload(DEPLOYMENT, "probe", replicas=0))
    await world.settle()
    (probe,) = await listed(world, REPLICA_SET)
    taken = workload(REPLICA_SET, f"web-{probe['metadata']['labels']['pod-template-hash']}", replicas=0)
    taken["spec"]["selector"] = {"matchLabels": {"app": "db"}}
    taken["spec"]["template"] = template("db:1", {"app": "db"})
    await world.client.create(taken)
    await world.client.delete(DEPLOYMENT, "probe", namespace="default")
    await world.settle()
    await world.client.create(workload(DEPLOYMENT, replicas=1))
    await kubelet.run_all()
    status = await status_of(world, DEPLOYMENT)
    assert (status["collisionCount"], status["availableReplicas"]) == (1, 1)
    owned = [replica_set for replica_set in await listed(world, REPLICA_SET) if controller_of(replica_set) is not None]
    assert [obj["metadata"]["name"] == taken["metadata"]["name"] for obj in owned] == [False]


def test_the_hash_of_a_template_depends_on_nothing_but_its_content_and_collisions() -> None:
    template: PodTemplateSpec = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"containers": []}}
    other: PodTemplateSpec = {"spec": {"containers": []}, "metadata": {"labels": {"b": "2", "a": "1"}}}
    assert template_hash(template) == template_hash(other)
    assert set(template_hash(template)) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert len({template_hash(template), template_hash(template, 0), template_hash(template, 1)}) == 3


# Refusals


async def test_a_quota_that_refuses_half_of_a_rollout_shows_on_the_deployment(
    world: World, kubelet: Kubelet, clock: ManualClock
) -> None:
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
    }
    await world.client.create({**quota, "spec": {"hard": {"pods": "4"}}})
    await world.client.create(workload(DEPLOYMENT, replicas=3, strategy=rolling(3, 0)))
    await kubelet.run_all()
    await set_image(world, DEPLOYMENT, "web:2")
    await world.settle()
    assert await sizes(world) == {"web:1": 3, "web:2": 3}
    assert len(await listed(world, POD)) == 4
    stated = await condition(world, DEPLOYMENT, "ReplicaFailure")
    assert stated is not None
    assert stated[:2] == ("True", "FailedCreate")
    for _ in range(12):
        await kubelet.run_all()
        await clock.advance(30)
    assert await sizes(world) == {"web:1": 0, "web:2": 3}
    assert {image_of(pod) for pod in await listed(world, POD)} == {"web:2"}
    assert await condition(world, DEPLOYMENT, "ReplicaFailure") is None


async def test_a_quota_of_replica_sets_shows_why_nothing_is_rolled_out(world: World, clock: ManualClock) -> None:
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
    }
    await world.client.create({**quota, "spec": {"hard": {"count/replicasets.apps": "0"}}})
    await world.client.create(workload(DEPLOYMENT, replicas=1))
    await world.settle()
    stated = await condition(world, DEPLOYMENT, "Progressing")
    assert stated is not None
    assert stated[:2] == ("False", "ReplicaSetCreateError")
    assert stated[2].startswith('Failed to create new replica set "web-')
    await world.client.delete("v1/ResourceQuota", "q", namespace="default")
    await clock.advance(5)
    await world.settle()
    assert await sizes(world) == {"web:1": 1}


async def test_the_dependents_of_a_deployment_go_with_it(world: World, kubelet: Kubelet, clock: ManualClock) -> None:
    await world.client.create(workload(DEPLOYMENT, replicas=2))
    await kubelet.run_all()
    await world.client.delete(DEPLOYMENT, "web", namespace="default", propagation="Foreground")
    for _ in range(5):
        await kubelet.run_all()
        await clock.advance(1)  # The collector tries again where a status was written in between.
    assert [*await listed(world, DEPLOYMENT), *await listed(world, REPLICA_SET), *await listed(world, POD)] == []
