"""Claims are bound to volumes that fit, or to volumes that are made for them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.objects import POD, events_of, pod
from tests.controllers.world import World

from pinnace.model.objects import Object

CLAIM, VOLUME, CLASS = "v1/PersistentVolumeClaim", "v1/PersistentVolume", "storage.k8s.io/v1/StorageClass"
LOCAL = "pinnace.dev/local-path"


def claim(name: str = "data", size: str = "1Gi", **spec: Any) -> Object:
    requests = {"requests": {"storage": size}}
    wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": requests, **spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted}


def volume(name: str = "disk", size: str = "1Gi", **spec: Any) -> Object:
    wanted = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}, **spec}
    metadata = {"name": name, "labels": {"disk": name}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": wanted}


def storage_class(name: str = "fast", provisioner: str = LOCAL, **more: Any) -> Object:
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    return {**made, "provisioner": provisioner, **more}


async def get(world: World, kind: str, name: str) -> Object:
    await world.settle()
    return await world.client.get(kind, name, namespace="default" if kind == CLAIM else "")


async def phase(world: World, kind: str, name: str) -> str:
    return str((await get(world, kind, name))["status"].get("phase"))


async def test_a_claim_gets_the_smallest_volume_that_fits(world: World) -> None:
    for name, size in (("large", "10Gi"), ("right", "2Gi"), ("small", "500Mi")):
        await world.client.create(volume(name, size))
    await world.settle()
    await world.client.create(claim())
    bound = await get(world, CLAIM, "data")
    assert bound["spec"]["volumeName"] == "right"
    assert bound["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}
    assert bound["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    disk = await get(world, VOLUME, "right")
    assert disk["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    assert disk["status"]["phase"] == "Bound"
    assert await phase(world, VOLUME, "large") == "Available"


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (volume(size="500Mi"), claim()),
        (volume(accessModes=["ReadOnlyMany"]), claim()),
        (volume(volumeMode="Block"), claim()),
        (volume(storageClassName="fast"), claim()),
        (volume(), claim(selector={"matchLabels": {"disk": "other"}})),
    ],
    ids=["too small", "access modes", "volume mode", "class", "selector"],
)
async def test_a_volume_that_does_not_fit_stays_free(world: World, made: Object, wanted: Object) -> None:
    await world.client.create(made)
    await world.client.create(wanted)
    assert await phase(world, CLAIM, "data") == "Pending"
    assert await phase(world, VOLUME, "disk") == "Available"
    (event,) = await events_of(world, "FailedBinding")
    assert event["message"] == "no persistent volumes available for this claim and no storage class is set"


async def test_a_claim_that_waits_is_bound_when_a_volume_comes(world: World) -> None:
    await world.client.create(claim())
    assert await phase(world, CLAIM, "data") == "Pending"
    await world.client.create(volume())
    assert await phase(world, CLAIM, "data") == "Bound"


async def test_of_two_claims_for_one_volume_one_waits(world: World) -> None:
    await world.client.create(claim("a"))
    await world.client.create(claim("b"))
    await world.client.create(volume())
    phases = sorted([await phase(world, CLAIM, "a"), await phase(world, CLAIM, "b")])
    assert phases == ["Bound", "Pending"]


async def test_a_volume_may_be_kept_for_a_claim(world: World) -> None:
    await world.client.create(volume("mine", claimRef={"name": "data", "namespace": "default"}))
    await world.client.create(volume("other", "2Gi"))
    await world.settle()
    await world.client.create(claim("stranger"))
    await world.client.create(claim("data"))
    assert (await get(world, CLAIM, "data"))["spec"]["volumeName"] == "mine"
    assert (await get(world, CLAIM, "stranger"))["spec"]["volumeName"] == "other"
    mine = await get(world, VOLUME, "mine")
    assert "pv.kubernetes.io/bound-by-controller" not in (mine["metadata"].get("annotations") or {})


async def test_a_claim_may_name_its_volume(world: World) -> None:
    await world.client.create(claim(volumeName="disk"))
    assert await phase(world, CLAIM, "data") == "Pending"
    await world.client.create(volume())
    bound = await get(world, CLAIM, "data")
    assert bound["status"]["phase"] == "Bound"
    assert bound["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}


async def test_a_claim_that_names_a_volume_it_cannot_have_says_why(world: World) -> None:
    await world.client.create(volume(size="500Mi"))
    await world.client.create(claim(volumeName="disk"))
    assert await phase(world, CLAIM, "data") == "Pending"
    (event,) = await events_of(world, "VolumeMismatch")
    assert event["message"] == 'Cannot bind to requested volume "disk": requested PV is too small'


async def test_a_claim_that_names_the_volume_of_another_waits(world: World) -> None:
    await world.client.create(volume())
    await world.settle()
    await world.client.create(claim("a"))
    await world.settle()
    await world.client.create(claim("b", volumeName="disk"))
    assert await phase(world, CLAIM, "b") == "Pending"
    (event,) = await events_of(world, "FailedBinding")
    assert event["message"] == 'volume "disk" already bound to a different claim.'


async def test_a_claim_whose_volume_is_gone_is_lost(world: World) -> None:
    await world.client.create(volume())
    await world.client.create(claim())
    await world.settle()
    await world.client.delete(VOLUME, "disk")
    await world.client.patch(VOLUME, "disk", {"metadata": {"finalizers": None}})
    assert await phase(world, CLAIM, "data") == "Lost"
    (event,) = await events_of(world, "ClaimLost")
    assert event["message"] == "Bound claim has lost its PersistentVolume. Data on the volume is lost!"


@pytest.mark.parametrize(
    ("policy", "expected", "reason"),
    [
        ("Retain", "Released", ""),
        ("Recycle", "Failed", "VolumeFailedRecycle"),
        ("Delete", "Failed", "VolumeFailedDelete"),
    ],
)
async def test_a_volume_without_its_claim_is_reclaimed(world: World, policy: str, expected: str, reason: str) -> None:
    await world.client.create(volume(persistentVolumeReclaimPolicy=policy))
    await world.client.create(claim())
    await world.settle()
    await world.client.delete(CLAIM, "data", namespace="default")
    assert await phase(world, VOLUME, "disk") == expected
    if reason:
        assert len(await events_of(world, reason)) == 1


async def test_a_class_makes_volumes_for_its_claims_and_removes_them(world: World) -> None:
    await world.client.create(storage_class(parameters={"path": "/data/volumes"}))
    made = await world.client.create(claim(storageClassName="fast"))
    bound = await get(world, CLAIM, "data")
    name = f"pvc-{made['metadata']['uid']}"
    assert bound["spec"]["volumeName"] == name
    assert bound["status"]["phase"] == "Bound"
    assert bound["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] == LOCAL
    disk = await get(world, VOLUME, name)
    assert disk["spec"]["hostPath"] == {"path": f"/data/volumes/{name}_default_data", "type": "DirectoryOrCreate"}
    assert disk["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert disk["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == LOCAL
    assert len(await events_of(world, "ProvisioningSucceeded")) == 1
    await world.client.delete(CLAIM, "data", namespace="default")
    await world.settle()
    assert await world.client.get_or_none(VOLUME, name) is None


async def test_a_provisioner_that_is_not_ours_is_waited_for(world: World) -> None:
    await world.client.create(storage_class(provisioner="example.com/disks"))
    await world.client.create(claim(storageClassName="fast"))
    assert await phase(world, CLAIM, "data") == "Pending"
    (event,) = await events_of(world, "ExternalProvisioning")
    assert event["message"].startswith(
        "Waiting for a volume to be created either by the external provisioner 'example.com/disks'"
    )


async def test_a_class_that_is_not_there_is_named_to_the_user(world: World) -> None:
    await world.client.create(claim(storageClassName="gone"))
    assert await phase(world, CLAIM, "data") == "Pending"
    (event,) = await events_of(world, "ProvisioningFailed")
    assert event["message"] == 'storageclass.storage.k8s.io "gone" not found'
    await world.client.create(storage_class("gone"))
    assert await phase(world, CLAIM, "data") == "Bound"


async def test_a_claim_that_the_provisioner_cannot_serve_says_why(world: World) -> None:
    await world.client.create(storage_class())
    await world.client.create(claim(storageClassName="fast", volumeMode="Block"))
    assert await phase(world, CLAIM, "data") == "Pending"
    (event,) = await events_of(world, "ProvisioningFailed")
    assert "volumeMode must be Filesystem" in event["message"]


async def test_a_claim_may_wait_for_its_first_consumer(world: World) -> None:
    await world.client.create(storage_class(volumeBindingMode="WaitForFirstConsumer"))
    await world.client.create(claim(storageClassName="fast"))
    assert await phase(world, CLAIM, "data") == "Pending"
    assert len(await events_of(world, "WaitForFirstConsumer")) == 1
    selected = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
    await world.client.patch(CLAIM, "data", selected, namespace="default")
    bound = await get(world, CLAIM, "data")
    assert bound["status"]["phase"] == "Bound"
    disk = await get(world, VOLUME, bound["spec"]["volumeName"])
    terms = disk["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]


async def test_a_claim_without_a_class_gets_the_default_one_when_it_comes(world: World) -> None:
    for obj in await world.client.list(CLASS):
        await world.client.delete(CLASS, obj["metadata"]["name"])
    request = claim()
    del request["spec"]["storageClassName"]
    await world.client.create(request)
    assert await phase(world, CLAIM, "data") == "Pending"
    default = storage_class()
    default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    await world.client.create(default)
    bound = await get(world, CLAIM, "data")
    assert (bound["spec"]["storageClassName"], bound["status"]["phase"]) == ("fast", "Bound")


async def test_a_volume_grows_with_its_claim(world: World) -> None:
    await world.client.create(storage_class(allowVolumeExpansion=True))
    await world.client.create(claim(storageClassName="fast"))
    await world.settle()
    larger = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    await world.client.patch(CLAIM, "data", larger, namespace="default")
    grown = await get(world, CLAIM, "data")
    assert grown["status"]["capacity"] == {"storage": "3Gi"}
    disk = await get(world, VOLUME, grown["spec"]["volumeName"])
    assert disk["spec"]["capacity"] == {"storage": "3Gi"}


async def test_an_ephemeral_volume_has_a_claim_that_the_pod_owns(world: World) -> None:
    template = {"metadata": {"labels": {"kind": "scratch"}}, "spec": claim()["spec"]}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    made = await world.client.create(pod("web", volumes=volumes))
    own = await get(world, CLAIM, "web-scratch")
    (owner,) = own["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", made["metadata"]["uid"], True)
    assert own["metadata"]["labels"] == {"kind": "scratch"}
    await world.client.delete(POD, "web", namespace="default")
    await world.settle()
    assert await world.client.get_or_none(CLAIM, "web-scratch", namespace="default") is None


async def test_a_claim_of_another_with_the_name_of_an_ephemeral_one_is_not_used(world: World) -> None:
    await world.client.create(claim("web-scratch"))
    template = {"spec": claim()["spec"]}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    await world.client.create(pod("web", volumes=volumes))
    await world.settle()
    events = [event["message"] for event in await events_of(world, "FailedBinding")]
    assert (
        "ephemeral volume scratch: PVC default/web-scratch was not created for pod default/web (pod is not owner)"
        in events
    )
