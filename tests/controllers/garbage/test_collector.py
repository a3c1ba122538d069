"""The garbage collector over a real server: what loses its last owner goes, and nothing else."""

from __future__ import annotations

import pytest
from tests.controllers.world import WIDGET, World, config_map, widget
from tests.server.in_process import pod
from tests.testing.both_ways import IN_PROCESS

from pinnace.controllers.garbage.collector import GarbageCollector
from pinnace.controllers.garbage.owner_graph import Place
from pinnace.model.objects import Object
from pinnace.reconcile.owners import owner_reference
from pinnace.testing.clock import ManualClock

KIND = "v1/ConfigMap"


async def chain(world: World, *names: str) -> list[Object]:
    """Objects each of which belongs to the one before."""
    made: list[Object] = []
    for name in names:
        made.append(await world.client.create(config_map(name, *made[-1:])))
    await world.settle()
    return made


async def test_in_the_background_dependents_go_after_their_owner_all_the_way_down(world: World) -> None:
    await chain(world, "a", "b", "c")
    await world.client.delete(KIND, "a", namespace="default", propagation="Background")
    assert "a" not in await world.names(KIND)  # The collector may have begun with the others.
    await world.settle()
    assert await world.names(KIND) == set()


async def test_in_the_foreground_an_owner_waits_for_the_dependents_that_block_it(world: World) -> None:
    owner = await world.client.create(config_map("owner"))
    await world.client.create(config_map("held", owner, finalizers=("example.com/hold",)))
    await world.client.create(config_map("free", owner, blocking=False, finalizers=("example.com/hold",)))
    await world.client.create(config_map("plain", owner))
    await world.client.delete(KIND, "owner", namespace="default", propagation="Foreground")
    await world.settle()
    assert await world.names(KIND) == {"owner", "held", "free"}
    await world.client.patch(KIND, "held", {"metadata": {"finalizers": None}}, namespace="default")
    await world.settle()
    assert await world.names(KIND) == {"free"}, "no deletion waits for a dependent that does not block"


async def test_in_the_foreground_a_chain_goes_from_its_end(world: World) -> None:
    await chain(world, "a", "b", "c")
    await world.client.patch(KIND, "c", {"metadata": {"finalizers": ["example.com/hold"]}}, namespace="default")
    await world.client.delete(KIND, "a", namespace="default", propagation="Foreground")
    await world.settle()
    assert await world.names(KIND) == {"a", "b", "c"}
    for name in "abc":
        assert "deletionTimestamp" in (await world.client.get(KIND, name, namespace="default"))["metadata"]
    await world.client.patch(KIND, "c", {"metadata": {"finalizers": None}}, namespace="default")
    await world.settle()
    assert await world.names(KIND) == set()


async def test_orphans_live_on_without_their_owner(world: World) -> None:
    await chain(world, "a", "b", "c")
    await world.client.delete(KIND, "a", namespace="default", propagation="Orphan")
    await world.settle()
    assert await world.names(KIND) == {"b", "c"}
    assert "ownerReferences" not in (await world.client.get(KIND, "b", namespace="default"))["metadata"]
    assert "ownerReferences" in (await world.client.get(KIND, "c", namespace="default"))["metadata"]


async def test_orphans_that_the_collector_has_not_seen_yet_are_kept_too(world: World) -> None:
    owner = await world.client.create(config_map("owner"))
    for number in range(20):
        await world.client.create(config_map(f"late-{number}", owner))
    await world.client.delete(KIND, "owner", namespace="default", propagation="Orphan")
    await world.settle()
    assert len(await world.names(KIND)) == 20


async def test_an_orphan_that_goes_while_it_is_released_delays_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await world.client.create(config_map("owner"))
    for name in ("goes", "stays"):
        await world.client.create(config_map(name, owner))
    patch = GarbageCollector._patch

    async def interrupted(self: GarbageCollector, place: Place, version: str, metadata: Object) -> Object:
        if place.key.name == "goes":
            await world.client.delete(KIND, "goes", namespace="default")
        return await patch(self, place, version, metadata)

    monkeypatch.setattr(GarbageCollector, "_patch", interrupted)
    await world.client.delete(KIND, "owner", namespace="default", propagation="Orphan")
    await world.settle()
    assert await world.names(KIND) == {"stays"}


