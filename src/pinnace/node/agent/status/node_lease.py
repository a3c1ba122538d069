"""The lease by which a node says that it lives."""

from __future__ import annotations

from datetime import datetime

from pinnace.client.client import Client
from pinnace.model.typed_objects import Lease
from pinnace.process.clock import to_rfc3339_micro

_NAMESPACE = "kube-node-lease"
_SECONDS = 40


async def renew_lease(client: Client, node: str, now: datetime) -> None:
    """Raise NotFound if the node has no lease yet."""
    patch = {"spec": {"renewTime": to_rfc3339_micro(now)}}
    await client.patch(Lease, node, patch, namespace=_NAMESPACE)


async def create_lease(client: Client, node: str, uid: str, now: datetime) -> None:
    """Create the lease of a node, which has this uid. Raise AlreadyExists."""
    lease: Lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node,
            "namespace": _NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
        },
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": _SECONDS,
            "renewTime": to_rfc3339_micro(now),
        },
    }
    await client.create(lease)
