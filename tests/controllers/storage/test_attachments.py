"""CSI volumes are attached to the nodes of the pods that use them."""

from __future__ import annotations

from tests.controllers.objects import NODE, POD, add_node, pod, run_pod
from tests.controllers.world import World

from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

ATTACHMENT = "storage.k8s.io/v1/VolumeAttachment"
HANDLE = "kubernetes.io/csi/csi.example.com^disk-1"


async def claimed_volume(world: World) -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "csi.example.com", "volumeHandle": "disk-1"},
    }
    await world.client.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": spec}
    )
    requests = {"requests": {"storage": "1Gi"}}
    wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": requests}
    metadata = {"name": "data", "namespace": "default"}
    await world.client.create(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted}
    )
    await world.settle()


def user(name: str = "web") -> Object:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return pod(name, node="n1", volumes=volumes)


async def attachments(world: World) -> list[Object]:
    await world.settle()
    return await world.client.list(ATTACHMENT)


async def test_a_volume_is_attached_for_a_pod_and_detached_after_it(world: World) -> None:
    await add_node(world)
    await claimed_volume(world)
    await world.client.create(user())
    (made,) = await attachments(world)
    assert made["spec"] == {
        "attacher": "csi.example.com",
        "nodeName": "n1",
        "source": {"persistentVolumeName": "disk"},
    }
    name = made["metadata"]["name"]
    await world.client.patch(ATTACHMENT, name, {"status": {"attached": True}}, subresource="status")
    await world.settle()
    message = (await world.client.get(NODE, "n1"))["status"]["volumesAttached"]
    assert message == [{"name": HANDLE, "devicePath": ""}]
    await run_pod(world, "web", phase="Succeeded")
    assert await attachments(world) == []
    assert not (await world.client.get(NODE, "n1"))["status"].get("volumesAttached")


async def test_a_volume_that_the_node_has_mounted_stays_until_it_is_not(world: World) -> None:
    await add_node(world)
    await claimed_volume(world)
    await world.client.create(user())
    await world.settle()
    await world.client.patch(NODE, "n1", {"status": {"volumesInUse": [HANDLE]}}, subresource="status")
    await world.client.delete(POD, "web", namespace="default", grace_seconds=0)
    assert len(await attachments(world)) == 1
    await world.client.patch(NODE, "n1", {"status": {"volumesInUse": None}}, subresource="status")
    assert await attachments(world) == []


async def test_a_volume_of_a_dead_node_is_detached_after_six_minutes(world: World, clock: ManualClock) -> None:
    await add_node(world)
    await claimed_volume(world)
    await world.client.create(user())
    await world.settle()
    await world.client.patch(NODE, "n1", {"status": {"volumesInUse": [HANDLE]}}, subresource="status")
    await world.client.delete(POD, "web", namespace="default", grace_seconds=0)
    await world.settle()
    await clock.advance(300)
    assert len(await attachments(world)) == 1
    await clock.advance(62)
    assert await attachments(world) == []


async def test_a_driver_that_attaches_nothing_is_not_asked(world: World) -> None:
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com"}}
    await world.client.create({**driver, "spec": {"attachRequired": False}})
    await add_node(world)
    await claimed_volume(world)
    await world.client.create(user())
    assert await attachments(world) == []