async def test_an_orphan_that_changes_while_it_is_released_is_released_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await world.client.create(config_map("owner"))
    await world.client.create(config_map("orphan", owner))
    patch, was_changed = GarbageCollector._patch, False

    async def interrupted(self: GarbageCollector, place: Place, version: str, metadata: Object) -> Object:
        nonlocal was_changed
        if place.key.name == "orphan" and not was_changed:
            was_changed = True
            await world.client.patch(KIND, "orphan", {"data": {"changed": "yes"}}, namespace="default")
        return await patch(self, place, version, metadata)

    monkeypatch.setattr(GarbageCollector, "_patch", interrupted)
    await world.client.delete(KIND, "owner", namespace="default", propagation="Orphan")
    await world.settle()  # No time passes: a retry after a delay would not happen.
    orphan = await world.client.get(KIND, "orphan", namespace="default")
    assert was_changed and "ownerReferences" not in orphan["metadata"]
    assert await world.names(KIND) == {"orphan"}


async def test_one_living_owner_is_enough(world: World) -> None:
    gone = await world.client.create(config_map("gone"))
    stays = await world.client.create(config_map("stays"))
    await world.client.create(config_map("shared", gone, stays))
    await world.client.delete(KIND, "gone", namespace="default")
    await world.settle()
    shared = await world.client.get(KIND, "shared", namespace="default")
    assert [owner["name"] for owner in shared["metadata"]["ownerReferences"]] == ["stays"]


async def test_a_shared_dependent_does_not_hold_up_an_owner_in_the_foreground(world: World) -> None:
    gone = await world.client.create(config_map("gone"))
    stays = await world.client.create(config_map("stays"))
    await world.client.create(config_map("shared", gone, stays))
    await world.settle()
    await world.client.delete(KIND, "gone", namespace="default", propagation="Foreground")
    await world.settle()
    assert await world.names(KIND) == {"stays", "shared"}


async def test_an_owner_that_never_was_is_no_owner(world: World) -> None:
    imagined = config_map("imagined")
    imagined["metadata"]["uid"] = "11111111-1111-4111-8111-111111111111"
    await world.client.create(config_map("dependent", imagined))
    await world.settle()
    assert await world.names(KIND) == set()


async def test_an_owner_that_was_made_anew_is_another(world: World) -> None:
    first = await world.client.create(config_map("owner"))
    await world.client.delete(KIND, "owner", namespace="default")
    await world.client.create(config_map("owner"))
    await world.client.create(config_map("dependent", first))
    await world.settle()
    assert await world.names(KIND) == {"owner"}


async def test_an_owner_in_another_namespace_is_no_owner_and_an_event_says_so(world: World) -> None:
    await world.namespace("other")
    owner = await world.client.create(config_map("owner", namespace="other"))
    await world.settle()
    await world.client.create(config_map("dependent", owner))
    await world.settle()
    assert await world.names(KIND) == set()
    assert await world.names(KIND, "other") == {"owner"}
    message = [event for event in await world.client.list("v1/Event") if event["reason"] == "OwnerRefInvalidNamespace"]
    assert [event["involvedObject"]["name"] for event in message] == ["dependent"]
    assert message[0]["message"] == (
        f"ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {owner['metadata']['uid']}] "
        'does not exist in namespace "default"'
    )


async def test_a_cluster_wide_owner_keeps_its_dependents_in_all_namespaces(world: World) -> None:
    owner = await world.namespace("owner")
    await world.namespace("other")
    for namespace in ("default", "other"):
        await world.client.create(config_map("dependent", owner, namespace=namespace))
    await world.settle()
    assert await world.names(KIND) == {"dependent"}
    await world.client.delete("v1/Namespace", "owner")
    await world.settle()
    assert await world.names(KIND) == set()
    assert await world.names(KIND, "other") == set()


async def test_a_cluster_wide_object_with_a_namespaced_owner_is_left_alone(world: World) -> None:
    owner = await world.client.create(config_map("owner"))
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    await world.client.create({**role, "metadata": {"name": "odd", "ownerReferences": [owner_reference(owner)]}})
    await world.client.delete(KIND, "owner", namespace="default")
    await world.settle()
    assert await world.client.get_or_none("rbac.authorization.k8s.io/v1/ClusterRole", "odd") is not None


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_circle_goes_when_one_of_it_goes(world: World, propagation: str) -> None:
    made = [await world.client.create(config_map(name)) for name in "abc"]
    for index, obj in enumerate(made):
        owner = owner_reference(made[index - 1], controller=False)
        patch = {"metadata": {"ownerReferences": [owner]}}
        await world.client.patch(KIND, obj["metadata"]["name"], patch, namespace="default")
    await world.settle()
    assert await world.names(KIND) == {"a", "b", "c"}
    await world.client.delete(KIND, "a", namespace="default", propagation=propagation)  # type: ignore[arg-type]
    await world.settle()
    assert await world.names(KIND) == set()


