"""Follow the cluster: every change of a node, a pod or another object goes to the state and wakes waiting pods."""

from __future__ import annotations

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Node
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.reconcile.informer import Handler
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.framework.events import NODE, POD, ActionType, ClusterEvent
from pinnace.scheduler.queue import SchedulingQueue
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.lookups import LookupKind
from pinnace.scheduler.state.nodes import NodeChange
from pinnace.scheduler.state.pods import Pod


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    deletionTimestamp: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, gc=False):
    nodeName: str = ""
    schedulerName: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    startTime: str = ""


class PodHead(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


decode_head = msgspec.json.Decoder(PodHead).decode


_DEVICE_CLASS = "DeviceClass"
LOOKUPS: dict[str, LookupKind] = {
    "v1/Namespace": "Namespace",
    "v1/Service": "Service",
    "v1/ReplicationController": "ReplicationController",
    "apps/v1/ReplicaSet": "ReplicaSet",
    "apps/v1/StatefulSet": "StatefulSet",
    "policy/v1/PodDisruptionBudget": "PodDisruptionBudget",
    "v1/PersistentVolumeClaim": "PersistentVolumeClaim",
    "v1/PersistentVolume": "PersistentVolume",
    "storage.k8s.io/v1/StorageClass": "StorageClass",
    "storage.k8s.io/v1/CSINode": "CSINode",
    "storage.k8s.io/v1/CSIDriver": "CSIDriver",
    "storage.k8s.io/v1/CSIStorageCapacity": "CSIStorageCapacity",
    "storage.k8s.io/v1/VolumeAttachment": "VolumeAttachment",
    "resource.k8s.io/v1/ResourceClaim": "ResourceClaim",
    "resource.k8s.io/v1/ResourceSlice": "ResourceSlice",
    "resource.k8s.io/v1/DeviceClass": "DeviceClass",
    "resource.k8s.io/v1/DeviceTaintRule": "DeviceTaintRule",
}
_NODE_ACTIONS = (
    (NodeChange.ADD, ActionType.ADD),
    (NodeChange.ALLOCATABLE, ActionType.NODE_ALLOCATABLE),
    (NodeChange.LABELS, ActionType.NODE_LABELS),
    (NodeChange.TAINTS, ActionType.NODE_TAINTS),
    (NodeChange.CONDITIONS, ActionType.NODE_CONDITIONS),
    (NodeChange.FEATURES, ActionType.NODE_FEATURES),
)


class ClusterListener:
    """Keeps state and queue equal to the cluster. It never waits."""

    def __init__(self, manager: Manager, state: ClusterState, queue: SchedulingQueue) -> None:
        self._manager = manager
        self._state = state
        self._queue = queue
        self._profiles = frozenset(queue.profile_names)
        self._pods = manager.cache(PodObject)

    def listen(self) -> None:
        for kind, name in LOOKUPS.items():
            self._manager.informer(kind).on_change(self._follow(name))
        self._manager.informer(Node).on_change(self._hear_node)
        self._manager.informer(PodObject).on_change(self._hear_pod)

    def is_gone(self, pod: Pod) -> bool:
        """Return whether a waiting pod was deleted, replaced, or bound by another scheduler."""
        snapshot = self._pods.snapshot(pod.key)
        if snapshot is None:
            return True
        if snapshot is pod.source:
            return False
        head = decode_head(snapshot.body)
        return head.metadata.uid != pod.uid or bool(head.spec.nodeName or head.metadata.deletionTimestamp)

    # Nodes and other objects

    def _hear_node(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        if new is None:
            assert old is not None
            if self._state.remove_node(old.key.name):
                self._queue.move(ClusterEvent(NODE, ActionType.DELETE))
            return
        change = self._state.put_node(new.object)
        action = ActionType(0)
        for flag, implied in _NODE_ACTIONS:
            if change & flag:
                action |= implied
        if action:
            nodes = self._state.nodes
            self._queue.move(ClusterEvent(NODE, action, new=(nodes, nodes.slot_of[new.key.name])))

    def _follow(self, kind: LookupKind) -> Handler:
        def hear(old: Snapshot | None, new: Snapshot | None) -> None:
            if new is None:
                assert old is not None
                before = self._state.lookups.find(kind, old.key.name, namespace=old.key.namespace)
                self._state.lookups.remove(kind, old.key)
                if kind == _DEVICE_CLASS:
                    self._state.note_all_nodes()
                self._queue.move(ClusterEvent(kind, ActionType.DELETE, before))
                return
            before = self._state.lookups.find(kind, new.key.name, namespace=new.key.namespace)
            after = _reduce(kind, new.object)
            if after == before:
                return  # Owners report every pod that becomes ready; none of that matters here.
            self._state.lookups.put(kind, after)
            if kind == _DEVICE_CLASS:
                self._state.note_all_nodes()  # It may stand for an extended resource that no node offers.
            self._queue.move(ClusterEvent(kind, ActionType.ADD if before is None else ActionType.UPDATE, before, after))

        return hear

    # Pods

    def _hear_pod(self, old: Snapshot[PodObject] | None, new: Snapshot[PodObject] | None) -> None:
        if new is None:
            assert old is not None
            self._forget(decode_head(old.body).metadata.uid)
            return
        head = decode_head(new.body)
        if old is not None and head.metadata.uid.encode() not in old.body:
            self._forget(decode_head(old.body).metadata.uid)  # Deleted and created again under the same name.
        if head.is_finished:
            self._forget(head.metadata.uid)
        elif head.spec.nodeName:
            self._hear_bound(new, head)
        elif head.spec.schedulerName in self._profiles:
            self._hear_waiting(new, head)

    def _hear_bound(self, new: Snapshot[PodObject], head: PodHead) -> None:
        uid = head.metadata.uid
        known = self._state.pods.get(uid)
        self._queue.remove(uid)
        self._state.nominations.remove(uid)
        if known is not None and known.node == head.spec.nodeName and not _differs(known, head):
            known.generation = head.metadata.generation
            known.started = head.status.startTime
            return
        pod = self._state.pod(new.object)
        self._state.add_pod(pod, head.spec.nodeName)
        if known is None:
            self._queue.move(ClusterEvent(POD, ActionType.ADD, new=pod))
            return
        action = ActionType.UPDATE
        if known.labels != pod.labels:
            action |= ActionType.POD_LABELS
        if any(amount > pod.requests.get(name, 0) for name, amount in known.requests.items()):
            action |= ActionType.POD_SCALE_DOWN
        self._queue.move(ClusterEvent(POD, action, known, pod))

    def _hear_waiting(self, new: Snapshot[PodObject], head: PodHead) -> None:
        uid = head.metadata.uid
        if head.metadata.deletionTimestamp:
            self._forget(uid)
            return
        if uid in self._state.pods:
            return  # It is being bound.
        pod = self._state.pod(new.object)
        pod.source = new
        known = self._queue.get(uid)
        if known is None:
            self._queue.add(pod)
        else:
            event = ClusterEvent(POD, _changes(known.pod, pod), known.pod, pod)
            self._queue.update(pod, event)
        if pod.nominated_node:
            self._state.nominations.add(pod, pod.nominated_node)
        else:
            self._state.nominations.remove(uid)

    def _forget(self, uid: str) -> None:
        """A pod is gone or has finished."""
        self._queue.remove(uid)
        nominated = self._state.nominations.remove(uid)
        pod = self._state.remove_pod(uid) or nominated
        if pod is not None:
            self._queue.move(ClusterEvent(POD, ActionType.DELETE, old=pod))


_BY_SELECTOR = frozenset(("Service", "ReplicationController", "ReplicaSet", "StatefulSet"))
"""Kinds of which only the selector of their pods is read."""


def _reduce(kind: LookupKind, obj: Object) -> Object:
    """Return the part of an object that plug-ins read."""
    metadata = obj["metadata"]
    if kind in _BY_SELECTOR:
        name = {"name": metadata["name"], "namespace": metadata["namespace"]}
        return {"metadata": name, "spec": {"selector": (obj.get("spec") or {}).get("selector")}}
    if kind == "Namespace":
        return {"metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}}}
    return obj


def _differs(known: Pod, head: PodHead) -> bool:
    """Return whether a pod on a node has changed in a way that matters to the scheduler."""
    return (
        (head.metadata.labels or {}) != known.labels
        or bool(head.metadata.deletionTimestamp) != known.is_terminating
        or head.metadata.generation > max(known.generation, 1)
    )


def _changes(old: Pod, new: Pod) -> ActionType:
    before, after = old.spec, new.spec
    action = ActionType.UPDATE
    if old.labels != new.labels:
        action |= ActionType.POD_LABELS
    if before.get("tolerations") != after.get("tolerations"):
        action |= ActionType.POD_TOLERATIONS
    if before.get("schedulingGates") != after.get("schedulingGates"):
        action |= ActionType.POD_GATES
    if old.requests != new.requests:
        action |= ActionType.POD_SCALE_DOWN
    return action
