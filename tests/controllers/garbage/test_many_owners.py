"""Objects with thousands of owner references: the collector looks them up in parts, and keeps only those that live."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.controllers.world import World, config_map
from tests.testing.both_ways import IN_PROCESS

from pinnace.controllers.garbage.collector import GarbageCollector
from pinnace.controllers.garbage.object_metadata import OWNERS_AT_ONCE
from pinnace.controllers.garbage.owner_graph import Node, OwnerGraph, Place
from pinnace.model.objects import Object
from pinnace.reconcile.owners import owner_reference

KIND = "v1/ConfigMap"
MANY = 2000


def absent(count: int) -> list[Object]:
    """References to owners that never existed."""
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"absent-{number}", "uid": f"uid-{number}"}
        for number in range(count)
    ]


def reference_to(owner: Object) -> Object:
    return {**owner_reference(owner, controller=False)}


async def create_owned(world: World, references: Iterable[Object], *finalizers: str) -> Object:
    made = config_map("owned", finalizers=finalizers)
    made["metadata"]["ownerReferences"] = list(references)
    return await world.client.create(made)


def turns_of(world: World) -> int:
    return sum(controller.queue.added for controller in world.manager.controllers)


async def references_of(world: World) -> list[str]:
    metadata = (await world.client.get(KIND, "owned", namespace="default"))["metadata"]
    return [reference["name"] for reference in metadata.get("ownerReferences", ())]


async def test_an_object_without_living_owners_goes_after_a_turn_for_each_part(world: World) -> None:
    before = turns_of(world)
    await create_owned(world, absent(MANY))
    await world.settle()
    assert await world.names(KIND) == set()
    assert turns_of(world) - before < 3 * MANY / OWNERS_AT_ONCE


@pytest.mark.parametrize("world", [IN_PROCESS], indirect=True)  # It looks into the collector.
async def test_owners_that_do_not_live_are_never_in_the_graph(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    mark_absent = OwnerGraph.mark_absent

    def noted(self: OwnerGraph, place: Place) -> None:
        mark_absent(self, place)
        sizes.append(len(self))

    monkeypatch.setattr(OwnerGraph, "mark_absent", noted)
    await create_owned(world, absent(MANY))
    await world.settle()
    assert len(sizes) == MANY
    assert max(sizes) - min(sizes) < OWNERS_AT_ONCE


async def test_an_owner_that_lives_keeps_the_object_which_loses_the_other_references(world: World) -> None:
    owner = await world.client.create(config_map("lives"))
    await create_owned(world, [*absent(MANY), reference_to(owner)])
    await world.settle()
    assert await world.names(KIND) == {"lives", "owned"}
    assert await references_of(world) == ["lives"]
    await world.client.delete(KIND, "lives", namespace="default")
    await world.settle()
    assert await world.names(KIND) == set()


async def test_each_of_many_living_owners_may_go_last(world: World) -> None:
    owners = [await world.client.create(config_map(f"owner-{at}")) for at in range(2 * OWNERS_AT_ONCE)]
    await create_owned(world, map(reference_to, owners))
    await world.settle()
    assert len(await references_of(world)) == len(owners)
    for owner in owners[1:]:
        await world.client.delete(KIND, owner["metadata"]["name"], namespace="default")
    await world.settle()
    assert await references_of(world) == ["owner-0"]
    await world.client.delete(KIND, "owner-0", namespace="default")
    await world.settle()
    assert await world.names(KIND) == set()


@pytest.mark.parametrize("world", [IN_PROCESS], indirect=True)  # It looks into the collector.
async def test_an_owner_that_goes_after_its_part_was_looked_up_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = [await world.client.create(config_map(f"owner-{at}")) for at in range(2 * OWNERS_AT_ONCE)]
    await create_owned(world, map(reference_to, owners))
    await world.settle()
    collectors, is_gone = list[GarbageCollector](), asyncio.Event()
    look_up_part = GarbageCollector._look_up_part

    async def pause_after_the_first(self: GarbageCollector, node: Node, lookup: Any) -> None:
        await look_up_part(self, node, lookup)
        collectors.append(self)
        await is_gone.wait()

    monkeypatch.setattr(GarbageCollector, "_look_up_part", pause_after_the_first)
    fewer = [reference_to(owner) for owner in owners[:-1]]
    await world.client.patch(KIND, "owned", {"metadata": {"ownerReferences": fewer}}, namespace="default")
    async with asyncio.timeout(60):
        while not collectors:
            await asyncio.sleep(0)
        await world.client.delete(KIND, "owner-0", namespace="default")
        while collectors[0].graph.get(owners[0]["metadata"]["uid"]) is not None:
            await asyncio.sleep(0)
    is_gone.set()
    await world.settle()
    assert await references_of(world) == [reference["name"] for reference in fewer[1:]]


async def test_an_owner_in_the_foreground_waits_for_an_object_with_many_owners(world: World) -> None:
    owner = await world.client.create(config_map("lives"))
    await create_owned(world, [*absent(MANY), reference_to(owner)], "example.com/hold")
    await world.settle()
    await world.client.delete(KIND, "lives", namespace="default", propagation="Foreground")
    await world.settle()
    assert await world.names(KIND) == {"lives", "owned"}
    await world.client.patch(KIND, "owned", {"metadata": {"finalizers": None}}, namespace="default")
    await world.settle()
    assert await world.names(KIND) == set()


async def test_a_change_that_keeps_the_references_does_not_look_them_up_again(world: World) -> None:
    owners = [await world.client.create(config_map(f"owner-{at}")) for at in range(2 * OWNERS_AT_ONCE)]
    await create_owned(world, map(reference_to, owners))
    await world.settle()
    before = turns_of(world)
    await world.client.patch(KIND, "owned", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
    await world.settle()
    assert turns_of(world) == before


async def test_references_that_change_while_they_are_looked_up_count_as_they_are_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector has looked at the first references when they change: it may delete no earlier."""
    collector, changed = world.manager.client, asyncio.Event()
    delete = collector.delete

    async def delete_after_the_change(*arguments: Any, **options: Any) -> Any:
        await changed.wait()
        return await delete(*arguments, **options)

    monkeypatch.setattr(collector, "delete", delete_after_the_change)
    owner = await world.client.create(config_map("lives"))
    await create_owned(world, absent(MANY))
    kept = [*absent(MANY)[1:], reference_to(owner)]
    await world.client.patch(KIND, "owned", {"metadata": {"ownerReferences": kept}}, namespace="default")
    changed.set()
    await world.settle()
    assert await references_of(world) == ["lives"]


async def test_a_kind_that_is_not_served_leaves_the_object_alone(world: World) -> None:
    other = {"apiVersion": "example.com/v1", "kind": "Unserved", "name": "a", "uid": "other"}
    await create_owned(world, [*absent(MANY), other])
    await world.settle()
    assert await world.names(KIND) == {"owned"}
    await world.client.delete(KIND, "owned", namespace="default")
    await world.settle()
    assert await world.names(KIND) == set()
