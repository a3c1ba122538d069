"""Dynamic resource allocation in a cluster: claims get devices, pods share claims, and wait for devices in use."""

from __future__ import annotations

import pytest
from tests.testing.both_ways import cluster

from pinnace.model.objects import Object
from pinnace.scheduler.devices.pools import OfferedDevice
from pinnace.testing.cluster import Cluster

__all__ = ["cluster"]

RESOURCE = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def device_class() -> Object:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {
        "apiVersion": RESOURCE,
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": selectors},
    }


def device_slice(node: str, *memory: str) -> Object:
    devices = [{"name": f"gpu{index}", "capacity": {"memory": {"value": size}}} for index, size in enumerate(memory)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    return {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": f"slice-{node}"}, "spec": spec}


def claim(name: str, expression: str = "") -> Object:
    exactly: Object = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    requests = [{"name": "gpu", "exactly": exactly}]
    spec = {"devices": {"requests": requests}}
    return {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def pod(name: str, claim: str) -> Object:
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def gpus(cluster: Cluster) -> Cluster:
    await cluster.add_nodes(2)
    for obj in (device_class(), device_slice("node-0", "10Gi"), device_slice("node-1", "40Gi")):
        await cluster.client.create(obj)
    return cluster


LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("20Gi")) >= 0'


async def test_a_claim_gets_a_device_that_its_selector_accepts_and_the_pod_its_node(gpus: Cluster) -> None:
    await gpus.client.create(claim("large", LARGE))
    created = await gpus.client.create(pod("p", "large"))
    await gpus.settle()
    assert (await gpus.client.get("v1/Pod", "p"))["spec"]["nodeName"] == "node-1"
    obj = await gpus.client.get(f"{RESOURCE}/ResourceClaim", "large")
    [result] = obj["status"]["allocation"]["devices"]["results"]
    assert result == {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": "gpu0"}
    [user] = obj["status"]["reservedFor"]
    assert user == {"resource": "pods", "name": "p", "uid": created["metadata"]["uid"]}
    assert "resource.kubernetes.io/delete-protection" in obj["metadata"]["finalizers"]


async def test_a_search_without_end_is_given_up_after_a_bounded_number_of_comparisons(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, compared = OfferedDevice.attribute, 0

    def count(device: OfferedDevice, name: str) -> object:
        nonlocal compared
        compared += 1
        return compare(device, name)

    monkeypatch.setattr(OfferedDevice, "attribute", count)
    await cluster.add_nodes(3)
    await cluster.client.create(device_class())
    for node in ("node-0", "node-1", "node-2"):
        offered = device_slice(node)
        offered["spec"]["devices"] = [
            {"name": f"gpu{number}", "attributes": {"a": {"int": number % 7}, "b": {"int": number % 5}}}
            for number in range(128)
        ]
        await cluster.client.create(offered)
    wanted = claim("large")
    names = [f"r{number}" for number in range(16)]
    exactly = wanted["spec"]["devices"]["requests"][0]["exactly"]
    wanted["spec"]["devices"] = {
        "requests": [{"name": name, "exactly": exactly} for name in names],
        "constraints": [{"matchAttribute": f"{DRIVER}/{name}", "requests": names} for name in ("a", "b")],
    }
    await cluster.client.create(wanted)
    await cluster.client.create(pod("p", "large"))
    await cluster.settle()
    assert "nodeName" not in (await cluster.client.get("v1/Pod", "p"))["spec"]
    assert 0 < compared < 1_000_000  # Some attempts on three nodes: without the limit it is more for one of them.


async def test_pods_share_a_claim_on_its_node_and_others_wait_for_its_device(gpus: Cluster) -> None:
    for name in ("shared", "other"):
        await gpus.client.create(claim(name, LARGE))
    await gpus.client.create(pod("first", "shared"))
    await gpus.settle()
    await gpus.client.create(pod("second", "shared"))
    await gpus.client.create(pod("third", "other"))
    await gpus.settle()
    assert (await gpus.client.get("v1/Pod", "second"))["spec"]["nodeName"] == "node-1"
    waiting = await gpus.client.get("v1/Pod", "third")
    assert "nodeName" not in waiting["spec"]
    assert "2 cannot allocate all claims" in waiting["status"]["conditions"][0]["message"]


async def test_a_pod_is_tried_again_when_its_claim_appears(gpus: Cluster) -> None:
    await gpus.client.create(pod("p", "late"))
    await gpus.settle()
    assert "nodeName" not in (await gpus.client.get("v1/Pod", "p"))["spec"]
    await gpus.client.create(claim("late"))
    await gpus.settle()
    await gpus.advance(11)  # The back-off of a pod that was refused once.
    assert (await gpus.client.get("v1/Pod", "p"))["spec"]["nodeName"]


def partitionable_slices(node: str, **sizes: str) -> list[Object]:
    """Return the slices of one card whose partitions share its memory."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
    devices = [
        {"name": name, "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": size}}}]}
        for name, size in sizes.items()
    ]
    head = {"apiVersion": RESOURCE, "kind": "ResourceSlice"}
    common = {"driver": DRIVER, "pool": pool, "nodeName": node}
    return [
        {**head, "metadata": {"name": f"{node}-counters"}, "spec": {**common, "sharedCounters": counters}},
        {**head, "metadata": {"name": f"{node}-devices"}, "spec": {**common, "devices": devices}},
    ]


async def bound(cluster: Cluster, name: str) -> bool:
    return bool((await cluster.client.get("v1/Pod", name))["spec"].get("nodeName"))


async def device_of(cluster: Cluster, name: str) -> Object:
    obj = await cluster.client.get(f"{RESOURCE}/ResourceClaim", name)
    [result] = obj["status"]["allocation"]["devices"]["results"]
    device: Object = result
    return device


async def test_partitions_of_a_card_are_allocated_while_its_counters_last(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    for obj in (device_class(), *partitionable_slices("node-0", half="20Gi", quarter="10Gi", whole="40Gi")):
        await cluster.client.create(obj)
    for name in ("a", "b", "c"):
        await cluster.client.create(claim(name))
        await cluster.client.create(pod(name, name))
        await cluster.settle()
    assert [(await device_of(cluster, name))["device"] for name in ("a", "b")] == ["half", "quarter"]
    assert not await bound(cluster, "c"), "the whole card needs 40Gi, and 10Gi are left"
    for name in ("a", "b"):
        await cluster.client.delete("v1/Pod", name, grace_seconds=0)
    await cluster.settle()
    await cluster.advance(11)  # The back-off of a pod that was refused once.
    assert (await device_of(cluster, "c"))["device"] == "half"


def sharing_claim(name: str, memory: str) -> Object:
    made = claim(name)
    made["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"memory": memory}}
    return made


async def test_claims_share_a_device_until_its_capacity_is_consumed(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    offered = device_slice("node-0", "10Gi")
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}
    offered["spec"]["devices"][0] |= {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "10Gi", "requestPolicy": policy}},
    }
    for obj in (device_class(), offered):
        await cluster.client.create(obj)
    for name, memory in (("a", "4Gi"), ("b", "3Gi"), ("c", "3Gi")):
        await cluster.client.create(sharing_claim(name, memory))
        await cluster.client.create(pod(name, name))
        await cluster.settle()
    shares = [await device_of(cluster, name) for name in ("a", "b")]
    assert [share["consumedCapacity"] for share in shares] == [{"memory": "5Gi"}, {"memory": "3Gi"}]
    assert len({share["shareID"] for share in shares}) == 2
    assert not await bound(cluster, "c"), "2Gi are left"


async def taint_device(cluster: Cluster, name: str) -> None:
    offered = await cluster.client.get(f"{RESOURCE}/ResourceSlice", name)
    offered["spec"]["devices"][0]["taints"] = [{"key": "broken", "value": "yes", "effect": "NoExecute"}]
    offered["spec"]["pool"]["generation"] += 1
    await cluster.client.update(offered)
    await cluster.settle()


@pytest.mark.parametrize(
    ("seconds", "leaves_after"),
    [(None, 0), (30, 30)],
    ids=["without a toleration", "when the toleration ends"],
)
async def test_a_tainted_device_evicts_the_pods_that_use_it(
    cluster: Cluster, seconds: int | None, leaves_after: int
) -> None:
    await cluster.add_nodes(1)
    for obj in (device_class(), device_slice("node-0", "10Gi")):
        await cluster.client.create(obj)
    wanted = claim("a")
    if seconds is not None:
        toleration = {"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        wanted["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [toleration]
    await cluster.client.create(wanted)
    await cluster.client.create(pod("a", "a"))
    await cluster.settle()
    assert await bound(cluster, "a")
    await taint_device(cluster, "slice-node-0")
    if leaves_after:
        await cluster.advance(leaves_after - 5)
        assert await bound(cluster, "a")
        await cluster.advance(6)
    assert await cluster.client.get_or_none("v1/Pod", "a") is None
    events = await cluster.client.list("v1/Event", namespace="default", fields="reason=DeviceTaintManagerEviction")
    assert [event["message"] for event in events] == ["Marking for deletion"]


def extended_pod(name: str, resource: str, count: int = 1) -> Object:
    amounts = {resource: str(count)}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    "resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"], ids=["named by the class", "implicit"]
)
async def test_an_extended_resource_that_a_device_class_stands_for_is_a_claim_of_its_own(
    cluster: Cluster, resource: str
) -> None:
    await cluster.add_nodes(1)
    offered = device_class()
    offered["spec"]["extendedResourceName"] = "example.com/gpu"
    for obj in (offered, device_slice("node-0", "10Gi")):
        await cluster.client.create(obj)
    await cluster.client.create(extended_pod("a", resource))
    await cluster.settle()
    made = await cluster.client.get("v1/Pod", "a")
    assert made["spec"]["nodeName"] == "node-0"
    [objects] = await cluster.client.list(f"{RESOURCE}/ResourceClaim", namespace="default")
    assert objects["metadata"]["name"].startswith("a-extended-resources-")
    assert objects["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    [owner] = objects["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", made["metadata"]["uid"], True)
    assert objects["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu0"
    assert [consumer["uid"] for consumer in objects["status"]["reservedFor"]] == [made["metadata"]["uid"]]
    assert made["status"]["extendedResourceClaimStatus"] == {
        "requestMappings": [{"containerName": "c", "resourceName": resource, "requestName": "container-0-request-0"}],
        "resourceClaimName": objects["metadata"]["name"],
    }
    assert 'scheduler_resourceclaim_creates_total{status="success"} 1' in cluster.managers[0].metrics.text()
    await cluster.client.create(extended_pod("b", resource))
    await cluster.settle()
    waiting = await cluster.client.get("v1/Pod", "b")
    assert "1 cannot allocate all claims" in waiting["status"]["conditions"][0]["message"]
    await cluster.client.delete("v1/Pod", "a", grace_seconds=0)
    await cluster.settle()
    await cluster.advance(11)  # The back-off of a pod that was refused once.
    assert await bound(cluster, "b")


async def test_an_extended_resource_without_a_class_is_insufficient_until_a_class_stands_for_it(
    cluster: Cluster,
) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(device_slice("node-0", "10Gi"))
    await cluster.client.create(extended_pod("a", "example.com/gpu"))
    await cluster.settle()
    waiting = await cluster.client.get("v1/Pod", "a")
    assert "1 Insufficient example.com/gpu" in waiting["status"]["conditions"][0]["message"]
    offered = device_class()
    offered["spec"]["extendedResourceName"] = "example.com/gpu"
    await cluster.client.create(offered)
    await cluster.settle()
    await cluster.advance(11)  # The back-off of a pod that was refused once.
    assert await bound(cluster, "a")


def attached_slice(node: str) -> Object:
    made = device_slice(node, "10Gi")
    made["spec"]["devices"][0] |= {
        "bindsToNode": True,
        "bindingConditions": ["attached"],
        "bindingFailureConditions": ["broken"],
    }
    return made


async def report_condition(cluster: Cluster, name: str, condition: str) -> None:
    """Report a condition of the claim's device, as its driver does."""
    obj = await cluster.client.get(f"{RESOURCE}/ResourceClaim", name)
    [result] = obj["status"]["allocation"]["devices"]["results"]
    reported = {
        "type": condition,
        "status": "True",
        "reason": "Reported",
        "message": "as asked",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [reported]}
    obj["status"]["devices"] = [device]
    await cluster.client.update_status(obj)
    await cluster.settle()


async def pod_with_attached_device(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    for obj in (device_class(), attached_slice("node-0"), claim("a"), pod("a", "a")):
        await cluster.client.create(obj)
    await cluster.settle()
    assert not await bound(cluster, "a")
    assert (await device_of(cluster, "a"))["bindingConditions"] == ["attached"]


async def test_a_pod_is_bound_when_the_binding_conditions_of_its_device_are_true(cluster: Cluster) -> None:
    await pod_with_attached_device(cluster)
    events = await cluster.client.list("v1/Event", namespace="default", fields="reason=BindingConditionsPending")
    assert [event["message"] for event in events] == ["waiting for binding conditions for device on node node-0"]
    await report_condition(cluster, "a", "attached")
    assert await bound(cluster, "a")
    assert waits(cluster) == {'driver="gpu.example.com",status="success"': 1}


def waits(cluster: Cluster) -> dict[str, int]:
    """Return the metric of waits for binding conditions: how many there were of each outcome."""
    name = 'scheduler_dra_bindingconditions_allocations_total{profile="default-scheduler",'
    lines = cluster.managers[0].metrics.text().splitlines()
    result = (line.removeprefix(name).split("} ") for line in lines if line.startswith(name))
    return {labels: int(float(value)) for labels, value in result}


async def test_a_device_whose_binding_fails_is_deallocated_and_the_pod_tried_again(cluster: Cluster) -> None:
    await pod_with_attached_device(cluster)
    await report_condition(cluster, "a", "broken")
    await cluster.advance(11)  # The back-off after the error, and after the deallocation.
    await cluster.advance(11)
    assert not await bound(cluster, "a")
    obj = await cluster.client.get(f"{RESOURCE}/ResourceClaim", "a")
    assert "devices" not in obj["status"], "deallocated, then allocated anew"
    assert waits(cluster) == {'driver="gpu.example.com",status="failure"': 1}
    await report_condition(cluster, "a", "attached")
    assert await bound(cluster, "a")


async def test_a_claim_with_admin_access_shares_a_device_in_use(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    namespace = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await cluster.client.patch("v1/Namespace", "default", namespace)
    watching = claim("watching")
    watching["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    for obj in (device_class(), device_slice("node-0", "10Gi"), claim("a"), pod("a", "a")):
        await cluster.client.create(obj)
    await cluster.settle()
    for obj in (watching, pod("b", "watching")):
        await cluster.client.create(obj)
    await cluster.settle()
    assert await bound(cluster, "b")
    result = await device_of(cluster, "watching")
    assert (result["device"], result["adminAccess"]) == ("gpu0", True)


async def test_the_node_with_the_first_alternative_of_a_list_wins(gpus: Cluster) -> None:
    wanted = claim("list")
    large = {"name": "large", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": LARGE}}]}
    wanted["spec"]["devices"]["requests"] = [
        {"name": "gpu", "firstAvailable": [large, {"name": "any", "deviceClassName": "gpu"}]}
    ]
    for obj in (wanted, pod("p", "list")):
        await gpus.client.create(obj)
    await gpus.settle()
    assert (await gpus.client.get("v1/Pod", "p"))["spec"]["nodeName"] == "node-1"
    assert (await device_of(gpus, "list"))["request"] == "gpu/large"


async def test_a_tainted_device_is_not_allocated_unless_the_request_tolerates_it(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    offered = device_slice("node-0", "10Gi")
    offered["spec"]["devices"][0]["taints"] = [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]
    tolerant = claim("b")
    tolerant["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [
        {"key": "broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    ]
    for obj in (device_class(), offered, claim("a"), pod("a", "a"), tolerant, pod("b", "b")):
        await cluster.client.create(obj)
    await cluster.settle()
    assert [await bound(cluster, name) for name in ("a", "b")] == [False, True]
