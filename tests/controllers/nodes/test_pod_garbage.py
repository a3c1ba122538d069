"""Pods that no kubelet will end are ended by the cluster."""

from __future__ import annotations

from tests.controllers.objects import NODE, POD, add_node, add_pod, pod, report_node
from tests.controllers.world import World

from pinnace.controllers.nodes.pod_garbage import PodGarbage
from pinnace.model.objects import Object
from pinnace.reconcile.conditions import condition
from pinnace.testing.clock import ManualClock


async def find(world: World, name: str) -> Object | None:
    await world.settle()
    return await world.client.get_or_none(POD, name, namespace="default")


async def test_the_pods_of_a_node_that_is_gone_fail_and_go(world: World, clock: ManualClock) -> None:
    await add_node(world)
    await add_pod(world, "a")
    held = await add_pod(world, "b")
    patch = {"metadata": {"finalizers": ["example.com/wait"], "uid": held["metadata"]["uid"]}}
    await world.client.patch(POD, "b", patch, namespace="default")
    await world.client.delete(NODE, "n1")
    await world.settle()
    await clock.advance(39)
    assert await find(world, "a") is not None, "the node may come back"
    await clock.advance(2)
    assert await find(world, "a") is None
    left = await find(world, "b")
    assert left is not None
    assert left["status"]["phase"] == "Failed"
    mark = condition(left, "DisruptionTarget")
    assert mark is not None
    assert (mark["reason"], mark["message"]) == ("DeletionByPodGC", "PodGC: node no longer exists")


async def test_a_node_that_comes_back_in_time_keeps_its_pods(world: World, clock: ManualClock) -> None:
    await add_node(world)
    await add_pod(world, "a")
    await world.client.delete(NODE, "n1")
    await world.settle()
    await clock.advance(20)
    await add_node(world)
    await clock.advance(60)
    assert await find(world, "a") is not None


async def test_a_pod_without_a_node_that_is_to_go_has_failed(world: World) -> None:
    waiting = pod("a")
    waiting["metadata"]["finalizers"] = ["example.com/wait"]
    await world.client.create(waiting)
    await world.client.delete(POD, "a", namespace="default")
    left = await find(world, "a")
    assert left is not None
    assert left["status"]["phase"] == "Failed"


async def test_a_node_out_of_service_lets_its_leaving_pods_go(world: World) -> None:
    await add_node(world, "other")
    await add_node(world)
    tolerations = [{"operator": "Exists"}]
    await add_pod(world, "a", tolerations=tolerations)
    await report_node(world, Ready="False")
    await world.client.delete(POD, "a", namespace="default", grace_seconds=30)
    assert await find(world, "a") is not None
    out = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    obj = await world.client.get(NODE, "n1")
    obj["spec"]["taints"] = [*(obj["spec"].get("taints") or ()), out]
    await world.client.update(obj)
    assert await find(world, "a") is None


async def test_of_finished_pods_the_oldest_go(world: World, clock: ManualClock) -> None:
    await add_node(world)
    world.manager.add(PodGarbage(world.manager, world.client, most_finished=2).controller)
    for name in ("a", "b", "c"):
        await add_pod(world, name, phase="Succeeded")
        await clock.advance(1)
    assert await find(world, "a") is None
    assert await find(world, "b") is not None
    assert await find(world, "c") is not None
