"""Runs the pods of each Job until enough have succeeded, or too many have failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.batch.job_backoff import PodBackoff, remaining_for_index
from pinnace.controllers.batch.job_facts import BY_UID, JobFacts, index_jobs, job_facts
from pinnace.controllers.batch.job_pods import FINALIZER, IGNORED_INDEX_FAILURES, INDEX, INDEX_FAILURES, JobPod, job_pod
from pinnace.controllers.batch.job_policies import Judgment
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
from pinnace.controllers.workloads.ownership import Dependents
from pinnace.controllers.workloads.pod_control import (
    BURST,
    EventSource,
    PodControl,
    TooManyUnscheduled,
    first_failure,
    most_creations,
    pod_from_template,
    slow_start,
)
from pinnace.controllers.workloads.pod_facts import PodFacts, index_pods, pod_facts
from pinnace.controllers.workloads.replica_sets import batch_seconds
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.selectors import LabelSelector, from_object
from pinnace.model.typed_objects import Container, EnvVarSource, Job, JobStatus, Pod, PodSpec
from pinnace.process.backoff import Backoff
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.failures import Reported
from pinnace.reconcile.manager import Manager

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
        self._jobs = manager.cache(Job)
        self._jobs.add_encoded_index(BY_UID, index_jobs)
        self._pod_cache = manager.cache(Pod)
        self._pods = Dependents(self._pod_cache, job_pod, index_pods)
        self._events = EventSource(manager.recorder, COMPONENT)
        self._control = PodControl(client, self._events)
        self._metrics = ControllerMetrics(manager.metrics, *JOB_METRICS)
        self._backoffs: dict[Key, tuple[str, PodBackoff]] = {}
        self._adoptable: dict[str, set[Key]] = {}
        self._ended: dict[Key, set[str]] = {}
        """The UIDs of Jobs that are gone or have ended, until their pods are released."""
        self._sizes: dict[Key, int] = {}
        backoff = Backoff(first=1.0, longest=60.0)
        self.controller = Controller("job", self._reconcile, workers=10, backoff=backoff)
        self.controller.for_(Job)
        self._orphans = Controller("job-orphan-pods", self._release_orphan, workers=5)
        self.controllers = (self.controller, self._orphans)
        manager.informer(Job).on_change(self._hear_job)
        manager.informer(Pod).on_change(self._hear_pod)

    # Events

    def _hear_job(self, old: Snapshot[Job] | None, new: Snapshot[Job] | None) -> None:
        """Note a Job that is gone or has ended: its pods lose the finalizer."""
        if new is not None and not new.derive(job_facts).is_finished:
            return
        for job in (old, new):
            if job is not None:
                self._ended.setdefault(job.key, set()).add(job.derive(job_facts).uid)
                self.controller.enqueue(job.key, "ended")

    def _hear_pod(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
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

    def _count_tracked(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        """Count finished pods that have the finalizer, and those that have lost it."""
        was, has = (snapshot is not None and _is_finished_and_tracked(snapshot) for snapshot in (old, new))
        if was != has:
            self._metrics.count(JOB_TRACKED_PODS, event="add" if has else "delete")

    def _jobs_of(self, pod: PodFacts) -> Iterable[Key]:
        """Yield the Job that controls a pod; for an orphan the Jobs that may adopt it."""
        if pod.controller is not None:
            return (Key(pod.key.namespace, pod.controller.name),) if pod.controller.kind == "Job" else ()
        keys = []
        uid = pod.labels.get(_CONTROLLER_UID) or pod.labels.get("controller-uid") or ""
        for key in self._jobs.keys_by_index(BY_UID, uid) if uid else ():
            self._adoptable.setdefault(uid, set()).add(pod.key)
            keys.append(key)
        for key in self._jobs.keys_by_index(BY_UID, f"{pod.key.namespace}/manual"):
            job = self._jobs.snapshot(key)
            if job is not None and job.derive(_selector_of).matches(pod.labels):
                keys.append(key)
        return keys

    def _may_be_orphan(self, snapshot: Snapshot[Pod], pod: PodFacts) -> bool:
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
        snapshot = self._jobs.snapshot(Key(pod.key.namespace, pod.controller.name))
        facts = snapshot.derive(job_facts) if snapshot is not None else None
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
            await self._release(pod, snapshot.version)  # A Job that adopts the pod meanwhile keeps the finalizer.

    async def _release(self, pod: JobPod, version: str = "") -> None:
        """Remove the finalizer; do nothing if the pod is gone. With `version`, only if the pod is still that one."""
        metadata = {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}
        if version:
            metadata["resourceVersion"] = version
        try:
            await self._client.patch(
                Pod, pod.key.name, {"metadata": metadata}, namespace=pod.key.namespace, form="strategic"
            )
        except errors.NotFound:
            return
        except (errors.Conflict, errors.Invalid):
            snapshot = self._pod_cache.snapshot(pod.key)
            if snapshot is not None and snapshot.derive(job_pod).uid == pod.uid:
                raise

    # Reconciling

    async def _reconcile(self, key: Key) -> Result | None:
        for uid in self._ended.pop(key, ()):
            for pod in await self._pods.unordered(uid):
                if pod.is_tracked:
                    self._orphans.enqueue(pod.key, "job ended")
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

    async def _sync(self, key: Key, job: Job, labels: dict[str, str]) -> Result | None:
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
        await self._count(job, status)
        if verdict is None and failure is None:
            verdict = self._complete_or_suspend(view, status)
        await self._track(key, view, status, verdict, released)
        if failure is not None:
            raise Reported(str(failure)) from failure
        left = view.seconds_to_deadline(status.get("startTime", "")) if verdict is None else None
        waits = [seconds for seconds in (wait, left) if seconds]
        return Result(requeue_after=max(0.001, min(waits))) if waits else None

    def _backoff_of(self, key: Key, job: Job) -> PodBackoff:
        uid, known = self._backoffs.get(key, ("", PodBackoff()))
        return known if uid == job["metadata"]["uid"] else PodBackoff()

    async def _claim(self, job: Job) -> list[JobPod]:
        """Adopt the pods that match, release those that do not, and return the pods of the Job."""
        uid = job["metadata"]["uid"]
        selector = from_object(job["spec"].get("selector"))
        orphans = self._adoptable.pop(uid, set())
        if job["spec"].get("manualSelector"):
            orphans |= {pod.key for pod in await self._pods.orphans(job["metadata"]["namespace"])}
        snapshots = (self._pod_cache.snapshot(key) for key in orphans)
        own = await self._pods.of(uid)
        candidates = [*own, *(snapshot.derive(job_pod) for snapshot in snapshots if snapshot is not None)]
        if len(candidates) == len(own) and all(selector.matches(pod.labels) for pod in own):
            return own
        adoption = Adoption(self._client, job, Pod, finalizers=(FINALIZER,))
        await adoption.claim(candidates, lambda pod: selector.matches(pod.labels))
        return [pod for pod in await self._pods.of(uid) if selector.matches(pod.labels)]

    async def _count(self, job: Job, status: JobStatus) -> None:
        """Count the pods as they are after this reconcile's own writes."""
        pods = await self._pods.unordered(job["metadata"]["uid"])
        status["active"] = sum(pod.is_active for pod in pods)
        status["ready"] = sum(pod.is_active and pod.is_ready for pod in pods)
        status["terminating"] = sum(pod.is_terminating for pod in pods)

    def _complete_or_suspend(self, view: JobView, status: JobStatus) -> Verdict | None:
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
        count = min(view.missing, most_creations(view.active))
        if not count:
            return (TooManyUnscheduled() if view.missing else None), 0.0
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

    async def _remove(self, job: Job, pod: JobPod, released: set[str]) -> None:
        """Delete a pod that does not count: it loses the finalizer first."""
        if pod.is_tracked:
            await self._release(pod)
            released.add(pod.uid)
        await self._control.delete(job, pod)

    # Counting

    async def _track(
        self, key: Key, view: JobView, status: JobStatus, verdict: Verdict | None, released: set[str]
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
        await self._count(job, status)
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

    async def _store(self, job: Job, status: JobStatus) -> Job:
        """Write the status if it has changed."""
        wanted = close_status(status)
        if wanted == (job.get("status") or {}):
            return job
        changed: Job = {**job, "status": wanted}
        written = await self._client.update_status(changed)
        before, mode = job.get("status") or {}, _mode_of(job)
        result: Literal["succeeded", "failed"]
        for result in ("succeeded", "failed"):
            ended = wanted.get(result, 0) - before.get(result, 0)
            self._metrics.add(JOB_PODS_FINISHED, max(0, ended), completion_mode=mode, result=result)
        return written

    def _record_end(self, job: Job, verdict: Verdict) -> None:
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


def _is_finished_and_tracked(snapshot: Snapshot[Pod]) -> bool:
    if _FINALIZER_BYTES not in snapshot.body:
        return False
    pod = snapshot.derive(job_pod)
    return pod.is_tracked and pod.phase in ("Succeeded", "Failed")


def _mode_of(job: Job) -> str:
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


def _selector_of(snapshot: Snapshot[Job]) -> LabelSelector:
    return from_object(snapshot.object["spec"].get("selector"))


_ENVIRONMENT = "JOB_COMPLETION_INDEX"
_LONGEST_PREFIX = 58


def pod_of_job(
    job: Job, *, index: int | None = None, replaced: JobPod | None = None, judgment: Judgment | None = None
) -> Pod:
    """Return the pod to create, for one index of an Indexed Job.

    Where failures are counted per index, `replaced` is the failed pod that the new one replaces, and `judgment` is the
    effect of the pod failure policy on it.
    """
    pod = pod_from_template(job, job["spec"]["template"])
    metadata = pod["metadata"]
    finalizers = list(metadata.get("finalizers") or ())
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    metadata["finalizers"] = finalizers
    if index is None:
        return pod
    annotations = {**(metadata.get("annotations") or {}), INDEX: str(index)}
    if "backoffLimitPerIndex" in job["spec"]:
        annotations |= _index_failures(replaced, judgment)
    metadata["annotations"] = annotations
    metadata["labels"] = {**(metadata.get("labels") or {}), INDEX: str(index)}
    name, suffix = job["metadata"]["name"], f"-{index}-"
    metadata["generateName"] = name[: _LONGEST_PREFIX - len(suffix)] + suffix
    pod["spec"] = {**_with_environment(pod["spec"]), "hostname": f"{name}-{index}"}
    return pod


def _index_failures(replaced: JobPod | None, judgment: Judgment | None) -> dict[str, str]:
    if replaced is None:
        return {INDEX_FAILURES: "0"}
    counts = judgment is None or judgment.counts
    failures = replaced.index_failures + counts
    ignored = replaced.ignored_index_failures + (not counts)
    annotations = {INDEX_FAILURES: str(failures)}
    return {**annotations, IGNORED_INDEX_FAILURES: str(ignored)} if ignored else annotations


def _with_environment(spec: PodSpec) -> PodSpec:
    made = spec.copy()
    if spec.get("initContainers"):
        made["initContainers"] = [_with_index_variable(container) for container in spec["initContainers"]]
    if spec.get("containers"):
        made["containers"] = [_with_index_variable(container) for container in spec["containers"]]
    return made


def _with_index_variable(container: Container) -> Container:
    variables = container.get("env") or []
    if any(variable["name"] == _ENVIRONMENT for variable in variables):
        return container
    source: EnvVarSource = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*variables, {"name": _ENVIRONMENT, "valueFrom": source}]}
