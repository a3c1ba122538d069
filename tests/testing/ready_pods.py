"""The part of a kubelet that tests of operators need: the pods of one Deployment run."""

from __future__ import annotations

from pinnace.model.selectors import from_object
from pinnace.process.clock import to_rfc3339
from pinnace.testing.cluster import Cluster


async def run_pods_of(cluster: Cluster, deployment: str) -> None:
    """Report every pod of a Deployment in the default namespace as running and ready, and wait for the effects."""
    client = cluster.client
    obj = await client.get("apps/v1/Deployment", deployment)
    selector = str(from_object(obj["spec"]["selector"]))
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": to_rfc3339(client.clock.now())}
    for pod in await client.list("v1/Pod", namespace="default", labels=selector):
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        await client.patch("v1/Pod", pod["metadata"]["name"], status, subresource="status")
    await cluster.settle()
