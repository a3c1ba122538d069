"""Nodes that fall silent become Unknown, are tainted, and lose their pods one node at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.controllers.objects import NODE, POD, add_node, add_pod, events_of, node, report_node
from tests.controllers.world import World

from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339_micro
from pinnace.reconcile.conditions import condition, is_true
from pinnace.testing.clock import ManualClock

LEASE = "coordination.k8s.io/v1/Lease"


async def renew(world: World, name: str) -> None:
    """Renew the lease, as a kubelet does every ten seconds."""
    now = to_rfc3339_micro(world.client.clock.now())
    metadata = {"name": name, "namespace": "kube-node-lease"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    spec = {"holderIdentity": name, "renewTime": now, "leaseDurationSeconds": 40}
    await world.client.apply({**lease, "spec": spec}, force=True)


async def live(world: World, clock: ManualClock, seconds: int, alive: Sequence[str] = ()) -> None:
    """Let time pass, with leases of the nodes that live."""
    for _ in range(seconds // 10):
        await clock.advance(10)
        for name in alive:
            await renew(world, name)
        await world.settle()


async def get(world: World, name: str = "n1") -> Object:
    await world.settle()
    return await world.client.get(NODE, name)


def taints(obj: Object) -> set[tuple[str, str]]:
    return {
        (taint["key"].removeprefix("node.kubernetes.io/"), taint["effect"]) for taint in obj["spec"].get("taints") or ()
    }


@pytest.fixture
async def leases(world: World) -> None:
    if await world.client.get_or_none("v1/Namespace", "kube-node-lease") is None:
        await world.namespace("kube-node-lease")


async def test_a_node_that_falls_silent_is_unknown_after_the_grace_period(
    world: World, clock: ManualClock, leases: None
) -> None:
    await add_node(world, "n1")
    await add_node(world, "n2")
    await live(world, clock, 40, ["n2"])
    assert is_true(await get(world, "n1"), "Ready")
    await live(world, clock, 20, ["n2"])
    obj = await get(world, "n1")
    for type in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
        events = condition(obj, type)
        assert events is not None
        assert (events["status"], events["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert events["message"] == "Kubelet stopped posting node status."
    assert taints(obj) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    assert is_true(await get(world, "n2"), "Ready"), "a renewed lease is a sign of life"
    (events,) = await events_of(world, "NodeNotReady")
    assert events["message"] == "Node n1 status is now: NodeNotReady"


async def test_a_kubelet_that_never_reports_is_given_a_minute(world: World, clock: ManualClock, leases: None) -> None:
    await add_node(world, "n2")
    await world.client.create(node("n1"))
    await live(world, clock, 50, ["n2"])
    assert condition(await get(world), "Ready") is None
    await live(world, clock, 20, ["n2"])
    stated = condition(await get(world), "Ready")
    assert stated is not None
    assert (stated["status"], stated["reason"]) == ("Unknown", "NodeStatusNeverUpdated")
    assert stated["message"] == "Kubelet never posted node status."


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"Ready": "False"}, "not-ready"),
        ({"MemoryPressure": "True"}, "memory-pressure"),
        ({"DiskPressure": "True"}, "disk-pressure"),
        ({"PIDPressure": "True"}, "pid-pressure"),
        ({"NetworkUnavailable": "True"}, "network-unavailable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_conditions_are_taints(world: World, conditions: dict[str, str], expected: str) -> None:
    await add_node(world, "other")
    await add_node(world)
    await get(world)
    await report_node(world, **conditions)
    assert (expected, "NoSchedule") in taints(await get(world))
    await report_node(world)
    assert taints(await get(world)) == set()


async def test_a_node_that_is_cordoned_is_tainted(world: World) -> None:
    await add_node(world)
    await world.client.patch(NODE, "n1", {"spec": {"unschedulable": True}})
    assert taints(await get(world)) == {("unschedulable", "NoSchedule")}
    await world.client.patch(NODE, "n1", {"spec": {"unschedulable": None}})
    assert taints(await get(world)) == set()


async def test_the_taints_of_users_stay(world: World) -> None:
    own = {"key": "example.com/gpu", "effect": "NoSchedule", "value": "yes"}
    await add_node(world, taints=[own])
    await report_node(world, MemoryPressure="True")
    await get(world)
    await report_node(world)
    assert (await get(world))["spec"]["taints"] == [own]


async def test_nodes_of_a_healthy_zone_are_emptied_one_every_ten_seconds(world: World, clock: ManualClock) -> None:
    for name in ("n1", "n2", "n3", "n4", "n5"):
        await add_node(world, name)
    for name in ("n1", "n2"):
        await report_node(world, name, Ready="False")
    await world.settle()

    async def emptied() -> int:
        return sum([("not-ready", "NoExecute") in taints(await get(world, name)) for name in ("n1", "n2")])

    assert await emptied() == 1
    await clock.advance(9)
    assert await emptied() == 1
    await clock.advance(2)
    assert await emptied() == 2


async def test_a_disrupted_small_zone_is_not_emptied_until_it_recovers(world: World, clock: ManualClock) -> None:
    names = ("n1", "n2", "n3", "n4")
    for name in names:
        await add_node(world, name)
    await world.settle()
    for name in names[:3]:
        await report_node(world, name, Ready="False")
    await world.settle()
    await clock.advance(25)
    down = [name for name in names[:3] if ("not-ready", "NoExecute") in taints(await get(world, name))]
    assert len(down) <= 1, "the first may come before the zone counts as disrupted"
    for name in names[:2]:
        await report_node(world, name)
    await world.settle()
    await clock.advance(11)
    assert ("not-ready", "NoExecute") in taints(await get(world, "n3"))


async def test_when_all_nodes_are_down_none_is_emptied(world: World, clock: ManualClock, leases: None) -> None:
    await add_node(world, "n1")
    await live(world, clock, 70)
    assert taints(await get(world)) == {("unreachable", "NoSchedule")}


async def test_a_node_that_comes_back_loses_its_taints(world: World, clock: ManualClock, leases: None) -> None:
    await add_node(world, "n1")
    await add_node(world, "n2")
    await live(world, clock, 70, ["n2"])
    assert ("unreachable", "NoExecute") in taints(await get(world))
    await report_node(world, "n1", Ready="False")
    assert taints(await get(world)) == {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}
    await report_node(world, "n1")
    assert taints(await get(world)) == set()


async def test_the_pods_of_a_silent_node_are_not_ready(world: World, clock: ManualClock, leases: None) -> None:
    await add_node(world, "n1")
    await add_node(world, "n2")
    tolerations = [{"operator": "Exists"}]
    await add_pod(world, "a", node="n1", tolerations=tolerations)
    await live(world, clock, 70, ["n2"])
    pod = await world.client.get(POD, "a", namespace="default")
    assert not is_true(pod, "Ready")
    assert any(event["involvedObject"]["kind"] == "Pod" for event in await events_of(world, "NodeNotReady"))
    await add_pod(world, "b", node="n1", tolerations=tolerations)
    await world.settle()
    pod = await world.client.get(POD, "b", namespace="default")
    assert is_true(pod, "Ready"), "a kubelet that reports again is believed"


async def test_the_old_labels_of_a_node_follow_the_new_ones(world: World) -> None:
    wanted = node()
    wanted["metadata"]["labels"] |= {"kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "wrong"}
    wanted["metadata"]["labels"]["kubernetes.io/arch"] = "amd64"
    await world.client.create(wanted)
    labels = (await get(world))["metadata"]["labels"]
    assert (labels["beta.kubernetes.io/os"], labels["beta.kubernetes.io/arch"]) == ("linux", "amd64")


async def test_coming_and_going_is_reported(world: World) -> None:
    await add_node(world)
    await world.settle()
    (event,) = await events_of(world, "RegisteredNode")
    assert event["message"] == "Node n1 event: Registered Node n1 in Controller"
    await world.client.delete(NODE, "n1")
    await world.settle()
    assert len(await events_of(world, "RemovingNode")) == 1
