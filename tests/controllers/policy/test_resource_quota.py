"""The status of quotas follows the objects that they count, of every kind."""

from __future__ import annotations

import pytest
from tests.controllers.objects import POD, add_pod, pod
from tests.controllers.world import World, widget

from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

QUOTA = "v1/ResourceQuota"


@pytest.fixture
def left_out() -> frozenset[str]:
    """Leave the pods of a silent node alone."""
    return frozenset(("node-lifecycle-controller", "pod-garbage-collector-controller", "taint-eviction-controller"))


async def add_quota(world: World, **hard: str) -> None:
    metadata = {"name": "q", "namespace": "default"}
    await world.client.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
    )


async def status(world: World) -> Object:
    await world.settle()
    current: Object = (await world.client.get(QUOTA, "q", namespace="default"))["status"]
    return current


async def test_objects_that_come_and_go_change_the_usage(world: World) -> None:
    await add_pod(world, "before")
    await add_quota(world, pods="5", **{"count/deployments.apps": "2", "configmaps": "9"})
    assert await status(world) == {
        "hard": {"configmaps": "9", "count/deployments.apps": "2", "pods": "5"},
        "used": {"configmaps": "1", "count/deployments.apps": "0", "pods": "1"},
    }
    await add_pod(world, "after")
    assert (await status(world))["used"]["pods"] == "2"
    await world.client.patch(
        POD, "after", {"status": {"phase": "Succeeded"}}, namespace="default", subresource="status"
    )
    assert (await status(world))["used"]["pods"] == "1"
    await world.client.delete(POD, "before", namespace="default", grace_seconds=0)
    assert (await status(world))["used"]["pods"] == "0"


async def test_custom_objects_are_counted_from_the_moment_that_their_kind_is_served(world: World) -> None:
    await add_quota(world, pods="5", **{"count/widgets.example.com": "2"})
    assert (await status(world))["used"] == {"pods": "0"}
    await world.define_widgets()
    await world.client.create(widget("one"))
    assert (await status(world))["used"] == {"pods": "0", "count/widgets.example.com": "1"}
    await world.client.delete("example.com/v1/Widget", "one", namespace="default")
    assert (await status(world))["used"]["count/widgets.example.com"] == "0"


async def test_new_bounds_and_a_foreign_status_are_written_anew(world: World) -> None:
    await add_quota(world, pods="5")
    await status(world)
    await world.client.patch(QUOTA, "q", {"spec": {"hard": {"pods": "7", "services": "2"}}}, namespace="default")
    assert await status(world) == {"hard": {"pods": "7", "services": "2"}, "used": {"pods": "0", "services": "1"}}
    foreign = {"status": {"used": {"pods": "3", "cpu": "4"}}}
    await world.client.patch(QUOTA, "q", foreign, namespace="default", subresource="status")
    assert (await status(world))["used"] == {"pods": "0", "services": "1"}


async def test_a_pod_that_should_be_gone_is_free_after_a_resync(world: World, clock: ManualClock) -> None:
    await add_quota(world, pods="5")
    await world.client.create(pod("stuck", node="silent"))
    await world.client.delete(POD, "stuck", namespace="default")
    assert (await status(world))["used"]["pods"] == "1"
    await clock.advance(400)
    assert (await status(world))["used"]["pods"] == "0"
