"""The workload objects that the tests create, and short ways to read what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.controllers.world import World

from pinnace.model.objects import Object

DEPLOYMENT = "apps/v1/Deployment"
REPLICA_SET = "apps/v1/ReplicaSet"
REPLICATION_CONTROLLER = "v1/ReplicationController"
STATEFUL_SET = "apps/v1/StatefulSet"
DAEMON_SET = "apps/v1/DaemonSet"
REVISION = "apps/v1/ControllerRevision"
POD = "v1/Pod"
LABELS = {"app": "web"}


def template(image: str = "web:1", labels: Mapping[str, str] = LABELS, **spec: Any) -> Object:
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {"containers": [{"name": "main", "image": f"example.com/{image}"}], **spec},
    }


def workload(kind: str, name: str = "web", *, image: str = "web:1", **spec: Any) -> Object:
    """An object of a kind that makes pods, such as "apps/v1/ReplicaSet"."""
    api_version, _, kind_name = kind.rpartition("/")
    selector: Object = {"matchLabels": LABELS} if "apps" in api_version else dict(LABELS)
    return {
        "apiVersion": api_version,
        "kind": kind_name,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector, "template": template(image), **spec},
    }


def pod(name: str, labels: Mapping[str, str] = LABELS, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels), **metadata},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
    }


async def status_of(world: World, kind: str, name: str = "web") -> Object:
    obj = await world.client.get(kind, name, namespace="default")
    status: Object = obj.get("status") or {}
    return status


async def change(world: World, kind: str, patch: Object, name: str = "web") -> Object:
    return await world.client.patch(kind, name, patch, namespace="default")


async def set_image(world: World, kind: str, image: str, name: str = "web") -> Object:
    containers = [{"name": "main", "image": f"example.com/{image}"}]
    return await change(world, kind, {"spec": {"template": {"spec": {"containers": containers}}}}, name)


async def listed(world: World, kind: str) -> list[Object]:
    return await world.client.list(kind, namespace="default")


async def condition(world: World, kind: str, type: str, name: str = "web") -> tuple[str, str, str] | None:
    """Status, reason and message of a condition."""
    conditions = (await status_of(world, kind, name)).get("conditions") or ()
    result = next((condition for condition in conditions if condition["type"] == type), None)
    return (result["status"], result["reason"], result["message"]) if result is not None else None


async def events(world: World, name: str = "web") -> list[tuple[str, str, str]]:
    """Component, reason and message of the Events about an object, in the order in which they were written."""
    await world.manager.recorder.idle()
    objects = await world.client.list("v1/Event", namespace="default")
    about = [event for event in objects if event["involvedObject"]["name"] == name]
    about.sort(key=lambda obj: int(obj["metadata"]["resourceVersion"]))
    return [(event["source"]["component"], event["reason"], event["message"]) for event in about]


async def revision_numbers(world: World) -> dict[str, int]:
    """Return the numbers of all revisions by the last letter of their image."""
    objects = await listed(world, REVISION)
    return {obj["data"]["spec"]["template"]["spec"]["containers"][0]["image"][-1]: obj["revision"] for obj in objects}
