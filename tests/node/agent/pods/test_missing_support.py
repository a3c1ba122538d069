"""Pods that need a runtime or devices that the node does not have: they do not start, and say why."""

from __future__ import annotations

from tests.node.agent.conftest import RealNode

from pinnace.model.objects import Object

_CLAIMS = "resource.k8s.io/v1/ResourceClaim"


async def _create_class(node: RealNode, name: str, handler: str) -> None:
    api_version = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    await node.client.create({**api_version, "metadata": {"name": name}, "handler": handler})


async def test_a_pod_runs_only_in_the_runtime_of_its_class(node: RealNode) -> None:
    await _create_class(node, "sandboxed", "gvisor")
    await _create_class(node, "ordinary", "runc")
    await node.create("sandboxed", "sleep 1000", runtimeClassName="sandboxed")
    await node.until_event("sandboxed", 'no runtime for "gvisor" is configured', reason="FailedCreatePodSandBox")
    await node.create("ordinary", "sleep 1000", runtimeClassName="ordinary")
    await node.until_ready("ordinary")
    waiting = await node.get("sandboxed")
    assert waiting is not None
    assert waiting["status"]["phase"] == "Pending"


async def test_a_pod_with_a_device_waits_for_the_driver_of_the_device(node: RealNode) -> None:
    claim: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "here", "device": "gpu-0"}
    await node.client.create(claim)
    status = {"status": {"allocation": {"devices": {"results": [result]}}}}
    await node.client.patch(_CLAIMS, "gpu", status, namespace="default", subresource="status")
    await node.create("trainer", "sleep 1000", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    message = (
        "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.example.com is not registered"
    )
    await node.until_event("trainer", message, reason="FailedPrepareDynamicResources")
