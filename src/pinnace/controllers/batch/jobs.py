"""Runs the pods of each Job until enough have succeeded, or too many have failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from pinnace.client import retries
from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.batch.job_backoff import PodBackoff, remaining_for_index
from pinnace.controllers.batch.job_facts import BY_UID, JOB, JobFacts, index_jobs, job_facts
from pinnace.controllers.batch.job_pods import FINALIZER, JobPod, job_pod
from pinnace.controllers.batch.job_template import pod_of_job
from pinnace.controllers.batch.job_tracking import (
    announce,
    close_status,
    count_released,
    finish,
    note_ended_pods,
    open_status,
    set_suspended,
)
from pinnace.controllers.batch.job_view import COMPLETED, JobView, Verdict
from pinnace.controllers.metric_names import (
    JOB_FAILURE_POLICIES,
    JOB_METRICS,
    JOB_PODS_FINISHED,
    JOB_SYNC_SECONDS,
    JOB_SYNCS,
    JOB_TRACKED_PODS,
    JOBS_FINISHED,
    ControllerMetrics,
)
from pinnace.controllers.workloads.adoption import Adoption
from pinnace.controllers.workloads.batching import batch_seconds
from pinnace.controllers.workloads.ownership import Dependents
from pinnace.controllers.workloads.pod_control import POD, EventSource, PodControl, first_failure, slow_start
from pinnace.controllers.workloads.pod_facts import PodFacts, index_pods, pod_facts
from pinnace.model import errors
from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Key, Object
from pinnace.model.selectors import LabelSelector, from_object
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.failures import Reported
from pinnace.reconcile.manager import Manager

BURST = 500
"""Pods that one reconcile creates or deletes at most."""
BATCH_SECONDS = 1.0
"""How long a change of readiness may wait for other changes: it only changes one number in the status."""
COMPONENT = "job-controller"
_FINALIZER_BYTES = FINALIZER.encode()
_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
_RELEASED_AT_ONCE = 50


class Jobs:
    """The caches include every write of this controller at once: no pod is created or counted twice."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._jobs = manager.cache(JOB)
        self._jobs.add_encoded_index(BY_UID, index_jobs)
        self._pod_cache = manager.cache(POD)
        self._pods = Dependents(self._pod_cache, job_pod, index_pods)
        self._events = EventSource(manager.recorder, COMPONENT)
        self._control = PodControl(client, self._events)
        self._metrics = ControllerMetrics(manager.metrics, *JOB_METRICS)
        self._backoffs: dict[Key, tuple[str, PodBackoff]] = {}
        self._adoptable: dict[str, set[Key]] = {}
        self._sizes: dict[Key, int] = {}
        backoff = retries.Backoff(first=1.0, longest=60.0)
        self.controller = Controller("job", self._reconcile, workers=10, backoff=backoff)
        self.controller.for_(JOB)
        self._orphans = Controller("job-orphan-pods", self._release_orphan, workers=5)
        self.controllers = (self.controller, self._orphans)
        manager.informer(JOB).on_change(self._hear_job)
        manager.informer(POD).on_change(self._hear_pod)

    # Events

    def _hear_job(self, old: Snapshot | None, new: Snapshot | None) -> None:
        """Remove the finalizer from the pods of a Job that is gone or has ended."""
        ended = [one.derive(job_facts) for one in (old, new) if one is not None]
        if new is not None and not ended[-1].is_finished:
            return
        for uid in {facts.uid for facts in ended}:
            for pod in self._pods.of(uid):
                if pod.is_tracked:
                    self._orphans.enqueue(pod.key, "job ended")

    def _hear_pod(self, old: Snapshot | None, new: Snapshot | None) -> None:
        before = old.derive(pod_facts) if old is not None else None
        after = new.derive(pod_facts) if new is not None else None
        is_minor = before is not None and after is not None and _differ_in_readiness(before, after)
        self._count_tracked(old, new)
        jobs = {key for pod in (before, after) if pod is not None for key in self._jobs_of(pod)}
        for key in jobs:
            seconds = BATCH_SECONDS if is_minor else batch_seconds(self._sizes.get(key, 0))
            self.controller.enqueue(key, "pod changed", after=seconds)
        if new is not None and after is not None and self._may_be_orphan(new, after):
            self._orphans.enqueue(new.key, "pod changed")

    def _count_tracked(self, old: Snapshot | None, new: Snapshot | None) -> None:
        """Count finished pods that have the finalizer, and those that have lost it."""
        was, has = (one is not None and _is_finished_and_tracked(one) for one in (old, new))
        if was != has:
            self._metrics.count(JOB_TRACKED_PODS, event="add" if has else "delete")

    def _jobs_of(self, pod: PodFacts) -> Iterable[Key]:
        """Yield the Job that controls a pod; for an orphan the Jobs that may adopt it."""
        if pod.controller is not None:
            return (Key(pod.key.namespace, pod.controller.name),) if pod.controller.kind == "Job" else ()
        found = []
        uid = pod.labels.get(_CONTROLLER_UID) or pod.labels.get("controller-uid") or ""
        for key in self._jobs.keys_by_index(BY_UID, uid) if uid else ():
            self._adoptable.setdefault(uid, set()).add(pod.key)
            found.append(key)
        for key in self._jobs.keys_by_index(BY_UID, f"{pod.key.namespace}/manual"):
            job = self._jobs.snapshot(key)
            if job is not None and job.derive(_selector_of).matches(pod.labels):
                found.append(key)
        return found

    def _may_be_orphan(self, snapshot: Snapshot, pod: PodFacts) -> bool:
        """Whether a pod may have the finalizer of a Job that no longer counts it."""
        if pod.controller is not None and pod.controller.kind != "Job":
            return False
        if _FINALIZER_BYTES not in snapshot.body:
            return False
        owner = self._owner_of(pod)
        return owner is None or owner.is_finished

    def _owner_of(self, pod: PodFacts) -> JobFacts | None:
        if pod.controller is None:
            return None
        found = self._jobs.snapshot(Key(pod.key.namespace, pod.controller.name))
        facts = found.derive(job_facts) if found is not None else None
        return facts if facts is not None and facts.uid == pod.controller.uid else None

    # Pods without a Job

    async def _release_orphan(self, key: Key) -> None:
        snapshot = self._pod_cache.snapshot(key)
        if snapshot is None:
            return
        owner = self._owner_of(snapshot.derive(pod_facts))
        if not self._may_be_orphan(snapshot, snapshot.derive(pod_facts)) or (owner is not None and owner.is_foreign):
            return
        pod = snapshot.derive(job_pod)
        if pod.is_tracked:
            await self._release(pod)

    async def _release(self, pod: JobPod) -> None:
        """Remove the finalizer; do nothing if the pod is gone."""
        metadata = {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}
        try:
            await self._client.patch(
                POD, pod.key.name, {"metadata": metadata}, namespace=pod.key.namespace, form="strategic"
            )
        except errors.NotFound:
            return
        except (errors.Conflict, errors.Invalid):
            found = self._pod_cache.snapshot(pod.key)
            if found is not None and found.derive(job_pod).uid == pod.uid:
                raise

    # Reconciling

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._jobs.snapshot(key)
        facts = snapshot.derive(job_facts) if snapshot is not None else None
        if snapshot is None or facts is None or facts.is_finished or facts.is_foreign:
            self._backoffs.pop(key, None)
            self._sizes.pop(key, None)
            return None
        job = snapshot.object
        labels = {"completion_mode": _mode_of(job), "action": "reconciling"}
        try:
            with self._metrics.syncing(JOB_SYNCS, JOB_SYNC_SECONDS, self._clock, labels):
                return await self._sync(key, job, labels)
        except errors.Conflict:
            return Result(requeue_after=BATCH_SECONDS)  # Another client has written; the watch delivers the change.

    async def _sync(self, key: Key, job: Object, labels: dict[str, str]) -> Result | None:
        """Reconcile a Job that has not ended. `labels` are those of the metrics: the action is set here."""
        pods = await self._claim(job)
        self._sizes[key] = len(pods)
        now = self._clock.now()
        view = JobView(job, pods, self._backoff_of(key, job), now)
        status = open_status(job)
        if not status.get("startTime") and not view.is_suspended:
            status["startTime"] = to_rfc3339(now)
        verdict = await view.verdict(status.get("startTime", ""))
        released: set[str] = set()
        wait = 0.0
        if verdict is not None:
            failure = await self._control.delete_all(job, view.active)
            verdict = verdict if failure is None else None
        elif "deletionTimestamp" in job["metadata"]:
            failure = None
        else:
            labels["action"] = _action_of(view)
            failure, wait = await self._manage(view, released)
        self._count(job, status)
        if verdict is None and failure is None:
            verdict = self._complete_or_suspend(view, status)
        await self._track(key, view, status, verdict, released)
        if failure is not None:
            raise Reported(str(failure)) from failure
        left = view.seconds_to_deadline(status.get("startTime", "")) if verdict is None else None
        waits = [seconds for seconds in (wait, left) if seconds]
        return Result(requeue_after=max(0.001, min(waits))) if waits else None

    def _backoff_of(self, key: Key, job: Object) -> PodBackoff:
        uid, known = self._backoffs.get(key, ("", PodBackoff()))
        return known if uid == job["metadata"]["uid"] else PodBackoff()

    async def _claim(self, job: Object) -> list[JobPod]:
        """Adopt the pods that match, release those that do not, and return the pods of the Job."""
        uid = job["metadata"]["uid"]
        selector = from_object(job["spec"].get("selector"))
        orphans = self._adoptable.pop(uid, set())
        if job["spec"].get("manualSelector"):
            orphans |= {pod.key for pod in self._pods.orphans(job["metadata"]["namespace"])}
        found = (self._pod_cache.snapshot(key) for key in orphans)
        own = self._pods.of(uid)
        candidates = [*own, *(one.derive(job_pod) for one in found if one is not None)]
        if len(candidates) == len(own) and all(selector.matches(pod.labels) for pod in own):
            return own
        adoption = Adoption(self._client, job, POD, finalizers=(FINALIZER,))
        await adoption.claim(candidates, lambda pod: selector.matches(pod.labels))
        return [pod for pod in self._pods.of(uid) if selector.matches(pod.labels)]

    def _count(self, job: Object, status: Object) -> None:
        """Count the pods as they are after this reconcile's own writes."""
        pods = self._pods.of(job["metadata"]["uid"])
        status["active"] = sum(pod.is_active for pod in pods)
        status["ready"] = sum(pod.is_active and pod.is_ready for pod in pods)
        status["terminating"] = sum(pod.is_terminating for pod in pods)

    def _complete_or_suspend(self, view: JobView, status: Object) -> Verdict | None:
        if view.is_complete(status["active"]):
            return COMPLETED
        is_deleted = "deletionTimestamp" in view.job["metadata"]
        if not is_deleted and set_suspended(status, is_suspended=view.is_suspended, now=view.now):
            if view.is_suspended:
                self._events.normal(view.job, "Suspended", "Job suspended")
            else:
                self._events.normal(view.job, "Resumed", "Job resumed")
        return None

    # The right number of pods

    async def _manage(self, view: JobView, released: set[str]) -> tuple[Exception | None, float]:
        """Create or delete pods. Return the first failure, and the seconds until more may be created."""
        surplus = view.surplus()[:BURST]
        if surplus or view.is_suspended:
            removals = [self._remove(view.job, pod, released) for pod in surplus]
            return await first_failure(removals), 0.0
        count = min(view.missing, BURST)
        if not count:
            return None, 0.0
        if not view.has_limit_per_index:
            wait = view.backoff.remaining(view.now)
            if wait > 0:
                return None, wait
        if not view.is_indexed:
            pod = pod_of_job(view.job)
            return await slow_start([partial(self._control.create, view.job, pod)] * count), 0.0
        return await self._create_indexes(view, view.pending_indexes(count))

    async def _create_indexes(self, view: JobView, indexes: Sequence[int]) -> tuple[Exception | None, float]:
        ready, waits = [], []
        for index in indexes:
            replaced = view.awaiting_replacement.get(index)
            wait = remaining_for_index(replaced, view.now)
            if wait > 0:
                waits.append(wait)
            else:
                ready.append((index, replaced))
        pods = [
            pod_of_job(view.job, index=index, replaced=replaced, judgment=view.judge(replaced) if replaced else None)
            for index, replaced in ready
        ]
        failure = await slow_start([partial(self._control.create, view.job, pod) for pod in pods])
        return failure, min(waits, default=0.0)

    async def _remove(self, job: Object, pod: JobPod, released: set[str]) -> None:
        """Delete a pod that does not count: it loses the finalizer first."""
        if pod.is_tracked:
            await self._release(pod)
            released.add(pod.uid)
        await self._control.delete(job, pod)

    # Counting

    async def _track(
        self, key: Key, view: JobView, status: Object, verdict: Verdict | None, released: set[str]
    ) -> None:
        """Record ended pods, release them, count them, and end the Job: each step is stored before the next."""
        noted = note_ended_pods(view, status, verdict, released)
        for action, count in noted.policy_actions.items():
            self._metrics.add(JOB_FAILURE_POLICIES, count, action=action)
        if verdict is not None:
            announce(status, verdict, view.now)
        job = await self._store(view.job, status)
        self._backoffs[key] = (job["metadata"]["uid"], view.backoff)
        failure = await self._release_all(noted.pods, released)
        count_released(status, {pod.uid for pod in view.pods if pod.is_tracked and pod.uid not in released})
        self._count(job, status)
        is_finished = verdict is not None and failure is None and noted.is_all and finish(status, verdict, view.now)
        job = await self._store(job, status)
        if is_finished and verdict is not None:
            self._backoffs.pop(key, None)
            self._record_end(job, verdict)
        if failure is not None:
            raise failure

    async def _release_all(self, pods: Sequence[JobPod], released: set[str]) -> Exception | None:
        async def release(pod: JobPod) -> None:
            await self._release(pod)
            released.add(pod.uid)

        failure: Exception | None = None
        for at in range(0, len(pods), _RELEASED_AT_ONCE):
            failure = await first_failure([release(pod) for pod in pods[at : at + _RELEASED_AT_ONCE]]) or failure
            await asyncio.sleep(0)  # Other Jobs are reconciled in between.
        return failure

    async def _store(self, job: Object, status: Object) -> Object:
        """Write the status if it has changed."""
        wanted = close_status(status)
        if wanted == (job.get("status") or {}):
            return job
        written = await self._client.update_status({**job, "status": wanted})
        before, mode = job.get("status") or {}, _mode_of(job)
        for result in ("succeeded", "failed"):
            ended = wanted.get(result, 0) - before.get(result, 0)
            self._metrics.add(JOB_PODS_FINISHED, max(0, ended), completion_mode=mode, result=result)
        return written

    def _record_end(self, job: Object, verdict: Verdict) -> None:
        result = "succeeded" if verdict.is_success else "failed"
        labels = {"completion_mode": _mode_of(job), "result": result, "reason": verdict.reason}
        self._metrics.count(JOBS_FINISHED, **labels)
        if not verdict.is_success:
            self._events.warning(job, verdict.reason, verdict.message)
            return
        completions = job["spec"].get("completions")
        if completions is not None and job["status"].get("succeeded", 0) > completions:
            message = "Too many succeeded pods running after completion count reached"
            self._events.warning(job, "TooManySucceededPods", message)
        self._events.normal(job, "Completed", "Job completed")


def _action_of(view: JobView) -> str:
    """Return the action of a sync as metrics name it."""
    if view.is_suspended or len(view.active) > view.wanted_active:
        return "pods_deleted"
    return "pods_created" if view.missing else "tracking"


def _is_finished_and_tracked(snapshot: Snapshot) -> bool:
    if _FINALIZER_BYTES not in snapshot.body:
        return False
    pod = snapshot.derive(job_pod)
    return pod.is_tracked and pod.phase in ("Succeeded", "Failed")


def _mode_of(job: Object) -> str:
    return str(job["spec"].get("completionMode") or "NonIndexed")


def _differ_in_readiness(before: PodFacts, after: PodFacts) -> bool:
    """Whether two versions of a pod differ in readiness only."""
    return (
        before.uid == after.uid
        and before.is_active
        and after.is_active
        and before.labels == after.labels
        and before.controller == after.controller
    )


def _selector_of(snapshot: Snapshot) -> LabelSelector:
    return from_object(snapshot.object["spec"].get("selector"))
