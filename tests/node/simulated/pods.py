"""Pods for tests of nodes and scheduling."""

from __future__ import annotations

from typing import Any

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.reconcile.owners import owner_reference


async def create_job(client: Client) -> Object:
    """A Job that no controller looks after."""
    template = {"spec": {"containers": [{"name": "main", "image": "main"}], "restartPolicy": "Never"}}
    spec = {"managedBy": "example.com/test", "template": template}
    metadata = {"name": "owner", "namespace": "default"}
    return await client.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def pod(
    name: str, *, owner: Object | None = None, finalizers: list[str] | None = None, cpu: str = "", **spec: Any
) -> Object:
    """A pod of one container; `spec` overrides fields of its spec."""
    metadata: Object = {"name": name, "namespace": "default"}
    if owner:
        metadata["ownerReferences"] = [owner_reference(owner)]
    if finalizers:
        metadata["finalizers"] = finalizers
    container: Object = {"name": "main", "image": "main"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}
