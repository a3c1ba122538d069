"""Every namespace has its default service account."""

from __future__ import annotations

from tests.controllers.world import World

ACCOUNT = "v1/ServiceAccount"


async def test_every_namespace_has_one_from_the_start_and_new_ones_get_one(world: World) -> None:
    await world.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await world.settle()
    accounts = await world.client.list(ACCOUNT)
    assert {account["metadata"]["namespace"] for account in accounts if account["metadata"]["name"] == "default"} == {
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
        "shop",
    }


async def test_one_that_is_deleted_comes_back_as_another(world: World) -> None:
    before = await world.client.get(ACCOUNT, "default", namespace="default")
    await world.client.delete(ACCOUNT, "default", namespace="default")
    await world.settle()
    after = await world.client.get(ACCOUNT, "default", namespace="default")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
