"""Nodes, pods and services for the tests of controllers, and the small part of a kubelet that they need."""

from __future__ import annotations

from typing import Any

from tests.controllers.world import World

from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339

POD, NODE, SERVICE = "v1/Pod", "v1/Node", "v1/Service"


def pod(name: str = "web", *, node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    wanted: dict[str, Any] = {"containers": [{"name": "main", "image": "example.com/web:1"}], **spec}
    if node:
        wanted["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "labels": labels if labels is not None else {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": wanted}


def service(name: str = "web", **spec: Any) -> Object:
    wanted = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": wanted}


def node(name: str = "n1", *, zone: str = "", **spec: Any) -> Object:
    labels = {"kubernetes.io/hostname": name} | ({"topology.kubernetes.io/zone": zone} if zone else {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}


async def add_node(world: World, name: str = "n1", *, zone: str = "", cpu: str = "4", **spec: Any) -> Object:
    """A node whose kubelet says that it is ready."""
    await world.client.create(node(name, zone=zone, **spec))
    return await report_node(world, name, cpu=cpu)


async def report_node(world: World, name: str = "n1", *, cpu: str = "4", **conditions: str) -> Object:
    """Return a node's conditions as its kubelet writes them: ready, and by default under no pressure."""
    now = to_rfc3339(world.client.clock.now())
    stated = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", **conditions}
    status = {
        "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
        "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
        "conditions": [
            {
                "type": type,
                "status": state,
                "reason": "KubeletReady" if type == "Ready" else f"KubeletHas{type}",
                "message": "told by the kubelet",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for type, state in stated.items()
        ],
    }
    return await world.client.patch(NODE, name, {"status": status}, subresource="status")


async def run_pod(
    world: World,
    name: str,
    *,
    ip: str | list[str] = "10.244.0.5",
    ready: bool = True,
    phase: str = "Running",
    **more: Any,
) -> Object:
    """Return a pod's status as the kubelet of its node writes it."""
    now = to_rfc3339(world.client.clock.now())
    ips = [ip] if isinstance(ip, str) else list(ip)
    status = {
        "phase": phase,
        "podIP": ips[0],
        "podIPs": [{"ip": address} for address in ips],
        "conditions": [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}],
        "startTime": now,
        **more,
    }
    return await world.client.patch(POD, name, {"status": status}, namespace="default", subresource="status")


async def add_pod(world: World, name: str, *, node: str = "n1", ip: Any = "10.244.0.5", **more: Any) -> Object:
    """A pod that runs on a node and is ready."""
    status = {key: more.pop(key) for key in ("ready", "phase") if key in more}
    await world.client.create(pod(name, node=node, **more))
    return await run_pod(world, name, ip=ip, **status)


async def events_of(world: World, reason: str, namespace: str = "default") -> list[Object]:
    objects = await world.client.list("v1/Event", namespace=namespace)
    return [event for event in objects if event["reason"] == reason]
