"""A small scheduler: each pod goes to the node with the fewest pods of all that can run it.

It looks at node selectors, required node affinity, taints, requests and the number of pods. A pod that fits nowhere
waits until a node changes or a pod leaves; one of each class of equal pods is tried then, and the next if it fits.
"""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.model import errors
from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.nodes import NodeStates, PodClass, Wanted, wanted_of
from pinnace.scheduler.pod_heads import PodHead, decode_head

NAME = "default-scheduler"
_POD = "v1/Pod"
_NODE = "v1/Node"


class Scheduler:
    """Binds the pods whose schedulerName is its own."""

    def __init__(self, manager: Manager, client: Client, *, name: str = NAME) -> None:
        self._manager = manager
        self._client = client
        self._name = name
        self._nodes = NodeStates()
        self._waiting: dict[PodClass, dict[Key, None]] = {}
        self._class_of: dict[Key, Wanted] = {}
        self._full: dict[PodClass, str] = {}
        self._pods = manager.cache(_POD)
        self.controller = Controller("scheduler", self._schedule, workers=16)
        manager.informer(_NODE).on_change(self._hear_node)
        manager.informer(_POD).on_change(self._hear_pod)

    # Listening

    def _hear_node(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is None:
            assert old is not None
            self._nodes.remove_node(old.key.name)
        elif self._nodes.put_node(new.object):
            self._full.clear()
            for pod_class in list(self._waiting):
                self._wake_one(pod_class)

    def _hear_pod(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is None:
            assert old is not None
            self._forget(old.key)
            self._free(decode_head(old.body).metadata.uid)
            return
        head = decode_head(new.body)
        if head.spec.nodeName:
            self._forget(new.key)
            if head.is_finished:
                self._free(head.metadata.uid)
            elif not self._nodes.is_placed(head.metadata.uid):
                self._nodes.place(head.metadata.uid, head.spec.nodeName, wanted_of(new.object).requests)
        elif self._is_ours(head) and new.key not in self._class_of:
            self.controller.enqueue(new.key, "added", priority=head.spec.priority)

    def _is_ours(self, head: PodHead) -> bool:
        return (
            head.spec.schedulerName == self._name
            and not head.spec.schedulingGates
            and not head.metadata.deletionTimestamp
            and not head.is_finished
        )

    def _free(self, uid: str) -> None:
        node = self._nodes.remove(uid)
        if node is None:
            return
        for pod_class in list(self._waiting):
            first = next(iter(self._waiting[pod_class]))
            if self._nodes.fits(self._class_of[first], node):
                self._full.pop(pod_class, None)
                self._wake_one(pod_class)

    # Pods that fit nowhere

    def _wait(self, key: Key, wanted: Wanted) -> None:
        self._class_of[key] = wanted
        self._waiting.setdefault(wanted.pod_class, {})[key] = None

    def _forget(self, key: Key) -> None:
        wanted = self._class_of.pop(key, None)
        if wanted is None:
            return
        waiting = self._waiting[wanted.pod_class]
        del waiting[key]
        if not waiting:
            del self._waiting[wanted.pod_class]
            self._full.pop(wanted.pod_class, None)

    def _wake_one(self, pod_class: PodClass) -> None:
        waiting = self._waiting.get(pod_class)
        if waiting:
            self.controller.enqueue(next(iter(waiting)), "room")

    # Scheduling

    async def _schedule(self, key: Key) -> None:
        snapshot = self._pods.snapshot(key)
        head = decode_head(snapshot.body) if snapshot is not None else None
        if snapshot is None or head is None or head.spec.nodeName or not self._is_ours(head):
            self._forget(key)
            return
        pod = snapshot.object
        wanted = wanted_of(pod)
        node = self._nodes.choose(wanted) if wanted.pod_class not in self._full else None
        if node is None:
            self._wait(key, wanted)
            why = self._full.get(wanted.pod_class)
            if why is None:
                why = self._full[wanted.pod_class] = self._nodes.explain(wanted)
            await self._report(pod, why)
            return
        self._forget(key)
        uid = pod["metadata"]["uid"]
        self._nodes.place(uid, node, wanted.requests)
        try:
            await self._bind(key, uid, node)
        except BaseException as error:
            self._free(uid)
            if isinstance(error, errors.NotFound | errors.Conflict):
                return  # The pod is gone, or another has bound it.
            raise
        self._manager.recorder.record(
            pod, "Normal", "Scheduled", f"Successfully assigned {key} to {node}", component=self._name
        )
        self._wake_one(wanted.pod_class)

    async def _bind(self, key: Key, uid: str, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._client.create_below(_POD, key.name, "binding", binding, namespace=key.namespace)

    async def _report(self, pod: Object, message: str) -> None:
        """Say in the pod's conditions and in an Event why it is not scheduled, once for each reason."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        conditions = status.get("conditions") or []
        present: Object = next((one for one in conditions if one.get("type") == "PodScheduled"), {})
        if present.get("status") == "False" and present.get("message") == message:
            return
        is_same = present.get("status") == "False"
        since = present["lastTransitionTime"] if is_same else to_rfc3339(self._client.clock.now())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": since,
        }
        if metadata.get("generation"):
            condition["observedGeneration"] = metadata["generation"]
        others = [one for one in conditions if one.get("type") != "PodScheduled"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [*others, condition]}}
        try:
            await self._client.patch(
                _POD, metadata["name"], patch, namespace=metadata["namespace"], subresource="status"
            )
        except (errors.NotFound, errors.Conflict):
            return  # The pod is gone.
        self._manager.recorder.record(pod, "Warning", "FailedScheduling", message, component=self._name)
