"""Rolls each Deployment out: one ReplicaSet per revision, scaled up and down as its strategy says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.controllers.workloads import deployment_revisions as revisions
from pinnace.controllers.workloads import deployment_sizes as sizes
from pinnace.controllers.workloads import deployment_status as progress
from pinnace.controllers.workloads.adoption import Adoption
from pinnace.controllers.workloads.deployment_sizes import name_of, size
from pinnace.controllers.workloads.deployment_status import DeploymentCondition
from pinnace.controllers.workloads.ownership import Dependents, index_owned, owned_of
from pinnace.controllers.workloads.pod_control import FAILURES, EventSource
from pinnace.controllers.workloads.pod_facts import index_pods, pod_facts
from pinnace.controllers.workloads.replica_sets import REPLICA_SETS
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.selectors import NOTHING, LabelSelector, from_object
from pinnace.model.typed_objects import Deployment, DeploymentStatus, Pod, ReplicaSet
from pinnace.model.typed_objects import DeploymentCondition as StoredCondition
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.failures import Reported
from pinnace.reconcile.finalizers import is_being_deleted
from pinnace.reconcile.manager import Manager

_KIND = Kind("apps", "v1", "Deployment")
_EVERY_REVISION = 2**31 - 1


@dataclass(slots=True)
class Rollout:
    """A Deployment and its ReplicaSets within one reconcile. After a write, the answer replaces the object here."""

    deployment: Deployment
    old: list[ReplicaSet]
    new: ReplicaSet | None
    """The ReplicaSet of the Deployment's template."""
    conditions: list[StoredCondition]
    stored_status: DeploymentStatus
    stored_revision: str

    @property
    def sets(self) -> list[ReplicaSet]:
        return [*self.old, self.new] if self.new is not None else self.old

    def replace(self, replica_set: ReplicaSet) -> None:
        if self.new is not None and name_of(self.new) == name_of(replica_set):
            self.new = replica_set
        else:
            self.old = [replica_set if name_of(known) == name_of(replica_set) else known for known in self.old]


