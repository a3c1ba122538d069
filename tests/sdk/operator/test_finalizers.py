"""That each object is cleaned up after once, whatever happens to it on its way out."""

from __future__ import annotations

import pytest
from tests.sdk.websites import Website, website

from pinnace.sdk import Context, CustomResource, Key, Memory, Model, Operator
from pinnace.testing.cluster import Cluster

WEBSITE = "extensions.example.com/v1/Website"
KEPT, SERVED = "defined", "served by itself"


class BottleSpec(Model):
    year: int = 2020


class Bottle(CustomResource[BottleSpec, None], group="cellar.example.com", version="v1"):
    """Bottles in a cellar."""


async def test_concurrent_changes_by_others_cause_no_second_call(cluster: Cluster) -> None:
    operator = Operator("cleaner")
    cleaned: list[str] = []

    @operator.on_delete(Website)
    async def clean_up(site: Website, ctx: Context) -> None:
        cleaned.append(site.name)
        await cluster.client.patch(WEBSITE, site.name, {"metadata": {"labels": {"cleaned": str(len(cleaned))}}})

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    await cluster.client.delete(WEBSITE, "blog")
    await cluster.advance(5)
    assert cleaned == ["blog"]
    assert await cluster.client.get_or_none(WEBSITE, "blog") is None


@pytest.mark.parametrize("is_served", [False, True], ids=[KEPT, SERVED])
async def test_it_is_done_once_for_each_object_of_a_namespace(cluster: Cluster, *, is_served: bool) -> None:
    operator = Operator("cellar")
    if is_served:
        operator.serves(Bottle, Memory())
    cleaned: list[str] = []

    @operator.on_delete(Bottle)
    async def empty(bottle: Bottle) -> None:
        cleaned.append(bottle.name)
        for controller in manager.controllers:  # Reconciled once more as soon as its finalizer is gone.
            controller.enqueue(Key("cellar", bottle.name), "test")

    manager = await cluster.run(operator)
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cellar"}})
    names = [f"wine-{number}" for number in range(5)]
    for name in names:
        metadata = {"name": name, "namespace": "cellar"}
        await cluster.client.create({"apiVersion": "cellar.example.com/v1", "kind": "Bottle", "metadata": metadata})
    await cluster.settle()
    await cluster.client.delete("v1/Namespace", "cellar")
    await cluster.advance(60)
    assert await cluster.client.get_or_none("v1/Namespace", "cellar") is None
    assert sorted(cleaned) == names
