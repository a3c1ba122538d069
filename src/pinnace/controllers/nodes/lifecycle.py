"""Monitors nodes: one without heartbeats becomes Unknown, is tainted, and loses its pods, one node at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import cast

import msgspec

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import (
    NODE_EVICTIONS,
    NODE_HEALTH_SECONDS,
    ZONE_HEALTH,
    ZONE_SIZE,
    ZONE_UNHEALTHY_NODES,
    ControllerMetrics,
)
from pinnace.controllers.nodes.taints import (
    NO_EXECUTE,
    NOT_READY,
    UNREACHABLE,
    has_taint,
    taints_of,
    with_condition_taints,
    with_execution_taint,
)
from pinnace.controllers.nodes.zones import Zones, zone_key
from pinnace.controllers.pods import BY_NODE, index_by_node, pod_of
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import Lease, Node, NodeCondition, Pod
from pinnace.process.clock import to_rfc3339
from pinnace.process.exposition import Sample
from pinnace.reconcile.conditions import condition, is_true
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

LEASES = "kube-node-lease"
GRACE = 50.0
"""Seconds without a heartbeat after which a node is Unknown."""
STARTUP_GRACE = 60.0
"""The same for a node whose kubelet has never posted a status."""

_COMPONENT = "node-controller"
_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_LABELS = {"kubernetes.io/os": "beta.kubernetes.io/os", "kubernetes.io/arch": "beta.kubernetes.io/arch"}


_ZONE_GAUGES: tuple[tuple[str, str, Callable[[int, int], float]], ...] = (
    (ZONE_SIZE, "The nodes of each zone.", lambda total, unhealthy: float(total)),
    (
        ZONE_HEALTH,
        "The healthy nodes in percent, by zone.",
        lambda total, unhealthy: 100.0 * (total - unhealthy) / total if total else 100.0,
    ),
    (ZONE_UNHEALTHY_NODES, "The nodes that are not ready, by zone.", lambda total, unhealthy: float(unhealthy)),
)


class _LeaseSpec(msgspec.Struct, gc=False, frozen=True):
    renewTime: str | None = None


class _Lease(msgspec.Struct, gc=False, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


_read_lease = msgspec.json.Decoder(_Lease).decode


@dataclass(slots=True)
class _Health:
    """The health of a node. Times are those of this process' clock: nodes may have wrong ones."""

    uid: str
    alive_at: float
    heartbeat: str = ""
    marked: bool = False
    """Whether its pods have been marked as not ready."""


