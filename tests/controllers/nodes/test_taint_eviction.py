"""Pods leave nodes whose NoExecute taints they do not tolerate."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.objects import NODE, POD, add_node, add_pod, events_of
from tests.controllers.world import World

from pinnace.controllers.nodes.taints import toleration_seconds
from pinnace.controllers.pods import Toleration
from pinnace.model.objects import Object
from pinnace.reconcile.conditions import condition
from pinnace.testing.clock import ManualClock

TAINT = {"key": "example.com/maintenance", "effect": "NoExecute", "value": "yes"}
TOLERATED: dict[str, Any] = {"key": "example.com/maintenance", "operator": "Exists", "effect": "NoExecute"}


async def taint(world: World, *taints: Object) -> None:
    await world.client.patch(NODE, "n1", {"spec": {"taints": list(taints)}})
    await world.settle()


async def is_leaving(world: World, name: str) -> bool:
    await world.settle()
    obj = await world.client.get_or_none(POD, name, namespace="default")
    return obj is None or "deletionTimestamp" in obj["metadata"]


async def test_a_pod_that_does_not_tolerate_the_taint_goes_at_once(world: World) -> None:
    await add_node(world)
    await add_pod(world, "a")
    await add_pod(world, "b", tolerations=[TOLERATED])
    await taint(world, TAINT)
    assert await is_leaving(world, "a")
    assert not await is_leaving(world, "b")
    pod = await world.client.get(POD, "a", namespace="default")
    mark = condition(pod, "DisruptionTarget")
    assert mark is not None
    assert (mark["status"], mark["reason"]) == ("True", "DeletionByTaintManager")
    assert mark["message"] == "Taint manager: deleting due to NoExecute taint"
    (event,) = await events_of(world, "TaintManagerEviction")
    assert event["message"] == "Marking for deletion Pod default/a"


async def test_a_pod_goes_when_its_tolerated_time_is_over(world: World, clock: ManualClock) -> None:
    await add_node(world)
    await add_pod(world, "a", tolerations=[{**TOLERATED, "tolerationSeconds": 30}])
    await taint(world, TAINT)
    await clock.advance(29)
    assert not await is_leaving(world, "a")
    await clock.advance(2)
    assert await is_leaving(world, "a")


async def test_a_taint_that_is_taken_off_in_time_spares_the_pod(world: World, clock: ManualClock) -> None:
    await add_node(world)
    await add_pod(world, "a", tolerations=[{**TOLERATED, "tolerationSeconds": 30}])
    await taint(world, TAINT)
    await clock.advance(20)
    await taint(world)
    await clock.advance(60)
    assert not await is_leaving(world, "a")
    messages = [event["message"] for event in await events_of(world, "TaintManagerEviction")]
    assert messages == ["Cancelling deletion of Pod default/a"]


async def test_a_pod_that_comes_to_a_tainted_node_goes(world: World) -> None:
    await add_node(world, taints=[TAINT])
    await add_pod(world, "a")
    assert await is_leaving(world, "a")


async def test_a_node_that_vanishes_in_the_middle_leaves_its_pods_to_the_garbage_collector(
    world: World, clock: ManualClock
) -> None:
    await add_node(world)
    await add_pod(world, "a", tolerations=[{**TOLERATED, "tolerationSeconds": 300}])
    await taint(world, TAINT)
    await world.client.delete(NODE, "n1")
    await world.settle()
    assert not await is_leaving(world, "a")
    await clock.advance(41)
    await world.settle()
    assert await world.client.get_or_none(POD, "a", namespace="default") is None


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], 0.0),
        ([Toleration(operator="Exists")], None),
        ([Toleration(key="k", value="v", effect="NoExecute")], None),
        ([Toleration(key="k", value="other")], 0.0),
        ([Toleration(key="k", operator="Exists", tolerationSeconds=5)], 5.0),
        ([Toleration(key="k", operator="Exists", tolerationSeconds=-5)], 0.0),
        ([Toleration(key="k", operator="Exists", effect="NoSchedule")], 0.0),
    ],
    ids=["none", "everything", "equal", "another value", "for a time", "for no time", "another effect"],
)
def test_tolerations_say_how_long_a_pod_may_stay(tolerations: list[Toleration], expected: float | None) -> None:
    assert toleration_seconds([{"key": "k", "value": "v", "effect": "NoExecute"}], tolerations) == expected
