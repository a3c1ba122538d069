"""A copy of the cluster as the scheduler sees it, read once through the API."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.typed_objects import Node, Pod
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.listener import LOOKUPS
from pinnace.scheduler.state.cluster import ClusterState

_FINISHED = ("Succeeded", "Failed")


async def copy_cluster(client: Client) -> ClusterState:
    """Return the nodes, pods and other objects that plug-ins read. Kinds that the server does not have are left out."""
    state = ClusterState()
    for node in await client.list(Node):
        state.put_node(node)
    for kind, name in LOOKUPS.items():
        try:
            objects = await client.list(kind, namespace="")
        except (errors.NotFound, errors.Forbidden):
            continue  # An older server, or a user who may not see them: those plug-ins then see none.
        for obj in objects:
            state.lookups.put(name, obj)
    for pod in await client.list(Pod, namespace=""):
        place(state, pod)
    return state


def place(state: ClusterState, pod: PodObject) -> None:
    """Put a pod on its node, or note its nomination."""
    if (pod.get("status") or {}).get("phase") in _FINISHED:
        return
    record = state.pod(pod)
    if record.node:
        state.add_pod(record, record.node)
    elif record.nominated_node:
        state.nominations.add(record, record.nominated_node)
