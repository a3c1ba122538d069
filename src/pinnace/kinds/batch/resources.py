"""The rows of jobs and cron jobs, and their columns."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.batch import validation
from pinnace.kinds.cells import (
    AGE,
    NAME,
    NONE,
    UNSET,
    at,
    format_duration,
    integer,
    is_true,
    length_of,
    reach,
    selector_at,
    since,
    string,
    template_columns,
)
from pinnace.kinds.rows import GA, STATUS, Row, old, text_at
from pinnace.model.resources import Column
from pinnace.model.typed_objects import CronJob, Job

_BATCH = "io.k8s.api.batch.v1"
_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job_status(job: Job, now: datetime) -> str:
    if is_true(job, "Complete"):
        return "Complete"
    if is_true(job, "Failed"):
        return "Failed"
    if reach(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    return next((state for state in _JOB_STATES if is_true(job, state)), "Running")


def _completions(job: Job, now: datetime) -> str:
    done, wanted = reach(job, "status", "succeeded") or 0, reach(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = reach(job, "spec", "parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Job, now: datetime) -> str:
    start, end = reach(job, "status", "startTime"), reach(job, "status", "completionTime")
    if not start:
        return ""
    finish = datetime.fromisoformat(end) if end else now
    return format_duration((finish - datetime.fromisoformat(start)).total_seconds())


JOB = (
    NAME,
    string("Status", "Status of the job.", _job_status),
    string("Completions", f"{_BATCH}.JobStatus.succeeded", _completions),
    string("Duration", "Time required to complete the job.", _job_duration),
    AGE,
    *template_columns("spec.template"),
    string("Selector", f"{_BATCH}.JobSpec.selector", selector_at("spec.selector"), wide=True),
)


def _suspend(cron_job: CronJob, now: datetime) -> str:
    match reach(cron_job, "spec", "suspend"):
        case None:
            return UNSET
        case suspended:
            return "True" if suspended else "False"


def _last_schedule(cron_job: CronJob, now: datetime) -> str:
    last = reach(cron_job, "status", "lastScheduleTime")
    return since(last, now) if last else NONE


CRON_JOB = (
    NAME,
    string("Schedule", f"{_BATCH}.CronJobSpec.schedule", at("spec.schedule")),
    string("Timezone", f"{_BATCH}.CronJobSpec.timeZone", at("spec.timeZone", NONE)),
    Column("Suspend", "boolean", f"{_BATCH}.CronJobSpec.suspend", _suspend),
    integer("Active", f"{_BATCH}.CronJobStatus.active", length_of("status.active")),
    string("Last Schedule", f"{_BATCH}.CronJobStatus.lastScheduleTime", _last_schedule),
    AGE,
    *template_columns("spec.jobTemplate.spec.template"),
    string("Selector", f"{_BATCH}.JobSpec.selector", selector_at("spec.jobTemplate.spec.selector"), wide=True),
)


ROWS = (
    Row(
        group="batch",
        name="CronJob",
        plural="cronjobs",
        columns=CRON_JOB,
        short_names=("cj",),
        categories=("all",),
        versions=(GA, old("v1beta1", deprecated="1.21", removed="1.25", replacement="batch/v1")),
        subresources=(STATUS,),
        strategy=validation.CRON_JOB,
    ),
    Row(
        group="batch",
        name="Job",
        plural="jobs",
        columns=JOB,
        categories=("all",),
        versions=(GA,),
        subresources=(STATUS,),
        selectable={"status.successful": text_at("status.succeeded", "0")},
        strategy=validation.JOB,
    ),
)
