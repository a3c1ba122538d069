"""Creates the Jobs of each CronJob at their scheduled times, and deletes old ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from email.utils import format_datetime
from typing import NamedTuple

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.controllers.batch.cron_times import MANY, NeverRuns, Timetable
from pinnace.controllers.batch.job_facts import BY_OWNER, JobFacts, index_jobs_by_owner, job_facts
from pinnace.controllers.metric_names import CRON_JOB_SKEW, ControllerMetrics
from pinnace.controllers.workloads.pod_control import FAILURES, EventSource
from pinnace.kinds.batch.cron_schedule import InvalidSchedule, check_time_zone, parse_schedule, time_zone
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import CronJob, CronJobStatus, Job, ObjectMeta, ObjectReference
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.failures import Reported
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import owner_reference

COMPONENT = "cronjob-controller"
SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_TZ_IN_SCHEDULE = (
    'CRON_TZ or TZ used in schedule "{}" is not officially supported, see '
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


class _Child(NamedTuple):
    """A Job that a CronJob controls."""

    key: Key
    facts: JobFacts


class CronJobs:
    """Creates each Job under a name that follows from its scheduled time, so that no run starts twice."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._cron_jobs = manager.cache(CronJob)
        self._jobs = manager.cache(Job)
        self._jobs.add_encoded_index(BY_OWNER, index_jobs_by_owner)
        self._events = EventSource(manager.recorder, COMPONENT)
        self._metrics = ControllerMetrics(manager.metrics, CRON_JOB_SKEW)
        self.controller = Controller("cronjob", self._reconcile, workers=10)
        self.controller.for_(CronJob)
        self.controller.watches_encoded(Job, _cron_job_of)

    async def _reconcile(self, key: Key) -> Result | None:
        cron_job = self._cron_jobs.get(key)
        if cron_job is None:
            return None
        before = cron_job.get("status") or {}
        cron_job["status"] = {**before, "active": list(before.get("active") or ())}
        children = self._children(cron_job)
        children = await self._remove_old(cron_job, children)
        self._note_ends(cron_job, children)
        failure: Exception | None = None
        seconds: float | None = None
        if "deletionTimestamp" not in cron_job["metadata"]:
            try:
                seconds = await self._start_due(cron_job)
            except FAILURES as error:
                failure = error
        await self._write_status(cron_job, before)
        if failure is not None:
            raise Reported(str(failure)) from failure
        return Result(requeue_after=max(0.001, seconds)) if seconds is not None else None

    def _children(self, cron_job: CronJob) -> list[_Child]:
        keys = self._jobs.keys_by_index(BY_OWNER, cron_job["metadata"]["uid"])
        snapshots = ((key, self._jobs.snapshot(key)) for key in keys)
        children = [_Child(key, snapshot.derive(job_facts)) for key, snapshot in snapshots if snapshot is not None]
        return sorted(children, key=lambda child: (not child.facts.started, child.facts.started, child.key.name))

    async def _write_status(self, cron_job: CronJob, before: CronJobStatus) -> None:
        status = {name: value for name, value in cron_job["status"].items() if value}
        if status != before:
            await self._client.update_status({**cron_job, "status": status})

    # Jobs that have ended

    async def _remove_old(self, cron_job: CronJob, children: Sequence[_Child]) -> list[_Child]:
        """Delete the oldest finished Jobs beyond the history limits, and return the rest."""
        gone: set[Key] = set()
        spec = cron_job["spec"]
        limits = ((spec.get("successfulJobsHistoryLimit"), "Complete"), (spec.get("failedJobsHistoryLimit"), "Failed"))
        for limit, end in limits:
            ended = [child for child in children if child.facts.end == end and not child.facts.is_deleting]
            for child in ended[: len(ended) - limit] if limit is not None and len(ended) > limit else ():
                if await self._delete(cron_job, child.key, child.facts.uid):
                    gone.add(child.key)
        return [child for child in children if child.key not in gone]

    async def _delete(self, cron_job: CronJob, key: Key, uid: str) -> bool:
        try:
            await self._client.delete(Job, key.name, namespace=key.namespace, uid=uid, propagation="Background")
        except (errors.NotFound, errors.Conflict):
            pass  # It is gone already.
        except FAILURES as error:
            self._events.warning(cron_job, "FailedDelete", f"Deleted job: {error}")
            return False
        else:
            self._events.normal(cron_job, "SuccessfulDelete", f"Deleted job {key.name}")
        _remove_active(cron_job, uid)
        return True

    def _note_ends(self, cron_job: CronJob, children: Sequence[_Child]) -> None:
        """Update `status.active` to the Jobs that exist."""
        status = cron_job["status"]
        active = {reference.get("uid") for reference in status["active"]}
        for key, facts in children:
            if not facts.is_finished:
                if facts.uid not in active:
                    message = f"Saw a job that the controller did not create or forgot: {key.name}"
                    self._events.warning(cron_job, "UnexpectedJob", message)
                continue
            if facts.uid in active:
                _remove_active(cron_job, facts.uid)
                message = f"Saw completed job: {key.name}, condition: {facts.end}"
                self._events.normal(cron_job, "SawCompletedJob", message)
            if facts.end == "Complete" and facts.completed > status.get("lastSuccessfulTime", ""):
                status["lastSuccessfulTime"] = facts.completed
        known = {facts.uid for _, facts in children}
        for reference in list(status["active"]):
            if reference.get("uid") not in known:
                self._events.normal(cron_job, "MissingJob", f"Active job went missing: {reference.get('name', '')}")
                _remove_active(cron_job, reference.get("uid"))

    # Jobs that are due

    async def _start_due(self, cron_job: CronJob) -> float | None:
        """Start the Job that is due, if there is one. Return the seconds until the next."""
        timetable = self._timetable(cron_job)
        if timetable is None:
            return None
        now = self._clock.now()
        try:
            due = timetable.due(cron_job, now)
        except NeverRuns as why:
            self._events.warning(
                cron_job, "InvalidSchedule", f"invalid schedule: {cron_job['spec']['schedule']} : {why}"
            )
            return None
        if due.latest is not None:
            if due.missed > MANY:
                message = (
                    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
                )
                self._events.warning(cron_job, "TooManyMissedTimes", message)
            if self._may_start(cron_job, due.latest, now):
                await self._start(cron_job, due.latest)
        return timetable.seconds_to_next(cron_job, now)

    def _timetable(self, cron_job: CronJob) -> Timetable | None:
        """Return the parsed schedule; None if the CronJob is suspended or the schedule is invalid."""
        spec = cron_job["spec"]
        zone = spec.get("timeZone") or ""
        if why := check_time_zone(zone):
            self._events.warning(cron_job, "UnknownTimeZone", f'invalid timeZone: "{zone}": {why}')
            return None
        if spec.get("suspend"):
            return None
        text = spec["schedule"]
        if "TZ" in text:
            self._events.warning(cron_job, "UnsupportedSchedule", _TZ_IN_SCHEDULE.format(text))
        try:
            return Timetable(parse_schedule(text), time_zone(zone))
        except InvalidSchedule as why_not:
            self._events.warning(cron_job, "UnparseableSchedule", f'unparseable schedule: "{text}" : {why_not}')
            return None

    def _may_start(self, cron_job: CronJob, scheduled: datetime, now: datetime) -> bool:
        spec, status = cron_job["spec"], cron_job["status"]
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and (now - scheduled).total_seconds() > deadline:
            message = f"Missed scheduled time to start a job: {format_datetime(scheduled)}"
            self._events.warning(cron_job, "MissSchedule", message)
            return False
        name = job_name(cron_job, scheduled)
        is_known = any(reference.get("name") == name for reference in status["active"])
        if is_known or status.get("lastScheduleTime") == to_rfc3339(scheduled):
            return False
        if spec.get("concurrencyPolicy") == "Forbid" and status["active"]:
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._events.normal(cron_job, "JobAlreadyActive", message)
            return False
        return True

    async def _start(self, cron_job: CronJob, scheduled: datetime) -> None:
        if cron_job["spec"].get("concurrencyPolicy") == "Replace":
            for active in list(cron_job["status"]["active"]):
                key = Key(active.get("namespace", cron_job["metadata"]["namespace"]), active["name"])
                if not await self._delete(cron_job, key, active["uid"]):
                    raise errors.InternalError(f"could not replace job {key}")
        job = await self._create(cron_job, scheduled)
        if job is None:
            return
        metadata = job["metadata"]
        reference: ObjectReference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }
        status = cron_job["status"]
        if all(reference.get("uid") != metadata["uid"] for reference in status["active"]):
            status["active"].append(reference)
        status["lastScheduleTime"] = to_rfc3339(scheduled)

    async def _create(self, cron_job: CronJob, scheduled: datetime) -> Job | None:
        """Create the Job of a run and return it; None if another object has its name."""
        job = job_of(cron_job, scheduled)
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        try:
            created = await self._client.create(job)
        except errors.AlreadyExists:
            # It was created before the status was written.
            present = await self._client.get(Job, name, namespace=namespace)
            uid = cron_job["metadata"]["uid"]
            owners = present["metadata"].get("ownerReferences") or ()
            return present if any(owner.get("controller") and owner["uid"] == uid for owner in owners) else None
        except FAILURES as error:
            if not is_namespace_terminating(error):
                self._events.warning(cron_job, "FailedCreate", f"Error creating job: {error}")
            raise
        self._metrics.observe(CRON_JOB_SKEW, (self._clock.now() - scheduled).total_seconds())
        self._events.normal(cron_job, "SuccessfulCreate", f"Created job {name}")
        return created


