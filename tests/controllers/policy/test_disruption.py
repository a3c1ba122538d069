"""Disruption budgets know how many pods may go, and evictions keep to them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.objects import POD, add_pod, events_of, run_pod
from tests.controllers.world import World, widget_definition

from pinnace.client.client import Client
from pinnace.client.exchange import Retries
from pinnace.cluster.control_plane import SYSTEM
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.reconcile.owners import owner_reference
from pinnace.testing.clock import ManualClock

BUDGET = "policy/v1/PodDisruptionBudget"


def budget(name: str = "web", **spec: Any) -> Object:
    wanted = {"selector": {"matchLabels": {"app": "web"}}, **spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": wanted}


async def replica_set(world: World, replicas: int) -> Object:
    """A ReplicaSet that adopts the pods that are there, and makes others that never become ready."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
    }
    metadata = {"name": "web", "namespace": "default"}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return await world.client.create(
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
    )


async def owned_pods(world: World, owner: Object | None, count: int, *, node: str = "") -> None:
    """Without a node by default: time may pass, and nodes that are missing or silent lose their pods."""
    for number in range(count):
        name = f"p{number}"
        await add_pod(world, name, node=node, ip=f"10.244.0.{number + 1}")
        if owner is not None:
            references = [owner_reference(owner)]
            patch = {"metadata": {"ownerReferences": references}}
            await world.client.patch(POD, name, patch, namespace="default")


async def status(world: World, name: str = "web") -> Object:
    await world.settle()
    current: Object = (await world.client.get(BUDGET, name, namespace="default"))["status"]
    return current


async def evict(world: World, name: str) -> None:
    metadata = {"name": name, "namespace": "default"}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    # Without retries: they would wait for the test's clock.
    client = Client(world.transport_of(SYSTEM), clock=world.client.clock, retries=Retries(attempts=1))
    await client.create_below(POD, name, "eviction", eviction, namespace="default")


def numbers(obj: Object) -> tuple[int, int, int, int]:
    return obj["expectedPods"], obj["desiredHealthy"], obj["currentHealthy"], obj["disruptionsAllowed"]


async def test_a_number_of_pods_counts_those_that_are_there(world: World) -> None:
    await owned_pods(world, None, 3)
    await world.client.create(budget(minAvailable=2))
    current = await status(world)
    assert numbers(current) == (3, 2, 3, 1)
    assert current["observedGeneration"] == 1
    (allowed,) = current["conditions"]
    assert (allowed["type"], allowed["status"], allowed["reason"]) == ("DisruptionAllowed", "True", "SufficientPods")


async def test_pods_that_are_not_ready_or_are_leaving_are_not_healthy(world: World) -> None:
    await owned_pods(world, None, 3, node="n1")
    await world.client.create(budget(minAvailable=2))
    await run_pod(world, "p0", ready=False)
    await world.client.delete(POD, "p1", namespace="default", grace_seconds=30)
    current = await status(world)
    assert numbers(current) == (3, 2, 1, 0)
    assert current["conditions"][0]["reason"] == "InsufficientPods"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maxUnavailable": 1}, (10, 9, 3, 0)),
        ({"maxUnavailable": "25%"}, (10, 7, 3, 0)),
        ({"minAvailable": "25%"}, (10, 3, 3, 0)),
        ({"minAvailable": "20%"}, (10, 2, 3, 1)),
    ],
    ids=["unavailable", "unavailable in percent, rounded up", "available in percent, rounded up", "available"],
)
async def test_percentages_are_of_what_the_controllers_want(
    world: World, spec: Object, expected: tuple[int, int, int, int]
) -> None:
    await owned_pods(world, None, 3)
    await replica_set(world, 10)
    await world.client.create(budget(**spec))
    assert numbers(await status(world)) == expected


async def test_a_custom_kind_with_a_scale_counts_too(world: World) -> None:
    definition = widget_definition()
    definition["spec"]["versions"][0]["subresources"] = {
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    }
    await world.client.create(definition)
    await world.served("example.com/v1/Widget")
    metadata = {"name": "w", "namespace": "default"}
    made = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"replicas": 4}}
    await owned_pods(world, await world.client.create(made), 2)
    await world.client.create(budget(minAvailable="50%"))
    assert numbers(await status(world)) == (4, 2, 2, 0)


