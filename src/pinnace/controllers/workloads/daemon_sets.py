"""Runs one pod of each DaemonSet on every node that fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.workloads.adoption import Adoption
from pinnace.controllers.workloads.daemon_placement import (
    EligibleNodes,
    daemon_pod,
    node_facts,
    placement_of,
    sort_nodes,
    target_node,
)
from pinnace.controllers.workloads.daemon_plan import DaemonPlan, Daemons, plan_nodes, plan_update, status_of
from pinnace.controllers.workloads.ownership import Dependents
from pinnace.controllers.workloads.pod_control import EventSource, PodControl, slow_start
from pinnace.controllers.workloads.pod_facts import (
    PodFacts,
    index_pods,
    is_available,
    pod_facts,
    seconds_to_available,
)
from pinnace.controllers.workloads.replica_sets import selector_of_replica_set
from pinnace.controllers.workloads.revisions import POD_LABEL, Newest, Revisions, name_of
from pinnace.model.objects import Key, Kind
from pinnace.model.selectors import LabelSelector, from_object
from pinnace.model.typed_objects import ControllerRevision, DaemonSet, Node, Pod
from pinnace.process.work_slices import in_turns
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.failures import Reported
from pinnace.reconcile.finalizers import is_being_deleted
from pinnace.reconcile.manager import Manager

BURST = 250
"""Pods that one reconcile creates or deletes at most."""
FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 900.0
_KIND = Kind("apps", "v1", "DaemonSet")


class DaemonSets:
    """Reads through the manager's caches, writes through `client`."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._events = EventSource(manager.recorder, "daemonset-controller")
        self._sets = manager.cache(DaemonSet)
        self._nodes = manager.cache(Node)
        self._pods = Dependents(manager.cache(Pod), pod_facts, index_pods)
        self._control = PodControl(client, self._events)
        self._revisions = Revisions(manager, client, hash_label=POD_LABEL)
        self._backoffs: dict[tuple[str, str], tuple[float, float]] = {}
        self.controller = Controller("daemonset", self._reconcile, workers=2)
        self.controller.for_(DaemonSet)
        self.controller.watches_encoded(Pod, self._sets_of)
        manager.informer(Node).on_change(self._node_changed)

    def _sets_of(self, snapshot: Snapshot[Pod]) -> Iterable[Key]:
        """Yield the set that owns a pod; for an orphan every set that may adopt it."""
        pod = snapshot.derive(pod_facts)
        if pod.controller is not None:
            return (Key(pod.key.namespace, pod.controller.name),) if pod.controller.is_of_kind(_KIND) else ()
        if not pod.labels:
            return ()
        sets = self._sets.snapshots(namespace=pod.key.namespace)
        return [daemon_set.key for daemon_set in sets if daemon_set.derive(selector_of_replica_set).matches(pod.labels)]

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        """Enqueue the DaemonSets that labels or taints of a node matter to; its heartbeats matter to none."""
        facts = [snapshot.derive(node_facts) for snapshot in (old, new) if snapshot is not None]
        if len(facts) == 2 and facts[0] == facts[1]:
            return
        for daemon_set in self._sets.snapshots():
            if daemon_set.derive(placement_of).may_concern(facts):
                self.controller.enqueue(daemon_set.key, "node")

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._sets.snapshot(key)
        if snapshot is None:
            return None
        daemon_set, selector = snapshot.object, snapshot.derive(selector_of_replica_set)
        if from_object(daemon_set["spec"].get("selector")).matches_everything:
            message = "This daemon set is selecting all pods. A non-empty selector is required."
            self._events.warning(daemon_set, "SelectingAll", message)
            return None
        if is_being_deleted(daemon_set):
            return None
        revisions = await self._revisions.claim(daemon_set, selector)
        collisions = (daemon_set.get("status") or {}).get("collisionCount", 0)
        newest = await self._revisions.sync_newest(daemon_set, revisions, collisions)
        await self._claim_pods(daemon_set, selector)
        nodes = [node.derive(node_facts) async for some in in_turns(self._nodes.snapshots()) for node in some]
        eligible = await sort_nodes(snapshot.derive(placement_of), nodes)
        read = partial(self._read, daemon_set, selector, newest, eligible)
        failure, wait = await self._run_on_nodes(await read())
        if failure is None and daemon_set["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            daemons = await read()
            failure = await self._apply(daemons, await plan_update(daemons))
        await self._truncate(daemon_set, revisions, newest)
        await self._write_status(await read(), newest.collisions)
        if failure is not None:
            raise Reported(str(failure)) from failure
        return Result(requeue_after=await self._next_look(daemon_set, wait))

    async def _claim_pods(self, daemon_set: DaemonSet, selector: LabelSelector) -> None:
        metadata = daemon_set["metadata"]
        candidates = [*await self._pods.of(metadata["uid"]), *await self._pods.orphans(metadata["namespace"])]
        await Adoption(self._client, daemon_set, Pod).claim(candidates, lambda pod: selector.matches(pod.labels))

    async def _read(
        self, daemon_set: DaemonSet, selector: LabelSelector, newest: Newest, nodes: EligibleNodes
    ) -> Daemons:
        now, seconds = self._clock.now(), daemon_set["spec"].get("minReadySeconds", 0)
        pods: dict[str, list[PodFacts]] = {}
        async for some in in_turns(await self._pods.of(daemon_set["metadata"]["uid"])):
            for pod in some:
                snapshot = self._pods.snapshot(pod)
                if snapshot is None or not selector.matches(pod.labels) or (pod.is_terminal and pod.is_deleting):
                    continue
                if node := snapshot.derive(target_node):
                    pods.setdefault(node, []).append(pod)
        return Daemons(
            daemon_set,
            nodes,
            hash_value=newest.revision["metadata"]["labels"][POD_LABEL],
            pods=pods,
            is_available=lambda pod: is_available(pod, seconds, now),
        )

    async def _run_on_nodes(self, daemons: Daemons) -> tuple[Exception | None, float]:
        """Create and delete pods so that each node has the pods it should. Return the back-off of failed pods, too."""
        plan = await plan_nodes(daemons)
        daemon_set = daemons.daemon_set
        wait = 0.0
        for pod in plan.failed:
            left = self._back_off(daemon_set, pod.node)
            if left:
                wait = min(wait, left) if wait else left
                continue
            message = f"Found failed daemon pod {pod.key} on node {pod.node}, will try to kill it"
            self._events.warning(daemon_set, "FailedDaemonPod", message)
            plan.delete.append(pod)
        for pod in plan.succeeded:
            message = f"Found succeeded daemon pod {pod.key} on node {pod.node}, will try to delete it"
            self._events.normal(daemon_set, "SucceededDaemonPod", message)
            plan.delete.append(pod)
        return await self._apply(daemons, plan), wait

    def _back_off(self, daemon_set: DaemonSet, node: str) -> float:
        """Return the seconds to wait before the next failed pod of a node is deleted; 0 counts it as deleted."""
        key, now = (daemon_set["metadata"]["uid"], node), self._clock.monotonic()
        delay, last = self._backoffs.get(key, (0.0, now))
        if now - last < delay:
            return delay - (now - last)
        if now - last > 2 * LONGEST_BACKOFF:
            delay = 0.0
        self._backoffs = {
            known: times for known, times in self._backoffs.items() if now - times[1] <= 2 * LONGEST_BACKOFF
        }
        self._backoffs[key] = (min(LONGEST_BACKOFF, 2 * delay or FIRST_BACKOFF), now)
        return 0.0

    async def _apply(self, daemons: Daemons, plan: DaemonPlan) -> Exception | None:
        daemon_set = daemons.daemon_set
        creations = [
            partial(self._control.create, daemon_set, daemon_pod(daemon_set, node, daemons.hash_value))
            for node in plan.create_on[:BURST]
        ]
        failure = await slow_start(creations)
        return await self._control.delete_all(daemon_set, plan.delete[:BURST]) or failure

    async def _truncate(self, daemon_set: DaemonSet, revisions: Sequence[ControllerRevision], newest: Newest) -> None:
        hashes = {pod.labels.get(POD_LABEL) for pod in await self._pods.unordered(daemon_set["metadata"]["uid"])}
        live = {name_of(revision) for revision in revisions if revision["metadata"]["labels"].get(POD_LABEL) in hashes}
        await self._revisions.truncate(daemon_set, revisions, {*live, name_of(newest.revision)})

    async def _write_status(self, daemons: Daemons, collisions: int) -> None:
        before = daemons.daemon_set.get("status") or {}
        status = await status_of(daemons)
        if collisions or "collisionCount" in before:
            status["collisionCount"] = collisions
        if before.get("conditions"):
            status["conditions"] = before["conditions"]
        if status != before:
            await self._client.update_status({**daemons.daemon_set, "status": status})

    async def _next_look(self, daemon_set: DaemonSet, wait: float) -> float:
        pods = await self._pods.unordered(daemon_set["metadata"]["uid"])
        seconds = seconds_to_available(pods, daemon_set["spec"].get("minReadySeconds", 0), self._clock.now())
        return min(wait, seconds) if wait and seconds else wait or seconds
