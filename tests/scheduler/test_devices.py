"""Dynamic resource allocation in a cluster: claims get devices, pods share claims, and wait for devices in use."""

from __future__ import annotations

import pytest
from tests.testing.both_ways import cluster

from pinnace.model.objects import Object
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
    devices = [{"name": f"gpu{index}", "capacity": {"memory": {"value": one}}} for index, one in enumerate(memory)]
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
    found = await gpus.client.get(f"{RESOURCE}/ResourceClaim", "large")
    [result] = found["status"]["allocation"]["devices"]["results"]
    assert result == {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": "gpu0"}
    [user] = found["status"]["reservedFor"]
    assert user == {"resource": "pods", "name": "p", "uid": created["metadata"]["uid"]}
    assert "resource.kubernetes.io/delete-protection" in found["metadata"]["finalizers"]


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
