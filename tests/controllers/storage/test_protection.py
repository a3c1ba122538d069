"""Deleted claims, volumes and classes are removed once no object uses them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.world import World

from pinnace.model.objects import Object

CLAIM = "v1/PersistentVolumeClaim"
VOLUME = "v1/PersistentVolume"
CLASS = "storage.k8s.io/v1/VolumeAttributesClass"
POD = "v1/Pod"


def claim(name: str = "data", **spec: Any) -> Object:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted}


def volume(name: str = "disk") -> Object:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def pod(name: str = "web", *, node: str = "", **source: Any) -> Object:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "example.com/web:1"}]}
    spec["volumes"] = [{"name": "scratch", "emptyDir": {}}, {"name": "data", **source}]
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


USING_IT: dict[str, Any] = {"persistentVolumeClaim": {"claimName": "data"}}


async def leave(world: World, kind: str, name: str) -> Object | None:
    """Delete, and tell what is left of it when all is quiet."""
    namespace = "" if kind in (VOLUME, CLASS) else "default"
    await world.client.delete(kind, name, namespace=namespace)
    await world.settle()
    return await world.client.get_or_none(kind, name, namespace=namespace)


async def test_a_claim_that_no_pod_uses_goes(world: World) -> None:
    made = await world.client.create(claim())
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert await leave(world, CLAIM, "data") is None


async def test_a_claim_stays_until_the_last_pod_that_uses_it_is_gone(world: World) -> None:
    await world.client.create(claim())
    for name in ("one", "two"):
        await world.client.create(pod(name, node="n1", **USING_IT))
    assert await leave(world, CLAIM, "data") is not None
    for name, is_left in (("one", True), ("two", False)):
        await world.client.delete(POD, name, namespace="default", grace_seconds=0)
        await world.settle()
        assert (await world.client.get_or_none(CLAIM, "data", namespace="default") is not None) == is_left


@pytest.mark.parametrize(
    "bystander",
    [pod(**USING_IT), pod(node="n1", persistentVolumeClaim={"claimName": "other"}), pod(node="n1", emptyDir={})],
    ids=["without a node", "with another claim", "without a claim"],
)
async def test_a_pod_that_does_not_use_a_claim_holds_nothing(world: World, bystander: Object) -> None:
    await world.client.create(claim())
    await world.client.create(bystander)
    assert await leave(world, CLAIM, "data") is None


async def test_a_claim_that_was_made_for_a_pod_is_used_by_it_alone(world: World) -> None:
    template = {"spec": claim()["spec"]}
    user = await world.client.create(pod(node="n1", ephemeral={"volumeClaimTemplate": template}))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": user["metadata"]["uid"], "controller": True}
    own = claim("web-data")
    own["metadata"]["ownerReferences"] = [owner]
    made = await world.client.create(own)
    assert await leave(world, CLAIM, "web-data") is not None
    await world.client.patch(CLAIM, "web-data", {"metadata": {"ownerReferences": None}}, namespace="default")
    await world.settle()
    again = await world.client.get(CLAIM, "web-data", namespace="default")
    assert again["metadata"]["uid"] != made["metadata"]["uid"], "it is not the pod's, which has a new one"


async def test_a_removed_protection_finalizer_comes_back(world: World) -> None:
    await world.client.create(claim())
    await world.client.patch(CLAIM, "data", {"metadata": {"finalizers": None}}, namespace="default")
    await world.settle()
    obj = await world.client.get(CLAIM, "data", namespace="default")
    assert obj["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


async def test_the_finalizers_of_others_are_theirs(world: World) -> None:
    wanted = claim()
    wanted["metadata"]["finalizers"] = ["example.com/wait"]
    await world.client.create(wanted)
    left = await leave(world, CLAIM, "data")
    assert left is not None
    assert left["metadata"]["finalizers"] == ["example.com/wait"]


async def test_a_volume_stays_while_it_is_bound(world: World) -> None:
    await world.client.create(volume())
    await world.client.create(claim(storageClassName=""))
    await world.settle()
    assert await leave(world, VOLUME, "disk") is not None
    await world.client.delete(CLAIM, "data", namespace="default")
    await world.settle()
    assert await world.client.get_or_none(VOLUME, "disk") is None


async def test_a_class_stays_while_a_claim_names_it(world: World) -> None:
    gold = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "gold"}}
    await world.client.create({**gold, "driverName": "disks.example.com", "parameters": {"speed": "high"}})
    await world.client.create(claim(volumeAttributesClassName="gold"))
    assert await leave(world, CLASS, "gold") is not None
    await leave(world, CLAIM, "data")
    assert await world.client.get_or_none(CLASS, "gold") is None


async def test_a_namespace_with_claims_goes(world: World) -> None:
    await world.namespace("shop")
    mine = claim()
    mine["metadata"]["namespace"] = "shop"
    await world.client.create(mine)
    await world.client.delete("v1/Namespace", "shop")
    await world.settle()
    assert await world.client.get_or_none("v1/Namespace", "shop") is None
