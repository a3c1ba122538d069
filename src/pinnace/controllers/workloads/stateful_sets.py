"""Keeps the pods of each StatefulSet: each with its own name and claims, created, updated and deleted in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, islice

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.controllers.workloads import stateful_identity as identity
from pinnace.controllers.workloads.adoption import Adoption
from pinnace.controllers.workloads.ownership import Dependents
from pinnace.controllers.workloads.pod_control import (
    FAILURES,
    EventSource,
    TooManyUnscheduled,
    most_creations,
    slow_start,
)
from pinnace.controllers.workloads.pod_facts import (
    PodFacts,
    index_pods,
    is_available,
    pod_facts,
    seconds_to_available,
)
from pinnace.controllers.workloads.replica_sets import selector_of_replica_set
from pinnace.controllers.workloads.revisions import POD_LABEL, Revisions, name_of, restored
from pinnace.controllers.workloads.stateful_claims import ClaimRefused, Holder, StatefulClaims
from pinnace.kinds.apps.rollouts import scaled_amount
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object, without_zeros
from pinnace.model.selectors import LabelSelector
from pinnace.model.typed_objects import ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet, StatefulSetStatus
from pinnace.process.work_slices import in_turns
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.failures import Reported
from pinnace.reconcile.finalizers import is_being_deleted
from pinnace.reconcile.manager import Manager

_KIND = Kind("apps", "v1", "StatefulSet")
_HASH_LABEL = "controller.kubernetes.io/hash"


@dataclass(slots=True)
class Replicas:
    """A StatefulSet and its pods within one reconcile."""

    stateful_set: StatefulSet
    current: ControllerRevision
    """The revision that pods had before the update."""
    update: ControllerRevision
    """The revision of the set's template."""
    collisions: int
    pods: dict[int, PodFacts]
    """The pods by ordinal, including those that are not wanted."""
    has_more: bool = False
    """Whether more pods are to be created than one reconcile creates."""
    is_full: bool = False
    """Whether no more pods are created until some have a node."""

    @property
    def ordinals(self) -> range:
        return identity.ordinals(self.stateful_set)

    @property
    def members(self) -> list[int]:
        """The wanted ordinals that have a pod, the lowest first."""
        wanted = self.ordinals
        return sorted(ordinal for ordinal in self.pods if ordinal in wanted)

    def missing(self) -> Iterator[int]:
        """Yield the wanted ordinals without a pod, the lowest first."""
        return (ordinal for ordinal in self.ordinals if ordinal not in self.pods)

    @property
    def condemned(self) -> list[int]:
        """The ordinals that are not wanted, the highest first."""
        return sorted((ordinal for ordinal in self.pods if ordinal not in self.ordinals), reverse=True)

    @property
    def is_parallel(self) -> bool:
        return bool(self.stateful_set["spec"].get("podManagementPolicy") == "Parallel")

    @property
    def ready_seconds(self) -> int:
        return self.stateful_set["spec"].get("minReadySeconds", 0)

    def is_updated(self, ordinal: int) -> bool:
        return self.pods[ordinal].labels.get(POD_LABEL) == name_of(self.update)

    def holder(self, ordinal: int, uid: str = "") -> Holder:
        pod = self.pods.get(ordinal)
        return Holder(
            name=identity.pod_name(self.stateful_set, ordinal),
            uid=uid or (pod.uid if pod is not None else ""),
            ordinal=ordinal,
            is_scaled_down=ordinal not in self.ordinals,
        )

    def new_pod(self, ordinal: int) -> Pod:
        """Return the pod of an ordinal, of the revision that it should have: below the partition the current one."""
        spec = self.stateful_set["spec"]
        strategy = spec.get("updateStrategy") or {}
        rolling = strategy.get("rollingUpdate")
        start = self.ordinals.start
        if rolling is not None:
            keeps_revision = ordinal < start + rolling.get("partition", 0)
        else:
            kept = (self.stateful_set.get("status") or {}).get("currentReplicas", 0)
            keeps_revision = strategy.get("type") == "RollingUpdate" and ordinal < start + kept
        revision = self.current if keeps_revision else self.update
        return identity.new_pod(restored(self.stateful_set, revision), ordinal, name_of(revision))