class NodeLifecycle:
    """One reconcile per node, when it changes and when its grace period ends; a renewed lease costs none."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._nodes = manager.cache(Node)
        self._pods = manager.cache(Pod)
        index_by_node(self._pods)
        self._health: dict[str, _Health] = {}
        self._zones = Zones()
        self._metrics = ControllerMetrics(manager.metrics, NODE_EVICTIONS, NODE_HEALTH_SECONDS)
        for name, help, value in _ZONE_GAUGES:
            self._metrics.gauge(name, help, partial(self._read_zones, value))
        self.controller = Controller("node-lifecycle", self._reconcile, workers=8)
        self.controller.for_(Node)
        # Every node is counted before the first reconcile: one node that is down must not look like all.
        manager.informer(Node).on_change(self._node_changed)
        manager.informer(Lease, namespace=LEASES).on_change(self._lease_changed)
        manager.informer(Pod).on_change(self._pod_changed)

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        if new is not None:
            node = new.object
            self._count(new.key.name, node, ready=is_true(node, "Ready"))

    def _lease_changed(self, old: Snapshot[Lease] | None, new: Snapshot[Lease] | None) -> None:
        health = self._health.get(new.key.name) if new is not None else None
        if new is None or health is None:
            return
        if old is None or _read_lease(old.body).spec.renewTime != _read_lease(new.body).spec.renewTime:
            health.alive_at = self._client.clock.monotonic()

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        """Enqueue the unready node to which a ready pod was bound: that pod must be marked as the others were."""
        if new is None:
            return
        pod = pod_of(new)
        health = self._health.get(pod.spec.nodeName)
        if health is None or not health.marked or not pod.is_ready:
            return
        if old is None or pod_of(old).spec.nodeName != pod.spec.nodeName:
            health.marked = False
            self.controller.enqueue(Key("", pod.spec.nodeName), "pod")

    def _read_zones(self, value: Callable[[int, int], float]) -> list[Sample]:
        return [((("zone", zone),), value(total, unhealthy)) for zone, total, unhealthy in self._zones.sizes()]

    async def _reconcile(self, key: Key) -> Result | None:
        clock = self._client.clock
        began = clock.monotonic()
        result = await self._check(key)
        self._metrics.observe(NODE_HEALTH_SECONDS, clock.monotonic() - began)
        return result

    async def _check(self, key: Key) -> Result | None:
        node = self._nodes.get(key)
        if node is None:
            self._forget(key.name)
            return None
        health = self._observe(node)
        ready = cast("NodeCondition | None", condition(node, "Ready"))
        left = self._grace_left(node, health, ready)
        if left <= 0 and (ready is None or ready["status"] != "Unknown"):
            node = await self._silence(node)
            left = 0.0
        state = (condition(node, "Ready") or {}).get("status", "")
        was_ready = ready is not None and ready["status"] == "True"
        self._count(key.name, node, ready=state == "True")
        wait = await self._taint(node, state)
        if state in ("False", "Unknown"):
            if was_ready or (not health.marked and state == "Unknown"):
                await self._mark_pods(key.name, health)
        else:
            health.marked = False
        waits = [seconds for seconds in (left, wait) if seconds]
        return Result(requeue_after=min(waits)) if waits else None

    def _observe(self, node: Node) -> _Health:
        """Record a status with a newer heartbeat, and an Event for a new node."""
        metadata = node["metadata"]
        name, now = metadata["name"], self._client.clock.monotonic()
        health = self._health.get(name)
        ready = condition(node, "Ready") or {}
        if health is None or health.uid != metadata["uid"]:
            health = self._health[name] = _Health(metadata["uid"], now)
            self._tell_node(name, metadata["uid"], "RegisteredNode", f"Registered Node {name} in Controller")
            if not ready:
                born = datetime.fromisoformat(metadata["creationTimestamp"])
                age = (self._client.clock.now() - born).total_seconds()
                health.alive_at = now - min(STARTUP_GRACE, max(0.0, age))
        heartbeat = f"{ready.get('lastHeartbeatTime', '')} {ready.get('status', '')}"
        if ready and ready.get("reason") != "NodeStatusUnknown" and heartbeat != health.heartbeat:
            if health.heartbeat:
                health.alive_at = now
            health.heartbeat = heartbeat
        return health

    def _grace_left(self, node: Node, health: _Health, ready: NodeCondition | None) -> float:
        grace = GRACE if ready is not None else STARTUP_GRACE
        return health.alive_at + grace - self._client.clock.monotonic()

    async def _silence(self, node: Node) -> Node:
        """Set the conditions of a node to Unknown."""
        now = to_rfc3339(self._client.clock.now())
        conditions = node.setdefault("status", {}).setdefault("conditions", [])
        for type in _CONDITIONS:
            known = condition(node, type)
            if known is None:
                conditions.append(
                    {
                        "type": type,
                        "status": "Unknown",
                        "reason": "NodeStatusNeverUpdated",
                        "message": "Kubelet never posted node status.",
                        "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
                        "lastTransitionTime": now,
                    }
                )
            elif known["status"] != "Unknown":
                known |= {
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                    "lastTransitionTime": now,
                }
        return await self._client.update_status(node)

    def _count(self, name: str, node: Node | None, *, ready: bool) -> None:
        was_down = self._zones.is_down
        if node is not None:
            self._metrics.add(NODE_EVICTIONS, 0, zone=zone_key(node))
        for other in self._zones.set_node(name, node, ready=ready):
            if was_down and not self._zones.is_down and other in self._health:
                # The cluster is back: this process may have been cut off instead of its nodes.
                self._health[other].alive_at = self._client.clock.monotonic()
            if other != name:
                self.controller.enqueue(Key("", other), "zones")

    async def _taint(self, node: Node, state: str) -> float:
        """Update taints and labels to the conditions; return the seconds until the evicting taint may be set."""
        metadata = node["metadata"]
        now = to_rfc3339(self._client.clock.now())
        wanted = with_condition_taints(node, now)
        key = {"False": NOT_READY, "Unknown": UNREACHABLE}.get(state, "")
        other = UNREACHABLE if key == NOT_READY else NOT_READY
        wait: float | None = 0.0
        is_eviction = False
        if self._zones.is_down or not key:
            wanted = with_execution_taint(wanted, "", now) if state == "True" or self._zones.is_down else wanted
        elif has_taint(node, key, NO_EXECUTE) or has_taint(node, other, NO_EXECUTE):
            wanted = with_execution_taint(wanted, key, now)
        else:
            wait = self._zones.wait_for(metadata["name"], self._client.clock.monotonic())
            if wait == 0.0:
                is_eviction = True
                wanted = with_execution_taint(wanted, key, now)
        labels = metadata.get("labels") or {}
        copied = {new: labels[old] for old, new in _LABELS.items() if old in labels and labels.get(new) != labels[old]}
        patch: Object = {"labels": copied} if copied else {}
        spec = {"taints": wanted} if wanted != taints_of(node) else None
        if copied or spec is not None:
            patch["resourceVersion"] = metadata["resourceVersion"]
            await self._client.patch(
                Node, metadata["name"], {"metadata": patch} | ({"spec": spec} if spec is not None else {})
            )
        if is_eviction:
            self._metrics.count(NODE_EVICTIONS, zone=self._zones.zone_of(metadata["name"]))
        return wait or 0.0

    async def _mark_pods(self, name: str, health: _Health) -> None:
        """Set the Ready condition of the node's pods to False: its kubelet cannot."""
        if not health.marked:
            about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": health.uid}}
            text = f"Node {name} status is now: NodeNotReady"
            self._recorder.record(about, "Normal", "NodeNotReady", text, component=_COMPONENT)
        for key in self._pods.keys_by_index(BY_NODE, name):
            pod = self._pods.get(key)
            ready = condition(pod, "Ready") if pod is not None else None
            if pod is None or ready is None or ready.get("status") != "True":
                continue
            ready |= {"status": "False", "lastTransitionTime": to_rfc3339(self._client.clock.now())}
            try:
                await self._client.update_status(pod)
            except errors.NotFound:
                continue
            self._recorder.record(pod, "Warning", "NodeNotReady", "Node is not ready", component=_COMPONENT)
        health.marked = True

    def _forget(self, name: str) -> None:
        health = self._health.pop(name, None)
        if health is not None:
            self._tell_node(name, health.uid, "RemovingNode", f"Removing Node {name} from Controller")
            self._count(name, None, ready=False)

    def _tell_node(self, name: str, uid: str, reason: str, what: str) -> None:
        about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}}
        self._recorder.record(about, "Normal", reason, f"Node {name} event: {what}", component=_COMPONENT)
