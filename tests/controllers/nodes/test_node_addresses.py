"""Nodes get a range of pod addresses and the time for which kubelets may keep secrets."""

from __future__ import annotations

from ipaddress import IPv4Network

from tests.controllers.objects import NODE, node
from tests.controllers.world import World
from tests.server.in_process import control_plane

from pinnace.cluster.in_process import in_process_client
from pinnace.controllers.nodes.ipam import CLUSTER_CIDR, NODE_PREFIX, WIDEST_PREFIX, NodeIpam
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.reconcile.manager import Manager
from pinnace.testing.clock import ManualClock


async def test_every_node_has_a_range_of_its_own(world: World) -> None:
    await world.client.create(node("own", podCIDR="10.244.1.0/24"))
    await world.settle()
    for name in ("n1", "n2", "n3"):
        await world.client.create(node(name))
    await world.settle()
    objects = {obj["metadata"]["name"]: obj["spec"] for obj in await world.client.list(NODE)}
    assert len({spec["podCIDR"] for spec in objects.values()}) == 4
    assert objects["own"]["podCIDR"] == "10.244.1.0/24"
    assert all(spec["podCIDRs"] == [spec["podCIDR"]] for spec in objects.values())
    assert all(spec["podCIDR"].startswith("10.244.") for spec in objects.values())


async def test_a_node_without_a_free_range_waits_for_one(clock: ManualClock) -> None:
    async with control_plane(clock=clock) as api:
        manager = Manager(in_process_client(api.plane.local(), clock=clock))
        manager.add(NodeIpam(manager, manager.client, cidr="10.0.0.0/23", prefix=24).controller)
        async with manager.running():
            for name in ("n1", "n2", "n3"):
                await manager.client.create(node(name))
                await manager.settle()
            assert "podCIDR" not in (await manager.client.get(NODE, "n3"))["spec"]
            (message,) = await manager.client.list("v1/Event")
            assert (message["reason"], message["involvedObject"]["name"]) == ("CIDRNotAvailable", "n3")
            await manager.client.delete(NODE, "n1")
            await manager.settle()
            assert (await manager.client.get(NODE, "n3"))["spec"]["podCIDR"] == "10.0.0.0/24"


async def test_a_small_cluster_keeps_secrets_for_no_time(world: World) -> None:
    await world.client.create(node())
    await world.settle()
    obj = await world.client.get(NODE, "n1")
    assert obj["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0"


async def test_the_default_range_grows_with_the_number_of_nodes(clock: ManualClock) -> None:
    async with control_plane(clock=clock) as api:
        manager = Manager(in_process_client(api.plane.local(), clock=clock))
        reserved = ("10.245.0.0/17", "fd00::/108")
        manager.add(NodeIpam(manager, manager.client, reserved=reserved).controller)
        async with manager.running():
            for number in range(400):
                await manager.client.create(node(f"n{number}"))
            await manager.settle()
            ranges = [IPv4Network(obj["spec"]["podCIDR"]) for obj in await manager.client.list(NODE)]
    assert len(set(ranges)) == 400
    first = [cidr for cidr in ranges if cidr.subnet_of(IPv4Network("10.244.0.0/16"))]
    assert len(first) == 256, "the range of small clusters is used up first"
    assert all(cidr.subnet_of(IPv4Network("10.244.0.0/14")) for cidr in ranges)
    assert not any(cidr.overlaps(IPv4Network("10.245.0.0/17")) for cidr in ranges), "these are addresses of Services"


def test_the_default_range_never_grows_into_that_of_services() -> None:
    widest = IPv4Network(CLUSTER_CIDR).supernet(new_prefix=WIDEST_PREFIX)
    assert not widest.overlaps(IPv4Network(SERVICE_RANGE))
    assert 2 ** (NODE_PREFIX - WIDEST_PREFIX) >= 10_000, "as many simulated nodes can be asked for"