async def test_a_kind_without_a_scale_allows_nothing_and_says_why(world: World) -> None:
    await world.define_widgets()
    metadata = {"name": "w", "namespace": "default"}
    made = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}
    await owned_pods(world, await world.client.create(made), 2)
    await world.client.create(budget(minAvailable="50%"))
    current = await status(world)
    assert current["disruptionsAllowed"] == 0
    (allowed,) = current["conditions"]
    assert (allowed["status"], allowed["reason"]) == ("False", "SyncFailed")
    assert allowed["message"] == "widgets.example.com does not implement the scale subresource"
    assert len(await events_of(world, "CalculateExpectedPodCountFailed")) == 1


async def test_an_owner_that_is_gone_allows_nothing(world: World) -> None:
    gone = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "gone", "uid": "1-2-3"}}
    await world.client.create(budget(maxUnavailable=1))
    await add_pod(world, "p0", node="")
    reference = owner_reference(gone)
    # The garbage collector would delete the pod with its owner: a finalizer keeps it.
    patch = {"metadata": {"ownerReferences": [reference], "finalizers": ["example.com/wait"]}}
    await world.client.patch(POD, "p0", patch, namespace="default")
    current = await status(world)
    assert current["conditions"][0]["message"] == 'found no controllers for pod "p0"'


async def test_pods_without_a_controller_are_named_to_the_user(world: World) -> None:
    await owned_pods(world, None, 1)
    await world.client.create(budget(maxUnavailable=1))
    assert numbers(await status(world)) == (0, 0, 1, 0)
    (event,) = await events_of(world, "UnmanagedPods")
    assert "(selector: &LabelSelector{MatchLabels:map[string]string{app: web,}" in event["message"]


async def test_an_eviction_takes_from_the_allowance_and_is_refused_without_one(world: World) -> None:
    await owned_pods(world, None, 3)
    await world.client.create(budget(minAvailable=2))
    await status(world)
    await evict(world, "p0")
    current = await status(world)
    assert numbers(current) == (2, 2, 2, 0) or numbers(current) == (3, 2, 2, 0)
    with pytest.raises(errors.TooManyRequests) as refused:
        await evict(world, "p1")
    assert str(refused.value) == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = refused.value.details["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget web needs 2 healthy pods and has 2 currently"


async def test_a_budget_that_could_not_be_computed_says_so_to_who_evicts(world: World) -> None:
    await world.define_widgets()
    metadata = {"name": "w", "namespace": "default"}
    made = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}
    await owned_pods(world, await world.client.create(made), 1)
    await world.client.create(budget(maxUnavailable=1))
    current = await status(world)
    # The counts come with the next budget that works; the generation is what an eviction asks for first.
    patch = {"status": {**current, "observedGeneration": 1}}
    await world.client.patch(BUDGET, "web", patch, namespace="default", subresource="status")
    with pytest.raises(errors.TooManyRequests) as refused:
        await evict(world, "p0")
    assert (
        "because it failed sync: widgets.example.com does not implement"
        in refused.value.details["causes"][0]["message"]
    )


async def test_a_pod_that_was_to_go_and_stays_counts_again_after_two_minutes(world: World, clock: ManualClock) -> None:
    await owned_pods(world, None, 3)
    await world.client.create(budget(minAvailable=2))
    current = await status(world)
    promised = {"status": {**current, "disruptionsAllowed": 0, "disruptedPods": {"p0": "2026-01-01T00:00:00Z"}}}
    await world.client.patch(BUDGET, "web", promised, namespace="default", subresource="status")
    assert numbers(await status(world)) == (3, 2, 2, 0)
    await clock.advance(122)
    assert numbers(await status(world)) == (3, 2, 3, 1)
    assert len(await events_of(world, "NotDeleted")) == 1


async def test_a_mark_of_disruption_that_nothing_follows_is_taken_back(world: World, clock: ManualClock) -> None:
    await add_pod(world, "p0", node="")
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    patch = {"status": {"conditions": [{**mark, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    await world.client.patch(POD, "p0", patch, namespace="default", subresource="status", form="strategic")
    await world.settle()
    await clock.advance(119)
    await world.settle()
    for seconds, expected in ((0.0, "True"), (2.0, "False")):
        await clock.advance(seconds)
        await world.settle()
        pod = await world.client.get(POD, "p0", namespace="default")
        (current,) = [condition for condition in pod["status"]["conditions"] if condition["type"] == "DisruptionTarget"]
        assert current["status"] == expected


async def test_a_budget_without_pods_says_so(world: World) -> None:
    await world.client.create(budget(minAvailable=1))
    assert numbers(await status(world)) == (0, 1, 0, 0)
    assert len(await events_of(world, "NoPods")) == 1
