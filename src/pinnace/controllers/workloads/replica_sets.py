"""Keeps the wanted number of pods of each ReplicaSet, and of each ReplicationController."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cmp_to_key, partial
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple, cast

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.workloads.adoption import Adoption
from pinnace.controllers.workloads.ownership import Dependents, age, index_owned, owned_of
from pinnace.controllers.workloads.pod_control import (
    BURST,
    EventSource,
    PodControl,
    TooManyUnscheduled,
    most_creations,
    pod_from_template,
    slow_start,
)
from pinnace.controllers.workloads.pod_facts import (
    PodFacts,
    index_pods,
    is_available,
    parse_time,
    pod_facts,
    seconds_to_available,
)
from pinnace.model.objects import Key, Kind, without_zeros
from pinnace.model.selectors import NOTHING, LabelSelector, from_labels, from_object
from pinnace.model.typed_objects import Pod, ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from pinnace.process.clock import to_rfc3339
from pinnace.process.work_slices import in_turns
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.controller import LOW, Controller, Result
from pinnace.reconcile.failures import Reported
from pinnace.reconcile.finalizers import is_being_deleted
from pinnace.reconcile.manager import Manager

_FAILURE = "ReplicaFailure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """The differences between ReplicaSets and ReplicationControllers."""

    kind: Kind
    name: str
    component: str
    selector_of: Callable[[Snapshot[Any]], LabelSelector]
    counts_terminating: bool


def selector_of_replica_set(snapshot: Snapshot[Any]) -> LabelSelector:
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
        # Of both kinds: they differ in the selector, which the flavor reads.
        self._sets = cast("Cache[ReplicaSet]", manager.cache(flavor.kind))
        self._set_owners = Dependents(self._sets, owned_of, index_owned)
        self._pods = Dependents(manager.cache(Pod), pod_facts, index_pods)
        self._control = PodControl(client, EventSource(manager.recorder, flavor.component))
        self.controller = Controller(flavor.name, self._reconcile, workers=5)
        self.controller.for_(flavor.kind)
        self._sizes: dict[Key, int] = {}
        self._pod_informer = manager.informer(Pod)
        self._pod_informer.on_change(self._hear_pod)

    def _hear_pod(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        priority = 0 if self._pod_informer.is_synced else LOW
        for key in {key for pod in (new, old) if pod is not None for key in self._sets_of(pod)}:
            seconds = batch_seconds(self._sizes.get(key, 0))
            self.controller.enqueue(key, "pod changed", after=seconds, priority=priority)

    def _sets_of(self, snapshot: Snapshot[Pod]) -> Iterable[Key]:
        """Yield the set that owns a pod; for an orphan every set that may adopt it."""
        pod = snapshot.derive(pod_facts)
        if pod.controller is not None:
            return (
                (Key(pod.key.namespace, pod.controller.name),) if pod.controller.is_of_kind(self._flavor.kind) else ()
            )
        if not pod.labels:
            return ()
        sets = self._sets.snapshots(namespace=pod.key.namespace)
        return [
            replica_set.key for replica_set in sets if replica_set.derive(self._flavor.selector_of).matches(pod.labels)
        ]

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
            own = await self._matching(replica_set, selector)
        self._sizes[key] = len(own)
        pods = [pod for pod in own if pod.is_active]
        await self._write_status(replica_set, own, pods, failure, reason)
        if failure is not None:
            raise Reported(str(failure)) from failure
        if missing < -BURST or (missing > BURST and most_creations(pods)):
            return Result(requeue_after=0.001)  # Other sets come in between.
        seconds = seconds_to_available(pods, replica_set["spec"].get("minReadySeconds", 0), self._clock.now())
        return Result(requeue_after=seconds)

    async def _claim(self, replica_set: ReplicaSet, selector: LabelSelector) -> list[PodFacts]:
        """Adopt the pods that match, release those that do not, and return the pods of the set."""
        metadata = replica_set["metadata"]
        own = await self._pods.unordered(metadata["uid"])
        orphans = await self._pods.orphans(metadata["namespace"])
        if not orphans and all(selector.matches(pod.labels) for pod in own):
            return own
        active = [pod for pod in (*own, *orphans) if pod.is_active]
        await Adoption(self._client, replica_set, Pod).claim(active, lambda pod: selector.matches(pod.labels))
        return await self._matching(replica_set, selector)

    async def _matching(self, replica_set: ReplicaSet, selector: LabelSelector) -> list[PodFacts]:
        own = await self._pods.unordered(replica_set["metadata"]["uid"])
        return [pod for pod in own if selector.matches(pod.labels)]

    async def _create_or_delete(self, replica_set: ReplicaSet, pods: Sequence[PodFacts]) -> Exception | None:
        missing = replica_set["spec"]["replicas"] - len(pods)
        if missing > 0:
            most = most_creations(pods)
            if not most:
                return TooManyUnscheduled()
            pod = pod_from_template(replica_set, replica_set["spec"]["template"])
            create = partial(self._control.create, replica_set, pod)
            return await slow_start([create] * min(missing, most))
        if missing < 0:
            chosen = await pods_to_delete(
                sorted(pods, key=age),
                min(-missing, BURST),
                related=await self._related_pods(replica_set),
                restarts_of=self._restarts_of,
                now=self._clock.now(),
            )
            return await self._control.delete_all(replica_set, chosen)
        return None

    def _restarts_of(self, pod: PodFacts) -> tuple[int, int]:
        snapshot = self._pods.snapshot(pod)
        return snapshot.derive(restarts_of) if snapshot is not None else (0, 0)

    async def _related_pods(self, replica_set: ReplicaSet) -> Iterable[PodFacts]:
        """Return the pods of all sets with the same owner: the other revisions of one Deployment."""
        uid = replica_set["metadata"]["uid"]
        owner = next(
            (
                reference
                for reference in replica_set["metadata"].get("ownerReferences") or ()
                if reference.get("controller")
            ),
            None,
        )
        siblings = await self._set_owners.unordered(owner["uid"]) if owner is not None else ()
        return [
            pod for owner_uid in {uid, *(sibling.uid for sibling in siblings)} for pod in await self._pods.of(owner_uid)
        ]

    async def _write_status(
        self,
        replica_set: ReplicaSet,
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

    def _status_of(self, replica_set: ReplicaSet, pods: Sequence[PodFacts]) -> ReplicaSetStatus:
        spec, now = replica_set["spec"], self._clock.now()
        template_labels = from_labels(spec["template"]["metadata"].get("labels"))
        ready_seconds = spec.get("minReadySeconds", 0)
        counts: ReplicaSetStatus = {
            "fullyLabeledReplicas": sum(template_labels.matches(pod.labels) for pod in pods),
            "readyReplicas": sum(pod.is_ready for pod in pods),
            "availableReplicas": sum(is_available(pod, ready_seconds, now) for pod in pods),
            "observedGeneration": replica_set["metadata"].get("generation", 0),
        }
        return {"replicas": len(pods), **without_zeros(counts)}

    def _failure_conditions(self, before: ReplicaSetStatus, failure: Exception | None, reason: str) -> ReplicaSetStatus:
        """Return the conditions, with ReplicaFailure while pods cannot be created or deleted."""
        conditions = before.get("conditions") or []
        known = any(condition.get("type") == _FAILURE for condition in conditions)
        if failure is not None and not known:
            now = to_rfc3339(self._clock.now())
            condition: ReplicaSetCondition = {
                "type": _FAILURE,
                "status": "True",
                "reason": reason,
                "message": str(failure),
            }
            conditions = [*conditions, {**condition, "lastTransitionTime": now}]
        elif failure is None:
            conditions = [condition for condition in conditions if condition.get("type") != _FAILURE]
        return {"conditions": conditions} if conditions else {}


_UNBATCHED = 100
"""Up to so many pods, each change is reconciled at once. A reconcile reads all pods of its owner: in a large set,
changes wait for others, or each would cost as much as all."""
_BATCHED_FOR_A_SECOND = 4000
"""The size from which changes wait for a whole second. Sets of a few hundred pods wait for milliseconds."""


def batch_seconds(size: int) -> float:
    """Return how long a change of one of so many pods may wait for other changes."""
    return min(1.0, (size / _BATCHED_FOR_A_SECOND) ** 2) if size > _UNBATCHED else 0.0


_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_COMPARING = 2
"""The cost of sorting one pod among hundreds, in small items of `in_turns`."""


async def pods_to_delete(
    pods: Sequence[PodFacts],
    count: int,
    *,
    related: Iterable[PodFacts],
    restarts_of: Callable[[PodFacts], tuple[int, int]],
    now: datetime,
) -> Sequence[PodFacts]:
    """Return `count` of the pods: not started before running, not ready before ready, cheap before expensive, crowded
    nodes before others, young before old. Other work has its turn in between.

    `related` are all pods of the same application: they say how crowded a node is. `restarts_of` reads the restarts of
    containers and of sidecars, where it comes to that.
    """
    if count >= len(pods):
        return pods
    on_node = Counter(pod.node for pod in related if pod.is_active)

    def compare(first: _Ranked, other: _Ranked) -> int:
        return _compare(first, other, restarts_of, now)

    by_rank = cmp_to_key(compare)
    runs = [
        sorted([_Ranked(_rank(pod, on_node), pod) for pod in some], key=by_rank)
        async for some in in_turns(pods, cost=_COMPARING)
    ]
    chosen = islice(merge(*runs, key=by_rank), count)
    return [ranked.pod async for some in in_turns(chosen, cost=_COMPARING) for ranked in some]


class _Ranked(NamedTuple):
    rank: tuple[bool, int, bool, int, int]
    pod: PodFacts


def _compare(
    ranked: _Ranked,
    other_ranked: _Ranked,
    restarts_of: Callable[[PodFacts], tuple[int, int]],
    now: datetime,
) -> int:
    """Return a negative number if the first pod is deleted before the other."""
    if ranked.rank != other_ranked.rank:
        return -1 if ranked.rank < other_ranked.rank else 1
    first, other = ranked.pod, other_ranked.pod
    if first.is_ready and first.ready_since != other.ready_since:
        return _younger_first(first.ready_since, other.ready_since, first, other, now)
    restarts = (restarts_of(first), restarts_of(other))
    if restarts[0] != restarts[1]:
        return -1 if restarts[0] > restarts[1] else 1
    if first.created != other.created:
        return _younger_first(first.created, other.created, first, other, now)
    return 0


def _rank(pod: PodFacts, on_node: Counter[str]) -> tuple[bool, int, bool, int, int]:
    return bool(pod.node), _PHASES.get(pod.phase, 0), pod.is_ready, pod.deletion_cost, -on_node[pod.node]


def _younger_first(since: str, other_since: str, first: PodFacts, other: PodFacts, now: datetime) -> int:
    """Compare ages by their order of magnitude; pods of about the same age are ordered by UID."""
    if not since or not other_since:
        return -1 if not since else 1
    difference = _magnitude(since, now) - _magnitude(other_since, now)
    if difference:
        return -1 if difference < 0 else 1
    return -1 if first.uid < other.uid else 1


def _magnitude(since: str, now: datetime) -> int:
    """Return the logarithm of an age in nanoseconds, base 2; -1 for the future."""
    age = (now - parse_time(since)).total_seconds() * 1e9
    return int(math.log2(age)) if age > 0 else -1


def restarts_of(snapshot: Snapshot[Pod]) -> tuple[int, int]:
    """Read the most restarts of a container, and of a sidecar. Use through `snapshot.derive(restarts_of)`."""
    pod = snapshot.object
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    sidecars = {
        container["name"]
        for container in pod["spec"].get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    init = [sidecar for sidecar in status.get("initContainerStatuses") or () if sidecar.get("name") in sidecars]
    return (
        max((container.get("restartCount", 0) for container in containers), default=0),
        max((sidecar.get("restartCount", 0) for sidecar in init), default=0),
    )