async def test_a_circle_goes_although_all_of_it_is_to_wait_for_the_rest(world: World, clock: ManualClock) -> None:
    made = [await world.client.create(config_map(name)) for name in "abc"]
    for index, obj in enumerate(made):
        owner = owner_reference(made[index - 1], controller=False)
        await world.client.patch(KIND, obj["metadata"]["name"], {"metadata": {"ownerReferences": [owner]}})
    for name in "abc":  # All at once, before the collector has seen one.
        await world.client.delete(KIND, name, namespace="default", propagation="Foreground")
    await world.settle()
    await clock.advance(1)  # Two that meet at one object try again.
    await world.settle()
    assert await world.names(KIND) == set()


async def test_custom_kinds_own_and_are_owned_from_the_moment_they_exist(world: World) -> None:
    await world.define_widgets()
    owner = await world.client.create(widget("owner"))
    middle = await world.client.create(config_map("middle", owner))
    await world.client.create(widget("end", middle))
    await world.settle()
    await world.client.delete(WIDGET, "owner", namespace="default")
    await world.settle()
    assert await world.names(KIND) == set()
    assert await world.names(WIDGET) == set()


async def test_dependents_go_with_the_definition_of_their_owners_kind(world: World) -> None:
    await world.define_widgets()
    owner = await world.client.create(widget("owner"))
    await world.client.create(config_map("dependent", owner))
    await world.settle()
    await world.client.delete("apiextensions.k8s.io/v1/CustomResourceDefinition", "widgets.example.com")

    async def is_empty() -> bool:
        return not await world.names(KIND)

    await world.until(is_empty)


async def test_an_owner_whose_kind_is_not_served_is_not_taken_for_gone(world: World) -> None:
    unknown = widget("owner")
    unknown["metadata"]["uid"] = "22222222-2222-4222-8222-222222222222"
    await world.client.create(config_map("dependent", unknown))
    await world.settle()
    assert await world.names(KIND) == {"dependent"}
    await world.define_widgets()
    await world.settle()
    assert await world.names(KIND) == set(), "now that the kind is served, the owner is known to be missing"


async def test_owners_that_are_out_of_sight_for_a_while_keep_what_is_theirs(world: World) -> None:
    await world.define_widgets()
    owner = await world.client.create(widget("owner"))
    await world.client.create(config_map("dependent", owner))
    await world.settle()
    name, kind = "widgets.example.com", "apiextensions.k8s.io/v1/CustomResourceDefinition"
    definition = await world.client.get(kind, name)
    version = definition["spec"]["versions"][0]
    hidden = [{**version, "served": False}, {**version, "name": "v2", "storage": False}]
    await world.client.patch(kind, name, {"spec": {"versions": hidden}})
    await world.settle()
    assert await world.names(KIND) == {"dependent"}
    await world.client.delete("example.com/v2/Widget", "owner", namespace="default")
    await world.client.patch(kind, name, {"spec": {"versions": [version]}})
    await world.settle()
    assert await world.names(KIND) == set()


async def test_an_object_that_is_given_to_a_living_owner_meanwhile_stays(world: World) -> None:
    first = await world.client.create(config_map("first"))
    second = await world.client.create(config_map("second"))
    await world.client.create(config_map("given", first))
    await world.settle()
    await world.client.delete(KIND, "first", namespace="default")
    patch = {"metadata": {"ownerReferences": [owner_reference(second, controller=False)]}}
    await world.client.patch(KIND, "given", patch, namespace="default")
    await world.settle()
    assert await world.names(KIND) == {"second", "given"}


@pytest.mark.parametrize("world", [IN_PROCESS], indirect=True)  # It counts what the collector costs, not sockets.
async def test_a_thousand_pods_of_a_deleted_owner_are_looked_at_a_few_times_each(world: World) -> None:
    owner = await world.client.create(config_map("owner"))
    references = [owner_reference(owner)]
    for number in range(1000):
        made = pod(f"pod-{number}")
        made["metadata"]["ownerReferences"] = references
        await world.client.create(made)
    await world.settle()
    await world.client.delete(KIND, "owner", namespace="default")
    before = looks_of(world)
    await world.settle()
    assert await world.names("v1/Pod") == set()
    assert looks_of(world) - before < 3 * 1000


def looks_of(world: World) -> int:
    return sum(controller.queue.added for controller in world.manager.controllers)