class Deployments:
    """Reads through the manager's caches, writes through `client`."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._events = EventSource(manager.recorder, "deployment-controller")
        self._deployments = manager.cache(Deployment)
        self._set_cache = manager.cache(ReplicaSet)
        self._sets = Dependents(self._set_cache, owned_of, index_owned)
        self._pods = Dependents(manager.cache(Pod), pod_facts, index_pods)
        self.controller = Controller("deployment", self._reconcile, workers=5)
        self.controller.for_(Deployment)
        self.controller.watches_encoded(ReplicaSet, self._deployments_of)
        self.controller.watches_encoded(Pod, self._find_recreating)

    def _deployments_of(self, snapshot: Snapshot[ReplicaSet]) -> Iterable[Key]:
        """Yield the Deployment that owns a ReplicaSet; for an orphan every one that may adopt it."""
        replica_set = snapshot.derive(owned_of)
        namespace = replica_set.key.namespace
        if replica_set.controller is not None:
            return (Key(namespace, replica_set.controller.name),) if replica_set.controller.is_of_kind(_KIND) else ()
        if not replica_set.labels:
            return ()
        candidates = self._deployments.snapshots(namespace=namespace)
        return [
            deployment.key for deployment in candidates if deployment.derive(_selector_of).matches(replica_set.labels)
        ]

    def _find_recreating(self, snapshot: Snapshot[Pod]) -> Iterable[Key]:
        """Yield the Deployment that waits for its old pods to stop: only the strategy Recreate depends on pods."""
        owner = snapshot.derive(pod_facts).controller
        if owner is None or not owner.is_of_kind(REPLICA_SETS.kind):
            return
        replica_set = self._set_cache.snapshot(Key(snapshot.key.namespace, owner.name))
        for key in self._deployments_of(replica_set) if replica_set is not None else ():
            deployment = self._deployments.snapshot(key)
            if deployment is not None and deployment.derive(_is_recreated):
                yield key

    async def _reconcile(self, key: Key) -> Result | None:
        deployment = self._deployments.get(key)
        if deployment is None:
            return None
        if from_object(deployment["spec"].get("selector")).matches_everything:
            await self._refuse_to_select_all(deployment)
            return None
        rollout = await self._claim(deployment)
        if is_being_deleted(deployment):
            return await self._write_status(rollout, is_rolling_out=False)
        self._note_pause(rollout)
        await self._sync_newest(rollout)
        if deployment["spec"].get("paused"):
            await self._scale_in_proportion(rollout)
            await self._clean_up(rollout)
            return await self._write_status(rollout, is_rolling_out=False)
        if revisions.rollback_to(deployment) is not None:
            await self._roll_back(rollout)
            return None
        if sizes.is_scaling_event(deployment, rollout.sets):
            await self._scale_in_proportion(rollout)
            return await self._write_status(rollout, is_rolling_out=False)
        if sizes.is_rolling(deployment):
            await self._roll(rollout)
        else:
            await self._recreate(rollout)
        return await self._write_status(rollout, is_rolling_out=True)

    async def _refuse_to_select_all(self, deployment: Deployment) -> None:
        message = "This deployment is selecting all pods. A non-empty selector is required."
        self._events.warning(deployment, "SelectingAll", message)
        generation = deployment["metadata"].get("generation", 0)
        status = deployment.get("status") or {}
        if status.get("observedGeneration", 0) < generation:
            status = {**status, "observedGeneration": generation}
            await self._client.update_status({**deployment, "status": status})

    async def _claim(self, deployment: Deployment) -> Rollout:
        metadata = deployment["metadata"]
        selector = from_object(deployment["spec"].get("selector"))
        candidates = [*await self._sets.of(metadata["uid"]), *await self._sets.orphans(metadata["namespace"])]
        adoption = Adoption(self._client, deployment, ReplicaSet)
        claimed = await adoption.claim(candidates, lambda replica_set: selector.matches(replica_set.labels))
        sets = [
            snapshot.object for replica_set in claimed if (snapshot := self._sets.snapshot(replica_set)) is not None
        ]
        sets.sort(key=sizes.by_creation)
        new = next((replica_set for replica_set in sets if revisions.is_of_template(replica_set, deployment)), None)
        status = deployment.get("status") or {}
        return Rollout(
            deployment,
            [replica_set for replica_set in sets if replica_set is not new],
            new,
            conditions=list(status.get("conditions") or ()),
            stored_status=status,
            stored_revision=revisions.annotations_of(deployment).get(revisions.REVISION, ""),
        )

    def _note_pause(self, rollout: Rollout) -> None:
        """Set the condition when a rollout is paused or resumed: its deadline starts again then."""
        known = progress.find(rollout.conditions, progress.PROGRESSING)
        reason = known.get("reason") if known is not None else None
        if not progress.has_deadline(rollout.deployment) or reason == progress.TIMED_OUT:
            return
        is_paused = bool(rollout.deployment["spec"].get("paused"))
        if is_paused and reason != progress.PAUSED:
            self._say_progress(rollout, "Unknown", progress.PAUSED, "Deployment is paused")
        elif not is_paused and reason == progress.PAUSED:
            self._say_progress(rollout, "Unknown", "DeploymentResumed", "Deployment is resumed")

    def _say_progress(self, rollout: Rollout, status: str, reason: str, message: str) -> None:
        condition = DeploymentCondition(progress.PROGRESSING, status, reason, message)
        rollout.conditions = progress.with_condition(rollout.conditions, condition, self._clock.now())

    async def _sync_newest(self, rollout: Rollout) -> None:
        """Bring the newest ReplicaSet's annotations and minReadySeconds, and the revision of both, up to date."""
        deployment, new = rollout.deployment, rollout.new
        if new is None:
            return
        revision = revisions.last_revision(rollout.old) + 1
        patch: Object = {}
        if annotations := revisions.synced_annotations(deployment, new, revision):
            patch["metadata"] = {"annotations": annotations}
        ready_seconds = deployment["spec"].get("minReadySeconds", 0)
        if new["spec"].get("minReadySeconds", 0) != ready_seconds:
            patch["spec"] = {"minReadySeconds": ready_seconds}
        if patch:
            new = await self._patch(rollout, new, patch)
        self._set_revision(deployment, revisions.annotations_of(new).get(revisions.REVISION, ""))
        has_condition = progress.find(rollout.conditions, progress.PROGRESSING) is not None
        if progress.has_deadline(deployment) and not has_condition:
            self._say_progress(rollout, "True", "FoundNewReplicaSet", f'Found new replica set "{name_of(new)}"')

    def _set_revision(self, deployment: Deployment, revision: str) -> None:
        metadata = deployment["metadata"]
        metadata["annotations"] = {**(metadata.get("annotations") or {}), revisions.REVISION: revision}

    # Scaling

    async def _scale_in_proportion(self, rollout: Rollout) -> None:
        wanted = sizes.proportional_sizes(rollout.deployment, rollout.new, rollout.old)
        for replica_set in rollout.sets:
            if name_of(replica_set) in wanted:
                await self._scale(rollout, replica_set, wanted[name_of(replica_set)])

    async def _scale(self, rollout: Rollout, replica_set: ReplicaSet, replicas: int) -> None:
        deployment, before = rollout.deployment, size(replica_set)
        noted = revisions.replica_annotations(deployment, sizes.max_replicas(deployment))
        present = revisions.annotations_of(replica_set)
        if before == replicas and all(present.get(key) == value for key, value in noted.items()):
            return
        patch = {"metadata": {"annotations": noted}, "spec": {"replicas": replicas}}
        await self._patch(rollout, replica_set, patch)
        if before != replicas:
            way = "up" if before < replicas else "down"
            message = f"Scaled {way} replica set {name_of(replica_set)} from {before} to {replicas}"
            self._events.normal(deployment, "ScalingReplicaSet", message)

    async def _patch(self, rollout: Rollout, replica_set: ReplicaSet, patch: Object) -> ReplicaSet:
        metadata = replica_set["metadata"]
        # With the UID: the server refuses it for a new object of the same name.
        patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}}
        answer = await self._client.patch(ReplicaSet, metadata["name"], patch, namespace=metadata["namespace"])
        rollout.replace(answer)
        return answer

    # Strategies

    async def _roll(self, rollout: Rollout) -> None:
        """Replace pods step by step, within maxSurge and maxUnavailable."""
        new = rollout.new or await self._create_newest(rollout)
        if new is None:
            return
        wanted = sizes.new_size(rollout.deployment, new, rollout.sets)
        if wanted != size(new):
            await self._scale(rollout, new, wanted)
        assert rollout.new is not None
        shrunk = sizes.old_sizes(rollout.deployment, rollout.new, rollout.old)
        for replica_set in rollout.old:
            if name_of(replica_set) in shrunk:
                await self._scale(rollout, replica_set, shrunk[name_of(replica_set)])
        if progress.is_complete(rollout.deployment, self._count(rollout)):
            await self._clean_up(rollout)

    async def _recreate(self, rollout: Rollout) -> None:
        """Stop all old pods, then start the new ones."""
        running = sizes.active(rollout.old)
        for replica_set in running:
            await self._scale(rollout, replica_set, 0)
        if running or await self._runs_old_pods(rollout):
            return
        new = rollout.new or await self._create_newest(rollout)
        if new is None:
            return
        if size(new) != size(rollout.deployment):
            await self._scale(rollout, new, size(rollout.deployment))
        if progress.is_complete(rollout.deployment, self._count(rollout)):
            await self._clean_up(rollout)

    async def _runs_old_pods(self, rollout: Rollout) -> bool:
        if any((replica_set.get("status") or {}).get("replicas", 0) for replica_set in rollout.old):
            return True
        for replica_set in rollout.old:
            pods = await self._pods.unordered(replica_set["metadata"]["uid"])
            if any(not pod.is_terminal for pod in pods):
                return True
        return False

    async def _create_newest(self, rollout: Rollout) -> ReplicaSet | None:
        """Create the ReplicaSet of a new revision; None if its name is taken: the next reconcile uses another name."""
        deployment = rollout.deployment
        revision = revisions.last_revision(rollout.old) + 1
        wanted = revisions.new_replica_set(deployment, revision, sizes.max_replicas(deployment))
        wanted["spec"]["replicas"] = sizes.new_size(deployment, wanted, rollout.old)
        try:
            created = await self._client.create(wanted)
        except errors.AlreadyExists:
            return await self._use_or_evade(rollout, name_of(wanted))
        except FAILURES as error:
            if not is_namespace_terminating(error):
                await self._report_failed_creation(rollout, name_of(wanted), error)
            raise
        rollout.new = created
        self._set_revision(deployment, str(revision))
        if size(created) > 0:
            message = f"Scaled up replica set {name_of(created)} from 0 to {size(created)}"
            self._events.normal(deployment, "ScalingReplicaSet", message)
        if progress.has_deadline(deployment):
            self._say_progress(rollout, "True", "NewReplicaSetCreated", f'Created new replica set "{name_of(created)}"')
        return created

    async def _use_or_evade(self, rollout: Rollout, name: str) -> ReplicaSet | None:
        """Return the ReplicaSet of this name if it has the template; else count a collision, for another hash."""
        metadata = rollout.deployment["metadata"]
        present = await self._client.get(ReplicaSet, name, namespace=metadata["namespace"])
        owners = present["metadata"].get("ownerReferences") or ()
        is_own = any(owner.get("controller") and owner.get("uid") == metadata["uid"] for owner in owners)
        if is_own and revisions.is_of_template(present, rollout.deployment):
            rollout.new = present
            return present
        status = rollout.deployment.get("status") or {}
        rollout.deployment["status"] = {**status, "collisionCount": status.get("collisionCount", 0) + 1}
        return None

    async def _report_failed_creation(self, rollout: Rollout, name: str, error: Exception) -> None:
        message = f'Failed to create new replica set "{name}": {error}'
        self._events.warning(rollout.deployment, "ReplicaSetCreateError", message)
        if progress.has_deadline(rollout.deployment):
            self._say_progress(rollout, "False", "ReplicaSetCreateError", message)
            status: DeploymentStatus = {**(rollout.deployment.get("status") or {}), "conditions": rollout.conditions}
            await self._client.update_status({**rollout.deployment, "status": status})
        raise Reported(message) from error

    async def _roll_back(self, rollout: Rollout) -> None:
        """Restore an old template, as the rollback annotation of old API versions asks. kubectl does it itself."""
        deployment = rollout.deployment
        wanted = revisions.rollback_to(deployment) or revisions.revision_before_last(rollout.sets)
        target = next(
            (replica_set for replica_set in rollout.sets if wanted and revisions.revision_of(replica_set) == wanted),
            None,
        )
        result = deployment
        if target is None:
            message = "Unable to find the revision to rollback to." if wanted else "Unable to find last revision."
            self._events.warning(deployment, "DeploymentRollbackRevisionNotFound", message)
        elif revisions.is_of_template(target, deployment):
            message = f'The rollback revision contains the same template as current deployment "{name_of(deployment)}"'
            self._events.warning(deployment, "DeploymentRollbackTemplateUnchanged", message)
        else:
            result = revisions.roll_back(deployment, target)
        annotations = {
            key: value for key, value in revisions.annotations_of(result).items() if key != revisions.ROLLBACK_TO
        }
        await self._client.update({**result, "metadata": {**result["metadata"], "annotations": annotations}})
        if result is not deployment:
            message = f'Rolled back deployment "{name_of(deployment)}" to revision {wanted}'
            self._events.normal(deployment, "DeploymentRollback", message)

    # The end of a reconcile

    async def _clean_up(self, rollout: Rollout) -> None:
        """Delete the oldest revisions beyond the limit, if they are empty."""
        limit = rollout.deployment["spec"].get("revisionHistoryLimit", _EVERY_REVISION)
        old = [replica_set for replica_set in rollout.old if not is_being_deleted(replica_set)]
        if limit == _EVERY_REVISION or len(old) <= limit:
            return
        old.sort(key=lambda replica_set: (revisions.revision_of(replica_set) or 0, sizes.by_creation(replica_set)))
        for replica_set in old[: len(old) - limit]:
            if _is_empty(replica_set):
                await self._delete(replica_set)

    async def _delete(self, replica_set: ReplicaSet) -> None:
        metadata = replica_set["metadata"]
        try:
            await self._client.delete(
                ReplicaSet, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
            )
        except (errors.NotFound, errors.Conflict):
            return  # It is gone already.

    def _count(self, rollout: Rollout) -> DeploymentStatus:
        return progress.counted_status(
            rollout.deployment, rollout.new, rollout.old, rollout.conditions, self._clock.now()
        )

    async def _write_status(self, rollout: Rollout, *, is_rolling_out: bool) -> Result | None:
        """Write the status if it or the revision has changed. Reconcile again at the deadline of the rollout."""
        deployment, now = rollout.deployment, self._clock.now()
        status = self._count(rollout)
        if is_rolling_out:
            status["conditions"] = progress.rollout_conditions(deployment, rollout.new, rollout.old, status, now)
        revision = revisions.annotations_of(deployment).get(revisions.REVISION, "")
        if status != rollout.stored_status or revision != rollout.stored_revision:
            await self._client.update_status({**deployment, "status": status})
        return Result(requeue_after=progress.seconds_to_deadline(deployment, status, now)) if is_rolling_out else None


def _selector_of(snapshot: Snapshot[Deployment]) -> LabelSelector:
    selector = from_object(snapshot.object["spec"].get("selector"))
    return NOTHING if selector.matches_everything else selector


def _is_recreated(snapshot: Snapshot[Deployment]) -> bool:
    return not sizes.is_rolling(snapshot.object)


def _is_empty(replica_set: ReplicaSet) -> bool:
    status, metadata = replica_set.get("status") or {}, replica_set["metadata"]
    is_seen = metadata.get("generation", 0) <= status.get("observedGeneration", 0)
    return is_seen and not size(replica_set) and not status.get("replicas", 0)
