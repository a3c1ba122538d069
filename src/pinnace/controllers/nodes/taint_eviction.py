"""Deletes pods from nodes with NoExecute taints that they do not tolerate, or no longer tolerate."""

from __future__ import annotations

from datetime import datetime

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import TAINT_DELETION_SECONDS, TAINT_DELETIONS, ControllerMetrics
from pinnace.controllers.nodes.pod_disruption import disrupt
from pinnace.controllers.nodes.taints import NO_EXECUTE, taints_in, toleration_seconds
from pinnace.controllers.pods import BY_NODE, PodView, index_by_node, pod_of, pod_or_none
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Node, Pod, Taint
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

_COMPONENT = "taint-eviction-controller"


class TaintEviction:
    """One reconcile per pod on a tainted node: when either changes, and when the toleration of the pod ends."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._metrics = ControllerMetrics(manager.metrics, TAINT_DELETIONS, TAINT_DELETION_SECONDS)
        self._pods = manager.cache(Pod)
        index_by_node(self._pods)
        self._tainted: dict[str, list[Taint]] = {}
        self._since: dict[Key, float] = {}
        """When the deletion of a pod was scheduled, in seconds of the clock."""
        self.controller = Controller("taint-eviction", self._reconcile, workers=8)
        manager.informer(Node).on_change(self._node_changed)
        manager.informer(Pod).on_change(self._pod_changed)

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        if new is None:
            if old is not None:
                self._tainted.pop(old.key.name, None)
            return
        name = new.key.name
        taints = taints_in(new, NO_EXECUTE)
        if taints == self._tainted.get(name, []):
            return
        if taints:
            self._tainted[name] = taints
        else:
            self._tainted.pop(name, None)
        for key in self._pods.keys_by_index(BY_NODE, name):
            self.controller.enqueue(key, "taints")

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        if new is None:
            if old is not None and old.key in self._since:
                self.controller.enqueue(old.key, "deleted")
            return
        if not self._tainted:
            return
        after, before = pod_of(new), pod_or_none(old)
        if after.spec.nodeName not in self._tainted:
            return
        if before is None or _decides(before) != _decides(after):
            self.controller.enqueue(new.key, "pod")

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._pods.snapshot(key)
        pod = pod_or_none(snapshot)
        taints = self._tainted.get(pod.spec.nodeName, []) if pod is not None else []
        seconds = toleration_seconds(taints, pod.spec.tolerations or ()) if pod is not None else None
        if pod is None or not taints or seconds is None:
            if self._since.pop(key, None) is not None:
                self._record(key, f"Cancelling deletion of Pod {key}")
            return None
        if pod.is_terminating:
            self._since.pop(key, None)
            return None
        due = now = self._client.clock.monotonic()
        if seconds:
            due = self._since.setdefault(key, now - self._spent(pod, taints)) + seconds
            if due > now:
                return Result(requeue_after=due - now)
        await self._evict(key, pod)
        self._metrics.observe(TAINT_DELETION_SECONDS, self._client.clock.monotonic() - due)
        self._since.pop(key, None)
        return None

    def _spent(self, pod: PodView, taints: list[Taint]) -> float:
        """Return the seconds that a pod has already been under its taints: this process may have just started."""
        times = [taint["timeAdded"] for taint in taints if taint.get("timeAdded")]
        if not times or not pod.metadata.creationTimestamp:
            return 0.0
        began = max(min(times), pod.metadata.creationTimestamp)
        return max(0.0, (self._client.clock.now() - datetime.fromisoformat(began)).total_seconds())

    async def _evict(self, key: Key, pod: PodView) -> None:
        self._record(key, f"Marking for deletion Pod {key}")
        message = "Taint manager: deleting due to NoExecute taint"
        await disrupt(self._client, key, pod, reason="DeletionByTaintManager", message=message)
        self._metrics.count(TAINT_DELETIONS)

    def _record(self, key: Key, message: str) -> None:
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": key.name, "namespace": key.namespace}}
        self._recorder.record(about, "Normal", "TaintManagerEviction", message, component=_COMPONENT)


def _decides(pod: PodView) -> tuple[object, ...]:
    return pod.spec.nodeName, pod.spec.tolerations, pod.is_terminating