class StatefulSets:
    """Reads through the manager's caches, writes through `client`."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._events = EventSource(manager.recorder, "statefulset-controller")
        self._sets = manager.cache(StatefulSet)
        self._pods = Dependents(manager.cache(Pod), pod_facts, index_pods)
        self._claims = StatefulClaims(manager.cache(PersistentVolumeClaim), client, self._events)
        self._revisions = Revisions(manager, client, hash_label=_HASH_LABEL)
        self.controller = Controller("statefulset", self._reconcile, workers=5)
        self.controller.for_(StatefulSet)
        self.controller.watches_encoded(Pod, self._sets_of)

    def _sets_of(self, snapshot: Snapshot[Pod]) -> Iterable[Key]:
        """Yield the set that owns a pod; for an orphan the set of its name, if that selects it."""
        pod = snapshot.derive(pod_facts)
        namespace = pod.key.namespace
        if pod.controller is not None:
            return (Key(namespace, pod.controller.name),) if pod.controller.is_of_kind(_KIND) else ()
        key = Key(namespace, pod.key.name.rpartition("-")[0])
        owner = self._sets.snapshot(key)
        is_selected = owner is not None and owner.derive(selector_of_replica_set).matches(pod.labels)
        return (key,) if is_selected else ()

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._sets.snapshot(key)
        if snapshot is None:
            return None
        stateful_set, selector = snapshot.object, snapshot.derive(selector_of_replica_set)
        revisions = await self._revisions.claim(stateful_set, selector)
        await self._claim_pods(stateful_set, selector)
        replicas = await self._read(stateful_set, selector, revisions)
        failure: Exception | None = None
        if not is_being_deleted(stateful_set):
            failure = await self._sync_pods(replicas)
        replicas.pods = await self._members(stateful_set, selector)
        await self._write_status(replicas)
        live = {name_of(replicas.current), name_of(replicas.update)}
        live.update(pod.labels.get(POD_LABEL, "") for pod in replicas.pods.values())
        await self._revisions.truncate(stateful_set, revisions, live)
        if failure is not None:
            raise Reported(str(failure)) from failure
        if replicas.has_more:
            return Result(requeue_after=0.001)  # Other sets come in between.
        seconds = seconds_to_available(replicas.pods.values(), replicas.ready_seconds, self._clock.now())
        return Result(requeue_after=seconds)

    async def _claim_pods(self, stateful_set: StatefulSet, selector: LabelSelector) -> None:
        metadata = stateful_set["metadata"]
        candidates = [*await self._pods.of(metadata["uid"]), *await self._pods.orphans(metadata["namespace"])]

        def matches(pod: PodFacts) -> bool:
            is_member = identity.ordinal_of(pod.key.name, metadata["name"]) is not None
            return is_member and selector.matches(pod.labels)

        await Adoption(self._client, stateful_set, Pod).claim(candidates, matches)

    async def _members(self, stateful_set: StatefulSet, selector: LabelSelector) -> dict[int, PodFacts]:
        name = stateful_set["metadata"]["name"]
        members: dict[int, PodFacts] = {}
        async for pods in in_turns(await self._pods.of(stateful_set["metadata"]["uid"])):
            for pod in pods:
                ordinal = identity.ordinal_of(pod.key.name, name)
                if ordinal is not None and selector.matches(pod.labels):
                    members[ordinal] = pod
        return members

    async def _read(
        self, stateful_set: StatefulSet, selector: LabelSelector, revisions: Sequence[ControllerRevision]
    ) -> Replicas:
        status = stateful_set.get("status") or {}
        newest = await self._revisions.sync_newest(stateful_set, revisions, status.get("collisionCount", 0))
        current = next(
            (revision for revision in revisions if name_of(revision) == status.get("currentRevision")), newest.revision
        )
        return Replicas(
            stateful_set,
            current,
            newest.revision,
            newest.collisions,
            await self._members(stateful_set, selector),
        )

    # Pods

    async def _sync_pods(self, replicas: Replicas) -> Exception | None:
        """Create, repair, scale down and update pods, in this order. Ordered sets do one thing at a time."""
        try:
            if replicas.is_parallel:
                await _at_once([partial(self._keep, replicas, ordinal) for ordinal in self._to_keep(replicas)])
                await _at_once([partial(self._condemn, replicas, ordinal) for ordinal in replicas.condemned])
            elif not await self._keep_in_order(replicas) or not await self._condemn_in_order(replicas):
                return None
            strategy = replicas.stateful_set["spec"].get("updateStrategy") or {}
            if strategy.get("type") != "OnDelete":
                await self._update(replicas)
        except (*FAILURES, ClaimRefused) as error:
            return error
        return TooManyUnscheduled() if replicas.is_full else None

    def _to_keep(self, replicas: Replicas) -> list[int]:
        """Return the wanted ordinals that have a pod, and the first that have none: as many as one reconcile creates.

        A first ordinal that waits for its claims is created when they change, so that only progress asks for more.
        """
        stateful_set = replicas.stateful_set
        most = most_creations(replicas.pods.values())
        missing = list(islice(replicas.missing(), most + 1))
        replicas.is_full = not most and bool(missing)
        batch = missing[:most]
        waits = any(self._claims.is_stale(stateful_set, replicas.holder(ordinal)) for ordinal in batch[:1])
        replicas.has_more = len(missing) > most > 0 and not waits
        return sorted({*replicas.members, *batch})

    async def _keep_in_order(self, replicas: Replicas) -> bool:
        """Create or repair the first wanted pod that is not available; return whether there is none."""
        async for some in in_turns(replicas.ordinals):
            for ordinal in some:
                is_created = ordinal in replicas.pods
                await self._keep(replicas, ordinal)
                if not is_created or not self._is_healthy(replicas, ordinal):
                    return False
        return True

    async def _keep(self, replicas: Replicas, ordinal: int) -> None:
        """Create a pod that is missing, delete one that has ended, and repair one that exists."""
        stateful_set, pod = replicas.stateful_set, replicas.pods.get(ordinal)
        holder = replicas.holder(ordinal)
        if pod is None:
            if not self._claims.is_stale(stateful_set, holder):
                await self._create(replicas, ordinal)
            return
        if pod.is_terminal:
            if not pod.is_deleting:
                await self._delete(stateful_set, pod)
            return
        if pod.phase == "Pending":
            await self._claims.create_missing(stateful_set, holder)
            await self._claims.apply_policy(stateful_set, holder)
        if replicas.is_parallel or self._is_healthy(replicas, ordinal):
            await self._repair(replicas, ordinal, pod)

    async def _create(self, replicas: Replicas, ordinal: int) -> None:
        stateful_set, holder = replicas.stateful_set, replicas.holder(ordinal)
        try:
            await self._claims.create_missing(stateful_set, holder)
            created = await self._client.create(replicas.new_pod(ordinal))
            await self._claims.apply_policy(stateful_set, replicas.holder(ordinal, created["metadata"]["uid"]))
        except errors.AlreadyExists:
            raise
        except (*FAILURES, ClaimRefused) as error:
            if not is_namespace_terminating(error):
                self._record(stateful_set, "Create", holder.name, error)
            raise
        self._record(stateful_set, "Create", holder.name, None)

    async def _repair(self, replicas: Replicas, ordinal: int, pod: PodFacts) -> None:
        """Restore the labels, claims and volumes of a member.

        The server refuses other volumes for an existing pod. As in Kubernetes the attempt is made and recorded: its
        Event shows the user a pod that does not use the claims of its set.
        """
        stateful_set, holder = replicas.stateful_set, replicas.holder(ordinal)
        has_claims = self._has_claims(stateful_set, ordinal, pod)
        follows_policy = self._claims.follow_policy(stateful_set, holder)
        if identity.has_identity(pod) and has_claims and follows_policy:
            return
        patch: Object = {}
        if not identity.has_identity(pod):
            patch["metadata"] = {"labels": identity.identity_labels(pod.key.name, ordinal), "uid": pod.uid}
        snapshot = self._pods.snapshot(pod)
        if not has_claims and snapshot is not None:
            claims = identity.claim_names(stateful_set, ordinal)
            patch["spec"] = {"volumes": identity.volumes_with(claims, snapshot.object["spec"])}
        try:
            if not has_claims:
                await self._claims.create_missing(stateful_set, holder)
            await self._claims.apply_policy(stateful_set, holder)
            if patch:
                await self._client.patch(Pod, pod.key.name, patch, namespace=pod.key.namespace)
        except (*FAILURES, ClaimRefused) as error:
            self._record(stateful_set, "Update", pod.key.name, error)
            raise
        self._record(stateful_set, "Update", pod.key.name, None)

    def _has_claims(self, stateful_set: StatefulSet, ordinal: int, pod: PodFacts) -> bool:
        wanted = identity.claim_names(stateful_set, ordinal)
        snapshot = self._pods.snapshot(pod) if wanted else None
        return snapshot is None or wanted.items() <= snapshot.derive(identity.claimed_volumes).items()

    async def _condemn_in_order(self, replicas: Replicas) -> bool:
        """Delete the highest pod that is not wanted, when all others are available; return whether there is none."""
        first_unavailable = self._first_unavailable(replicas)
        for ordinal in replicas.condemned:
            await self._claims.apply_policy(replicas.stateful_set, replicas.holder(ordinal))
            is_next = self._is_healthy(replicas, ordinal) or ordinal == first_unavailable
            if is_next and not replicas.pods[ordinal].is_deleting:
                await self._delete(replicas.stateful_set, replicas.pods[ordinal])
            return False
        return True

    async def _condemn(self, replicas: Replicas, ordinal: int) -> None:
        await self._claims.apply_policy(replicas.stateful_set, replicas.holder(ordinal))
        if not replicas.pods[ordinal].is_deleting:
            await self._delete(replicas.stateful_set, replicas.pods[ordinal])

    async def _update(self, replicas: Replicas) -> None:
        """Delete pods of an old revision, the highest ordinal first: they are created again with the new one."""
        rolling = replicas.stateful_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
        wanted, members = replicas.ordinals, replicas.members
        most = scaled_amount(rolling.get("maxUnavailable", 1), len(wanted), round_up=False)
        available = sum(not self._is_unavailable(replicas, ordinal) for ordinal in members)
        budget = max(1, most) - (len(wanted) - available)
        first = wanted.start + rolling.get("partition", 0)
        outdated = [
            ordinal
            for ordinal in reversed(members)
            if ordinal >= first and not replicas.is_updated(ordinal) and not replicas.pods[ordinal].is_deleting
        ]
        broken: list[int] = []
        working: list[int] = []
        for ordinal in outdated:
            (broken if self._is_unavailable(replicas, ordinal) else working).append(ordinal)
        # Deleting an unavailable pod lowers no availability.
        for ordinal in [*broken, *working[: max(0, budget)]]:
            await self._delete(replicas.stateful_set, replicas.pods[ordinal])

    async def _delete(self, stateful_set: StatefulSet, pod: PodFacts) -> None:
        try:
            await self._client.delete(Pod, pod.key.name, namespace=pod.key.namespace, uid=pod.uid)
        except (errors.NotFound, errors.Conflict):
            return  # It is gone already.
        except FAILURES as error:
            self._record(stateful_set, "Delete", pod.key.name, error)
            raise
        self._record(stateful_set, "Delete", pod.key.name, None)

    def _record(self, stateful_set: StatefulSet, verb: str, pod: str, error: Exception | None) -> None:
        what = f"{verb} Pod {pod} in StatefulSet {stateful_set['metadata']['name']}"
        if error is None:
            self._events.normal(stateful_set, f"Successful{verb}", f"{what} successful")
        else:
            self._events.warning(stateful_set, f"Failed{verb}", f"{what} failed error: {error}")

    # Health

    def _is_healthy(self, replicas: Replicas, ordinal: int) -> bool:
        pod = replicas.pods[ordinal]
        is_running = pod.phase == "Running" and not pod.is_deleting
        return is_running and is_available(pod, replicas.ready_seconds, self._clock.now())

    def _is_unavailable(self, replicas: Replicas, ordinal: int) -> bool:
        pod = replicas.pods.get(ordinal)
        return pod is None or pod.is_deleting or not is_available(pod, replicas.ready_seconds, self._clock.now())

    def _first_unavailable(self, replicas: Replicas) -> int | None:
        ordered = chain(replicas.ordinals, reversed(replicas.condemned))
        return next((ordinal for ordinal in ordered if self._is_unavailable(replicas, ordinal)), None)

    async def _write_status(self, replicas: Replicas) -> None:
        stateful_set = replicas.stateful_set
        status = status_of(
            stateful_set,
            replicas.pods.values(),
            current=name_of(replicas.current),
            update=name_of(replicas.update),
            collisions=replicas.collisions,
            now=self._clock.now(),
        )
        if status != (stateful_set.get("status") or {}):
            await self._client.update_status({**stateful_set, "status": status})


async def _at_once(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    failure = await slow_start(calls)
    if failure is not None:
        raise failure


def status_of(
    stateful_set: StatefulSet, pods: Collection[PodFacts], *, current: str, update: str, collisions: int, now: datetime
) -> StatefulSetStatus:
    """Return the status. `current` and `update` name the revisions."""
    spec = stateful_set["spec"]
    ready = [pod for pod in pods if pod.phase == "Running" and pod.is_ready]
    staying = [pod for pod in pods if not pod.is_deleting]
    counts: StatefulSetStatus = {
        "readyReplicas": len(ready),
        "currentReplicas": sum(pod.labels.get(POD_LABEL) == current for pod in staying),
        "updatedReplicas": sum(pod.labels.get(POD_LABEL) == update for pod in staying),
    }
    if len(pods) == len(ready) == counts["updatedReplicas"] == spec["replicas"]:
        counts["currentReplicas"], current = counts["updatedReplicas"], update
    status: StatefulSetStatus = {
        "observedGeneration": stateful_set["metadata"].get("generation", 0),
        "replicas": len(pods),
        "availableReplicas": sum(is_available(pod, spec.get("minReadySeconds", 0), now) for pod in ready),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": collisions,
        **without_zeros(counts),
    }
    conditions = (stateful_set.get("status") or {}).get("conditions")
    if conditions:
        status["conditions"] = conditions
    return status
