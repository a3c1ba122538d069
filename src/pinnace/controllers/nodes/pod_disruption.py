"""Deletes a pod for a reason that its owner can read: the condition DisruptionTarget comes first."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.controllers.pods import PodView
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Pod
from pinnace.process.clock import to_rfc3339


async def disrupt(client: Client, key: Key, pod: PodView, *, reason: str, message: str) -> None:
    """Write the condition and delete the pod. Do nothing if it is gone."""
    mark = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": to_rfc3339(client.clock.now()),
    }
    known = pod.condition("DisruptionTarget")
    try:
        if known is None or (known.status, known.reason) != (mark["status"], mark["reason"]):
            patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [mark]}}
            await client.patch(Pod, key.name, patch, namespace=key.namespace, subresource="status", form="strategic")
        await client.delete(Pod, key.name, namespace=key.namespace, uid=pod.metadata.uid)
    except errors.NotFound:
        return
