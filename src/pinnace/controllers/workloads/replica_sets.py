"""Keeps the wanted number of pods of each ReplicaSet, and of each ReplicationController."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.workloads.adoption import Adoption
from pinnace.controllers.workloads.batching import batch_seconds
from pinnace.controllers.workloads.deletion_order import pods_to_delete, restarts_of
from pinnace.controllers.workloads.ownership import Dependents, age, index_owned, owned_of
from pinnace.controllers.workloads.pod_control import (
    POD,
    EventSource,
    PodControl,
    pod_from_template,
    slow_start,
)
from pinnace.controllers.workloads.pod_facts import (
    PodFacts,
    index_pods,
    is_available,
    pod_facts,
    seconds_to_available,
)
from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.selectors import NOTHING, LabelSelector, from_labels, from_object
from pinnace.reconcile.controller import LOW, Controller, Result
from pinnace.reconcile.failures import Reported
from pinnace.reconcile.finalizers import is_being_deleted
from pinnace.reconcile.manager import Manager

REPLICA_SET = "apps/v1/ReplicaSet"
BURST = 500
"""The most pods that one reconcile creates or deletes: other objects are reconciled in between."""
_FAILURE = "ReplicaFailure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """The differences between ReplicaSets and ReplicationControllers."""

    kind: Kind
    name: str
    component: str
    selector_of: Callable[[Snapshot], LabelSelector]
    counts_terminating: bool


def selector_of_replica_set(snapshot: Snapshot) -> LabelSelector:
    """Return the selector of a ReplicaSet. An empty one selects nothing."""
    return _non_empty(from_object(snapshot.object["spec"].get("selector")))


def selector_of_replication_controller(snapshot: Snapshot) -> LabelSelector:
    """Return the selector of a ReplicationController: plain labels."""
    return _non_empty(from_labels(snapshot.object["spec"].get("selector")))


def _non_empty(selector: LabelSelector) -> LabelSelector:
    return NOTHING if selector.matches_everything else selector


REPLICA_SETS = Flavor(
    kind=Kind("apps", "v1", "ReplicaSet"),
    name="replicaset",
    component="replicaset-controller",
    selector_of=selector_of_replica_set,
    counts_terminating=True,
)
REPLICATION_CONTROLLERS = Flavor(
    kind=Kind("", "v1", "ReplicationController"),
    name="replicationmanager",
    component="replication-controller",
    selector_of=selector_of_replication_controller,
    counts_terminating=False,
)


class ReplicaSets:
    """The caches include every write of this controller at once: no pod is created twice."""

    def __init__(self, manager: Manager, client: Client, flavor: Flavor = REPLICA_SETS) -> None:
        self._flavor = flavor
        self._client = client
        self._clock = client.clock
        self._sets = manager.cache(flavor.kind)
        self._set_owners = Dependents(self._sets, owned_of, index_owned)
        self._pods = Dependents(manager.cache(POD), pod_facts, index_pods)
        self._control = PodControl(client, EventSource(manager.recorder, flavor.component))
        self.controller = Controller(flavor.name, self._reconcile, workers=5)
        self.controller.for_(flavor.kind)
        self._sizes: dict[Key, int] = {}
        self._pod_informer = manager.informer(POD)
        self._pod_informer.on_change(self._hear_pod)

    def _hear_pod(self, old: Snapshot | None, new: Snapshot | None) -> None:
        priority = 0 if self._pod_informer.is_synced else LOW
        for key in {key for pod in (new, old) if pod is not None for key in self._sets_of(pod)}:
            seconds = batch_seconds(self._sizes.get(key, 0))
            self.controller.enqueue(key, "pod changed", after=seconds, priority=priority)

    def _sets_of(self, snapshot: Snapshot) -> Iterable[Key]:
        """Yield the set that owns a pod; for an orphan every set that may adopt it."""
        pod = snapshot.derive(pod_facts)
        if pod.controller is not None:
            return (
                (Key(pod.key.namespace, pod.controller.name),) if pod.controller.is_of_kind(self._flavor.kind) else ()
            )
        if not pod.labels:
            return ()
        sets = self._sets.snapshots(namespace=pod.key.namespace)
        return [one.key for one in sets if one.derive(self._flavor.selector_of).matches(pod.labels)]

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._sets.snapshot(key)
        if snapshot is None:
            self._sizes.pop(key, None)
            return None
        replica_set, selector = snapshot.object, snapshot.derive(self._flavor.selector_of)
        own = await self._claim(replica_set, selector)
        failure: Exception | None = None
        reason, missing = "", 0
        if not is_being_deleted(replica_set):
            pods = [pod for pod in own if pod.is_active]
            missing = replica_set["spec"]["replicas"] - len(pods)
            reason = "FailedCreate" if missing > 0 else "FailedDelete"
            failure = await self._create_or_delete(replica_set, pods)
        if missing:
            own = self._matching(replica_set, selector)
        self._sizes[key] = len(own)
        pods = [pod for pod in own if pod.is_active]
        await self._write_status(replica_set, own, pods, failure, reason)
        if failure is not None:
            raise Reported(str(failure)) from failure
        if abs(missing) > BURST:
            return Result(requeue_after=0.001)  # Other sets come in between.
        seconds = seconds_to_available(pods, replica_set["spec"].get("minReadySeconds", 0), self._clock.now())
        return Result(requeue_after=seconds)

    async def _claim(self, replica_set: Object, selector: LabelSelector) -> list[PodFacts]:
        """Adopt the pods that match, release those that do not, and return the pods of the set."""
        metadata = replica_set["metadata"]
        own, orphans = self._pods.unordered(metadata["uid"]), self._pods.orphans(metadata["namespace"])
        if not orphans and all(selector.matches(pod.labels) for pod in own):
            return own
        active = [pod for pod in (*own, *orphans) if pod.is_active]
        await Adoption(self._client, replica_set, POD).claim(active, lambda pod: selector.matches(pod.labels))
        return self._matching(replica_set, selector)

    def _matching(self, replica_set: Object, selector: LabelSelector) -> list[PodFacts]:
        own = self._pods.unordered(replica_set["metadata"]["uid"])
        return [pod for pod in own if selector.matches(pod.labels)]

    async def _create_or_delete(self, replica_set: Object, pods: Sequence[PodFacts]) -> Exception | None:
        missing = replica_set["spec"]["replicas"] - len(pods)
        if missing > 0:
            pod = pod_from_template(replica_set, replica_set["spec"]["template"])
            create = partial(self._control.create, replica_set, pod)
            return await slow_start([create] * min(missing, BURST))
        if missing < 0:
            chosen = pods_to_delete(
                sorted(pods, key=age),
                min(-missing, BURST),
                related=self._related_pods(replica_set),
                restarts_of=lambda pod: restarts_of(self._decode(pod)),
                now=self._clock.now(),
            )
            return await self._control.delete_all(replica_set, chosen)
        return None

    def _decode(self, pod: PodFacts) -> Object | None:
        snapshot = self._pods.snapshot(pod)
        return snapshot.object if snapshot is not None else None

    def _related_pods(self, replica_set: Object) -> Iterable[PodFacts]:
        """Return the pods of all sets with the same owner: the other revisions of one Deployment."""
        uid = replica_set["metadata"]["uid"]
        owner = next(
            (one for one in replica_set["metadata"].get("ownerReferences") or () if one.get("controller")), None
        )
        uids = {one.uid for one in self._set_owners.of(owner["uid"])} | {uid} if owner is not None else {uid}
        return [pod for one in uids for pod in self._pods.of(one)]

    async def _write_status(
        self,
        replica_set: Object,
        own: Sequence[PodFacts],
        pods: Sequence[PodFacts],
        failure: Exception | None,
        reason: str,
    ) -> None:
        """Write the status if it has changed. `pods` are the active ones of the set's `own`."""
        before = replica_set.get("status") or {}
        status = self._status_of(replica_set, pods)
        if self._flavor.counts_terminating:
            status["terminatingReplicas"] = sum(pod.is_terminating for pod in own)
        status.update(self._failure_conditions(before, failure, reason))
        if status != before:
            await self._client.update_status({**replica_set, "status": status})

    def _status_of(self, replica_set: Object, pods: Sequence[PodFacts]) -> Object:
        spec, now = replica_set["spec"], self._clock.now()
        template_labels = from_labels(spec["template"]["metadata"].get("labels"))
        ready_seconds = spec.get("minReadySeconds", 0)
        counts = {
            "fullyLabeledReplicas": sum(template_labels.matches(pod.labels) for pod in pods),
            "readyReplicas": sum(pod.is_ready for pod in pods),
            "availableReplicas": sum(is_available(pod, ready_seconds, now) for pod in pods),
            "observedGeneration": replica_set["metadata"].get("generation", 0),
        }
        return {"replicas": len(pods)} | {name: count for name, count in counts.items() if count}

    def _failure_conditions(self, before: Object, failure: Exception | None, reason: str) -> Object:
        """Return the conditions, with ReplicaFailure while pods cannot be created or deleted."""
        conditions = before.get("conditions") or []
        known = any(one.get("type") == _FAILURE for one in conditions)
        if failure is not None and not known:
            now = to_rfc3339(self._clock.now())
            condition = {"type": _FAILURE, "status": "True", "reason": reason, "message": str(failure)}
            conditions = [*conditions, {**condition, "lastTransitionTime": now}]
        elif failure is None:
            conditions = [one for one in conditions if one.get("type") != _FAILURE]
        return {"conditions": conditions} if conditions else {}