def job_name(cron_job: CronJob, scheduled: datetime) -> str:
    """Return the name of a run: one per minute, so that a run that was started is recognized after a restart."""
    return f"{cron_job['metadata']['name']}-{int(scheduled.timestamp()) // 60}"


def job_of(cron_job: CronJob, scheduled: datetime) -> Job:
    """Return the Job for one scheduled time."""
    template = cron_job["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    local = scheduled.astimezone(time_zone(cron_job["spec"].get("timeZone") or ""))
    moment = local.isoformat(timespec="seconds").replace("+00:00", "Z")
    metadata: ObjectMeta = {
        "name": job_name(cron_job, scheduled),
        "namespace": cron_job["metadata"]["namespace"],
        "annotations": {**(given.get("annotations") or {}), SCHEDULED_AT: moment},
        "ownerReferences": [owner_reference(cron_job)],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}


def _remove_active(cron_job: CronJob, uid: str | None) -> None:
    status = cron_job["status"]
    status["active"] = [reference for reference in status["active"] if reference.get("uid") != uid]


def _cron_job_of(snapshot: Snapshot[Job]) -> Iterable[Key]:
    facts = snapshot.derive(job_facts)
    return (Key(snapshot.key.namespace, facts.owner_name),) if facts.owner_kind == "CronJob" else ()
