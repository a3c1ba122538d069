"""The controllers of APIs that are served on request, while their feature gates are on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.world import World

from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

GROUP = "scheduling.k8s.io/v1beta1/PodGroup"
POOL_REQUEST = "resource.k8s.io/v1alpha3/ResourcePoolStatusRequest"
STORAGE_VERSION = "internal.apiserver.k8s.io/v1alpha1/StorageVersion"
LEASE = "coordination.k8s.io/v1/Lease"
DRIVER = "gpu.example.com"


@pytest.fixture
def settings() -> Settings:
    return Settings(
        feature_gates="GenericWorkload=true,DRAResourcePoolStatus=true,DRAPartitionableDevicesType=true,"
        "StorageVersionAPI=true",
        runtime_config="scheduling.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true,"
        "internal.apiserver.k8s.io/v1alpha1=true",
    )


def of(kind: str, name: str, *, namespace: str = "", **rest: Any) -> Object:
    api_version, _, kind = kind.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def member(name: str, group: str) -> Object:
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": group}}
    return of("v1/Pod", name, namespace="default", spec=spec)


async def test_a_pod_group_stays_until_its_last_pod_has_ended(world: World) -> None:
    for name in ("used", "free"):
        made = await world.client.create(of(GROUP, name, namespace="default", spec={"schedulingPolicy": {"basic": {}}}))
        assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    for name in ("one", "two"):
        await world.client.create(member(name, "used"))
    for name in ("used", "free"):
        await world.client.delete(GROUP, name, namespace="default")
    await world.settle()
    assert await world.names(GROUP) == {"used"}
    await world.client.delete("v1/Pod", "one", namespace="default", grace_seconds=0)
    await world.settle()
    assert await world.names(GROUP) == {"used"}
    await world.client.patch(
        "v1/Pod", "two", {"status": {"phase": "Succeeded"}}, namespace="default", subresource="status"
    )
    await world.settle()
    assert await world.names(GROUP) == set()


def lease(name: str, component: str = "kube-apiserver") -> Object:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    made = of(LEASE, name, namespace="kube-system", spec=spec)
    made["metadata"]["labels"] = {"apiserver.kubernetes.io/identity": component}
    return made


async def test_the_entries_of_a_server_leave_with_its_lease(world: World) -> None:
    for name in ("one", "two"):
        await world.client.create(lease(name))
    await world.client.create(lease("other", "another"))
    entries = [
        {"apiServerID": name, "encodingVersion": version, "decodableVersions": [version]}
        for name, version in (("one", "v1"), ("two", "v2"), ("other", "v1"), ("unknown", "v1"))
    ]
    made = await world.client.create(of(STORAGE_VERSION, "example.com.widgets", spec={}))
    await world.client.update_status({**made, "status": {"storageVersions": entries}})
    await world.settle()
    status = (await world.client.get(STORAGE_VERSION, "example.com.widgets"))["status"]
    assert [entry["apiServerID"] for entry in status["storageVersions"]] == ["one", "two"]
    assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == (
        "False",
        "CommonEncodingVersionUnset",
    )
    await world.client.delete(LEASE, "one", namespace="kube-system")
    await world.settle()
    status = (await world.client.get(STORAGE_VERSION, "example.com.widgets"))["status"]
    assert (status["commonEncodingVersion"], len(status["storageVersions"])) == ("v2", 1)
    assert status["conditions"][0]["message"] == "Common encoding version set"
    await world.client.delete(LEASE, "two", namespace="kube-system")
    await world.settle()
    assert await world.client.get_or_none(STORAGE_VERSION, "example.com.widgets") is None


def slice_of(pool: str, devices: list[Object], *, number: int = 0, count: int = 1, **spec: Any) -> Object:
    where = {"name": pool, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "pool": where, "nodeName": "n1", "devices": devices, **spec}
    return of("resource.k8s.io/v1/ResourceSlice", f"{pool}-{number}", spec=spec)


async def claim(world: World, name: str, *results: Object) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    made = await world.client.create(
        of("resource.k8s.io/v1/ResourceClaim", name, namespace="default", spec={"devices": {"requests": [request]}})
    )
    results_on_wire = [{"request": "r", "driver": DRIVER, "pool": "n1", **result} for result in results]
    await world.client.update_status({**made, "status": {"allocation": {"devices": {"results": results_on_wire}}}})


async def answer(world: World, name: str, **spec: Any) -> Object:
    await world.client.create(of(POOL_REQUEST, name, spec={"driver": DRIVER, **spec}))
    await world.settle()
    return (await world.client.get(POOL_REQUEST, name)).get("status") or {}


async def test_the_devices_of_a_pool_are_counted(world: World, clock: ManualClock) -> None:
    tainted = {"name": "d3", "taints": [{"key": "broken", "effect": "NoSchedule"}]}
    await world.client.create(slice_of("n1", [{"name": "d1"}, {"name": "d2"}, tainted, {"name": "d4"}]))
    rule = {"deviceSelector": {"driver": DRIVER, "device": "d4"}, "taint": {"key": "odd", "effect": "NoExecute"}}
    await world.client.create(of("resource.k8s.io/v1/DeviceTaintRule", "odd", spec=rule))
    await world.client.create(slice_of("other", [{"name": "d1"}]))
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await world.client.patch("v1/Namespace", "default", label)
    await claim(world, "used", {"device": "d1"})
    await claim(world, "again", {"device": "d1"})
    await claim(world, "observer", {"device": "d2", "adminAccess": True})
    status = await answer(world, "one", poolName="n1")
    assert status["poolCount"] == 1
    assert status["pools"] == [
        {
            "driver": DRIVER,
            "poolName": "n1",
            "generation": 1,
            "nodeName": "n1",
            "resourceSliceCount": 1,
            "totalDevices": 4,
            "allocatedDevices": 1,
            "availableDevices": 1,
            "unavailableDevices": 2,
        }
    ]
    condition = status["conditions"][0]
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "Complete",
        "CalculationComplete",
        "Calculated status for 1 pools",
    )
    limited = await answer(world, "few", limit=1)
    assert (limited["poolCount"], [pool["poolName"] for pool in limited["pools"]]) == (2, ["n1"])
    await clock.advance(3602)
    await world.settle()
    assert await world.client.list(POOL_REQUEST) == []


async def test_a_request_waits_for_all_slices_of_a_pool(world: World, clock: ManualClock) -> None:
    await world.client.create(slice_of("n1", [{"name": "d1"}], count=2))
    assert await answer(world, "early") == {}
    await world.client.create(slice_of("n1", [{"name": "d2"}], number=1, count=2))
    await world.settle()
    status = (await world.client.get(POOL_REQUEST, "early"))["status"]
    assert (status["pools"][0]["totalDevices"], status["pools"][0]["resourceSliceCount"]) == (2, 2)
    await world.client.create(slice_of("n2", [{"name": "d1"}], count=2))
    assert await answer(world, "never", poolName="n2") == {}
    await clock.advance(86402)
    await world.settle()
    assert await world.client.list(POOL_REQUEST) == []


async def test_partitions_and_shared_capacity_are_summarized(world: World) -> None:
    def part(name: str, type_: str, memory: str) -> Object:
        consumed = [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]
        return {"name": name, "attributes": {"profile": {"string": type_}}, "consumesCounters": consumed}

    devices = [part("a1", "large", "20Gi"), part("a2", "large", "20Gi"), part("b1", "small", "10Gi")]
    attribute: Any = {"partitionTypeAttribute": f"{DRIVER}/profile"}
    await world.client.create(slice_of("n1", devices, count=2, **attribute))
    counters = [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]
    shared = {**slice_of("n1", [], number=1, count=2)["spec"], "sharedCounters": counters}
    del shared["devices"]
    await world.client.create(of("resource.k8s.io/v1/ResourceSlice", "n1-1", spec=shared))
    capacity = {"memory": {"value": "10Gi"}}
    several = [{"name": name, "allowMultipleAllocations": True, "capacity": capacity} for name in ("s1", "s2")]
    await world.client.create(slice_of("n2", several))
    await claim(
        world,
        "used",
        {"device": "b1"},
        {"pool": "n2", "device": "s1", "shareID": "a671734a-e8e5-11e4-8fde-42010af09327"} | consumed("4Gi"),
    )
    pools = {pool["poolName"]: pool for pool in (await answer(world, "one"))["pools"]}
    assert pools["n1"]["partitionSummary"] == [
        {"attribute": f"{DRIVER}/profile", "type": "large", "total": 2, "allocatable": 1},
        {"attribute": f"{DRIVER}/profile", "type": "small", "total": 1, "allocatable": 0},
    ]
    assert pools["n2"]["shareableSummary"] == {
        "fullyAvailableDevices": 1,
        "partiallyAvailableDevices": 1,
        "capacity": [{"name": "memory", "total": "20Gi", "consumed": "4Gi", "available": "16Gi"}],
    }


def consumed(memory: str) -> Object:
    return {"consumedCapacity": {"memory": memory}}
