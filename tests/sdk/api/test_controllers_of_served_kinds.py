"""Finalizers, owners, namespaces, reconcilers and gates mean objects that an operator serves itself, too."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from tests.sdk.recipes import KIND, Recipe, client, kitchen, recipe

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.sdk import Admission, Memory, Operator, Refused
from pinnace.testing.cluster import Cluster

__all__ = ["client"]


async def test_finalizers_hold_an_object_until_they_are_gone(client: Client) -> None:
    await client.create({**recipe(), "metadata": {"name": "soup", "finalizers": ["example.com/taste"]}})
    await client.delete(KIND, "soup")
    held = await client.get(KIND, "soup")
    assert held["metadata"]["deletionTimestamp"]
    await client.patch(KIND, "soup", {"metadata": {"finalizers": None}})
    assert await client.get_or_none(KIND, "soup") is None


async def test_dependents_go_with_their_owner(cluster: Cluster, client: Client) -> None:
    made = await client.create(recipe())
    owner = {"apiVersion": "kitchen.example.com/v1", "kind": "Recipe", "name": "soup", "uid": made["metadata"]["uid"]}
    metadata = {"name": "shopping", "ownerReferences": [owner]}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await client.delete(KIND, "soup")
    await cluster.settle()
    assert await client.get_or_none("v1/ConfigMap", "shopping") is None


async def test_a_namespace_takes_its_objects_along(cluster: Cluster, client: Client) -> None:
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cellar"}})
    await client.create({**recipe(), "metadata": {"name": "wine", "namespace": "cellar"}})
    await client.create(recipe())
    await client.delete("v1/Namespace", "cellar")
    await cluster.settle()
    assert await client.get_or_none("v1/Namespace", "cellar") is None
    assert [obj["metadata"]["name"] for obj in await client.list(KIND)] == ["soup"]


async def test_an_operator_reconciles_the_kind_that_it_serves(cluster: Cluster) -> None:
    operator = kitchen()

    @operator.reconcile(Recipe)
    async def cook(dish: Recipe) -> None:
        dish.status.cooked = dish.spec.minutes

    await cluster.run(operator)
    await cluster.client.create(recipe(minutes=7))
    await cluster.settle()
    async with aclosing(cluster.client.follow(KIND)) as news:
        async for event in news:
            if getattr(event, "snapshot", None) and event.snapshot.object["status"]["cooked"] == 7:  # type: ignore[union-attr]
                break


async def test_functions_change_and_refuse_objects_without_any_webhook(cluster: Cluster) -> None:
    operator = Operator("kitchen")

    @operator.validate(Recipe, operations=["CREATE", "UPDATE", "DELETE"])
    def not_without_ann(dish: Recipe, admission: Admission) -> str | None:
        if admission.operation == "DELETE":
            raise Refused("recipes are for ever")
        admission.warn("salt is bad for you")
        return "no steps" if not dish.spec.steps else None

    operator.serves(Recipe, Memory())

    @operator.mutate(Recipe)
    def washed(dish: Recipe) -> None:
        dish.spec.steps = [*dish.spec.steps, "wash up"] if dish.spec.steps else []

    await cluster.run(operator)
    assert await cluster.client.list("admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration") == []
    made = await cluster.client.create(recipe(steps=["cook"]))
    assert made["spec"]["steps"] == ["cook", "wash up"]
    with pytest.raises(errors.Forbidden, match="no steps"):
        await cluster.client.create(recipe("water"))
    with pytest.raises(errors.Forbidden, match="recipes are for ever"):
        await cluster.client.delete(KIND, "soup")
