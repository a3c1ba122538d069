"""A kubelet and scheduler for tests of controllers: pods run, become ready and stop when the test says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from tests.controllers.world import World

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339

POD = "v1/Pod"


class Kubelet:
    """Runs the pods of a namespace on nodes that need not exist."""

    def __init__(self, world: World, *, namespace: str = "default", nodes: Iterable[str] = ("node-1",)) -> None:
        self._world = world
        self._client = world.client
        self._namespace = namespace
        self._nodes = list(nodes)
        self._placed = 0
        self.is_healthy: Callable[[Object], bool] = lambda pod: True
        """Which pods become ready when they run."""

    async def run_all(self) -> None:
        """Run pods and end deletions until the controllers have nothing left to do and no pod changes any more."""
        while True:
            await self._world.settle()
            if not await self.step():
                return

    async def step(self) -> int:
        """Take every pod to the end of its current step: running and ready, or deleted. Return how many changed."""
        pods = await self._client.list(POD, namespace=self._namespace)
        return sum([await self.advance(pod) for pod in pods])

    async def advance(self, pod: Object) -> bool:
        """Take one pod to the end of its current step. Return whether it changed."""
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            return await self.end(name, uid=pod["metadata"]["uid"])
        status = pod.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return False
        wanted = self.is_healthy(pod)
        if status.get("phase") == "Running" and is_ready(pod) == wanted:
            return False
        with contextlib.suppress(errors.NotFound):  # Its owner has deleted it since it was listed.
            if not pod["spec"].get("nodeName"):
                await self.bind(name)
            await self.start(name, ready=wanted)
        return True

    async def bind(self, name: str, node: str = "") -> None:
        """Bind a pod to a node: the named one, the one that its affinity names, or the next of this kubelet's."""
        self._placed += 1
        pod = await self._client.get(POD, name, namespace=self._namespace)
        node = node or pinned_to(pod) or self._nodes[self._placed % len(self._nodes)]
        target = {"kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self._client.create_below(POD, name, "binding", binding, namespace=self._namespace)

    async def start(self, name: str, *, ready: bool = True, restarts: int = 0) -> None:
        """Say that a pod runs."""
        await self._report(name, "Running", is_ready=ready, restarts=restarts)

    async def finish(self, name: str, phase: str = "Succeeded") -> None:
        """Say that all containers of a pod have ended."""
        await self._report(name, phase, is_ready=False, restarts=0)

    async def end(self, name: str, *, uid: str = "") -> bool:
        """Remove a pod whose containers have stopped. Return whether it was there and nothing else holds it."""
        try:
            left = await self._client.delete(POD, name, namespace=self._namespace, grace_seconds=0, uid=uid)
        except (errors.NotFound, errors.Conflict):
            return False
        return not (left.get("metadata") or {}).get("finalizers")

    async def _report(self, name: str, phase: str, *, is_ready: bool, restarts: int) -> None:
        now = to_rfc3339(self._client.clock.now())
        pod = await self._client.get(POD, name, namespace=self._namespace)
        known = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or ()}
        status = "True" if is_ready else "False"
        if (known.get("Ready") or {}).get("status") != status:
            known["Ready"] = {"type": "Ready", "status": status, "lastTransitionTime": now}
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": is_ready,
                "restartCount": restarts,
            }
            for container in pod["spec"]["containers"]
        ]
        patch = {"status": {"phase": phase, "conditions": list(known.values()), "containerStatuses": containers}}
        await self._client.patch(POD, name, patch, namespace=self._namespace, subresource="status")


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def pinned_to(pod: Object) -> str:
    """Return the node that the affinity of a pod names, as for the pods of DaemonSets; empty if it names none."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    fields = [field for term in required.get("nodeSelectorTerms") or () for field in term.get("matchFields") or ()]
    return fields[0]["values"][0] if fields else ""
