"""Deletes the pods that no kubelet deletes: on lost nodes, never scheduled, or finished long ago."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import POD_GARBAGE_DELETIONS, POD_GARBAGE_ERRORS, ControllerMetrics
from pinnace.controllers.nodes.taints import OUT_OF_SERVICE, has_taint
from pinnace.controllers.pods import BY_NODE, PodView, index_by_node, pod_of
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import Node, Pod, PodCondition
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.conditions import is_true
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

MOST_FINISHED = 12_500
QUARANTINE = 40.0
"""Seconds that a node must be missing before its pods are deleted."""

_FINISHED = Key("", "")
"""The key that stands for the finished pods of all namespaces."""


class PodGarbage:
    """A key is a pod, a node that is missing (without namespace), or `_FINISHED`."""

    def __init__(self, manager: Manager, client: Client, *, most_finished: int = MOST_FINISHED) -> None:
        self._client = client
        self._metrics = ControllerMetrics(manager.metrics, POD_GARBAGE_DELETIONS, POD_GARBAGE_ERRORS)
        self._most = most_finished
        self._pods = manager.cache(Pod)
        self._nodes = manager.cache(Node)
        index_by_node(self._pods)
        self._finished: set[Key] = set()
        self.controller = Controller("pod-garbage-collector", self._reconcile, workers=4)
        self._node_informer = manager.informer(Node)
        self._node_informer.on_change(self._node_changed)
        manager.informer(Pod).on_change(self._pod_changed)

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        seen = new or old
        if seen is None:
            return
        keys = self._pods.keys_by_index(BY_NODE, seen.key.name)
        if new is None:
            if keys:
                self.controller.enqueue(seen.key, "node deleted", after=QUARANTINE)
        elif keys and _is_out_of_service(new.object):
            for key in keys:
                self.controller.enqueue(key, "out of service")

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        if new is None:
            if old is not None:
                self._finished.discard(old.key)
            return
        pod = pod_of(new)
        if pod.is_finished:
            self._finished.add(new.key)
            if len(self._finished) > self._most:
                self.controller.enqueue(_FINISHED, "too many finished pods")
        node = Key("", pod.spec.nodeName)
        if pod.is_terminating and (not node.name or _is_out_of_service(self._nodes.get(node))):
            self.controller.enqueue(new.key, "terminating")
        if node.name and node not in self._nodes:
            self.controller.enqueue(node, "node missing", after=QUARANTINE)

    async def _reconcile(self, key: Key) -> None:
        if key == _FINISHED:
            await self._delete_finished()
        elif key.namespace:
            await self._delete_stuck(key)
        elif key not in self._nodes and await self._client.get_or_none(Node, key.name) is None:
            mark: PodCondition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": to_rfc3339(self._client.clock.now()),
            }
            for pod in self._pods.keys_by_index(BY_NODE, key.name):
                await self._delete(pod, mark, "orphaned")

    async def _delete_stuck(self, key: Key) -> None:
        """Delete a pod that is being deleted and has no kubelet to finish it."""
        snapshot = self._pods.snapshot(key)
        if snapshot is None:
            return
        pod = pod_of(snapshot)
        node = self._nodes.get(Key("", pod.spec.nodeName)) if pod.spec.nodeName else None
        is_lost = not pod.spec.nodeName or (node is not None and _is_out_of_service(node))
        if pod.is_terminating and is_lost:
            await self._delete(key, None, "out-of-service" if pod.spec.nodeName else "unscheduled")

    async def _delete_finished(self) -> None:
        surplus = len(self._finished) - self._most
        if surplus <= 0:
            return
        snapshots = [snapshot for key in self._finished if (snapshot := self._pods.snapshot(key)) is not None]
        for snapshot in sorted(snapshots, key=_order)[:surplus]:
            await self._delete(snapshot.key, None, "terminated")
            self._finished.discard(snapshot.key)

    async def _delete(self, key: Key, mark: PodCondition | None, reason: str) -> None:
        """Delete a pod after its phase is set to Failed: no kubelet sets it, and its controllers wait for it."""
        snapshot = self._pods.snapshot(key)
        if snapshot is None:
            return
        pod = pod_of(snapshot)
        if pod.is_finished and pod.is_terminating and pod.metadata.deletionGracePeriodSeconds == 0:
            return  # Only finalizers hold it.
        self._metrics.count(POD_GARBAGE_DELETIONS, namespace=key.namespace, reason=reason)
        try:
            if not pod.is_finished:
                status: Object = {"phase": "Failed"} | ({"conditions": [mark]} if mark is not None else {})
                patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
                await self._client.patch(
                    Pod, key.name, patch, namespace=key.namespace, subresource="status", form="strategic"
                )
            await self._client.delete(Pod, key.name, namespace=key.namespace, uid=pod.metadata.uid, grace_seconds=0)
        except errors.NotFound:
            return
        except errors.ApiError:
            self._metrics.count(POD_GARBAGE_ERRORS, namespace=key.namespace, reason=reason)
            raise


def _is_out_of_service(node: Node | None) -> bool:
    return node is not None and has_taint(node, OUT_OF_SERVICE) and not is_true(node, "Ready")


def _order(snapshot: Snapshot[Pod]) -> tuple[bool, str, str]:
    """Return the sort key: evicted pods first, then the oldest."""
    pod: PodView = pod_of(snapshot)
    is_evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not is_evicted, pod.metadata.creationTimestamp or "", pod.metadata.name
