"""Jobs for tests, and a hand on their pods."""

from __future__ import annotations

from typing import Any

from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339
from pinnace.testing.cluster import Cluster

JOB = "batch/v1/Job"
POD = "v1/Pod"
FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"


def job(name: str = "work", *, restart: str = "Never", template: Object | None = None, **spec: Any) -> Object:
    """A Job of one container; `spec` are further fields of its spec."""
    containers = [{"name": "main", "image": "main"}]
    pod_template = {**(template or {}), "spec": {"restartPolicy": restart, "containers": containers}}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {**spec, "template": pod_template},
    }


class Hand:
    """Runs the pods of a cluster without nodes as the test says, and reads Jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.client = cluster.client

    async def create(self, made: Object) -> Object:
        created = await self.client.create(made)
        await self._cluster.settle()
        return created

    async def status(self, name: str = "work") -> Object:
        current: Object = (await self.client.get(JOB, name)).get("status") or {}
        return current

    async def conditions(self, name: str = "work") -> dict[str, str]:
        """The reasons of the conditions that hold."""
        conditions = (await self.status(name)).get("conditions") or ()
        return {condition["type"]: condition["reason"] for condition in conditions if condition["status"] == "True"}

    async def pods(self, name: str = "work") -> list[Object]:
        """The pods of a Job, oldest first."""
        pods = await self.client.list(POD, namespace="default", labels=f"batch.kubernetes.io/job-name={name}")
        return sorted(pods, key=lambda pod: int(pod["metadata"]["resourceVersion"]))

    async def active(self, name: str = "work") -> list[Object]:
        return [pod for pod in await self.pods(name) if is_active(pod)]

    async def by_index(self, name: str = "work") -> dict[int, Object]:
        """The active pods of an Indexed Job."""
        return {int(pod["metadata"]["annotations"][INDEX]): pod for pod in await self.active(name)}

    async def bind(self, pod: Object, node: str = "somewhere") -> None:
        target = {"kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}}
        await self.client.create_below(
            POD, pod["metadata"]["name"], "binding", {**binding, "target": target}, namespace="default"
        )

    async def run(self, pod: Object, *, restarts: int = 0) -> None:
        """Say that a pod is running and ready."""
        now = to_rfc3339(self._cluster.clock.now())
        state = {"running": {"startedAt": now}}
        container = {"name": "main", "image": "main", "imageID": "", "ready": True, "restartCount": restarts}
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": [{**container, "state": state}]}
        await self._patch(pod, status)

    async def end(self, pod: Object, *, code: int = 0, condition: str = "") -> None:
        """Say that the containers of a pod have ended; the Job controller does what follows."""
        now = to_rfc3339(self._cluster.clock.now())
        terminated = {"exitCode": code, "startedAt": now, "finishedAt": now}
        container = {"name": "main", "image": "main", "imageID": "", "ready": False, "restartCount": 0}
        status: Object = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{**container, "state": {"terminated": terminated}}],
        }
        if condition:
            status["conditions"] = [{"type": condition, "status": "True", "lastTransitionTime": now}]
        await self._patch(pod, status)

    async def remove(self, pod: Object) -> None:
        """Do as a kubelet with a deleted pod whose containers have stopped."""
        await self.client.delete(POD, pod["metadata"]["name"], namespace="default", grace_seconds=0)
        await self._cluster.settle()

    async def _patch(self, pod: Object, status: Object) -> None:
        name = pod["metadata"]["name"]
        await self.client.patch(POD, name, {"status": status}, namespace="default", subresource="status")
        await self._cluster.settle()

    async def events(self) -> list[str]:
        return [event["reason"] for event in await self.client.list("v1/Event", namespace="default")]


def is_active(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]


def is_tracked(pod: Object) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())
