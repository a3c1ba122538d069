"""Validation of the status of a job: how it may end, and which fields may not change back."""

from __future__ import annotations

from pinnace.kinds.batch.jobs import count_of_indexes, index_interval, without_value
from pinnace.kinds.validation.fields import validate_counts
from pinnace.model.field_errors import IMMUTABLE, FieldError, duplicate, invalid, required
from pinnace.model.typed_objects import Job, JobSpec, JobStatus, UncountedTerminatedPods
from pinnace.schema.equality import equal_ignoring_empty

_CONDITIONS = "status.conditions"


class _State:
    """The part of a job's status about its end."""

    def __init__(self, job: Job) -> None:
        self.status: JobStatus = job.get("status") or {}
        true = {c.get("type") for c in self.status.get("conditions", ()) if c.get("status") == "True"}
        false = {c.get("type") for c in self.status.get("conditions", ()) if c.get("status") == "False"}
        self.true = true
        self.is_complete = "Complete" in true
        self.is_failed = "Failed" in true
        self.is_finished = self.is_complete or self.is_failed
        self.will_fail = "FailureTarget" in true
        self.has_succeeded = "SuccessCriteriaMet" in true
        self.is_suspended = "Suspended" in true
        self.is_resumed = "Suspended" in false


def validate_job_status(new: Job, old: Job) -> list[FieldError]:
    """Return the errors that this change introduces: an invalid stored status stays valid."""
    errs: list[FieldError] = []
    now, before = _State(new), _State(old)
    status, status_before = now.status, before.status
    errs += validate_counts(status, ("active", "succeeded", "failed", "ready", "terminating"), "status")
    _validate_uncounted(status.get("uncountedTerminatedPods") or {}, errs)
    changed = {
        field
        for field in {*status, *status_before}
        if not equal_ignoring_empty(status.get(field), status_before.get(field))
    }
    _validate_end(now, before, changed, errs)
    _validate_time(new, now, before, changed, errs)
    _validate_index(new["spec"], status, changed, errs)
    if {"ready", "active"} & changed and status.get("ready", 0) > status.get("active", 0):
        errs.append(invalid("status.ready", status["ready"], "cannot set more ready pods than active"))
    _validate_success(new, now, errs)
    _validate_reversal(new, now, before, errs)
    return errs


def _validate_uncounted(uncounted: UncountedTerminatedPods, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for field in ("succeeded", "failed"):
        for index, uid in enumerate(uncounted.get(field) or ()):
            where = f"status.uncountedTerminatedPods.{field}[{index}]"
            if not uid:
                errs.append(invalid(where, uid, "must not be empty"))
            elif uid in seen:
                errs.append(duplicate(where, uid))
            seen.add(uid)


def _validate_end(now: _State, before: _State, changed: set[str], errs: list[FieldError]) -> None:
    status = now.status
    completes, fails = now.is_complete != before.is_complete, now.is_failed != before.is_failed
    finishes = now.is_finished != before.is_finished
    if (completes or fails) and now.is_complete and now.is_failed:
        errs.append(without_value(_CONDITIONS, "cannot set Complete=True and Failed=true conditions"))
    if (completes or now.will_fail != before.will_fail) and now.is_complete and now.will_fail:
        errs.append(without_value(_CONDITIONS, "cannot set Complete=True and FailureTarget=true conditions"))
    if (fails or "failedIndexes" in changed) and now.is_failed and not now.will_fail:
        detail = "cannot set Failed=True condition without the FailureTarget=true condition"
        errs.append(without_value(_CONDITIONS, detail))
    succeeds = now.has_succeeded != before.has_succeeded
    if (completes or succeeds) and now.is_complete and not now.has_succeeded:
        detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        errs.append(without_value(_CONDITIONS, detail))
    if not now.is_finished:
        return
    if (finishes or "active" in changed) and status.get("active", 0) > 0:
        errs.append(invalid("status.active", status["active"], "active>0 is invalid for finished job"))
    if (finishes or "terminating" in changed) and status.get("terminating", 0) > 0:
        detail = "terminating>0 is invalid for finished job"
        errs.append(invalid("status.terminating", status["terminating"], detail))
    uncounted = status.get("uncountedTerminatedPods") or {}
    if (finishes or "uncountedTerminatedPods" in changed) and any(uncounted.values()):
        view = {"Succeeded": uncounted.get("succeeded"), "Failed": uncounted.get("failed")}
        errs.append(invalid("status.uncountedTerminatedPods", view, "must be empty for finished job"))


def _validate_time(job: Job, now: _State, before: _State, changed: set[str], errs: list[FieldError]) -> None:
    status, spec = now.status, job["spec"]
    start, end = status.get("startTime"), status.get("completionTime")
    if now.is_complete != before.is_complete or "completionTime" in changed:
        if end is not None and not now.is_complete:
            detail = "cannot set completionTime when there is no Complete=True condition"
            errs.append(invalid("status.completionTime", end, detail))
        if end is None and now.is_complete:
            errs.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if {"startTime", "completionTime"} & changed and start and end and end < start:
        errs.append(invalid("status.completionTime", end, "must be equal to or after `startTime`"))
    never_ran = spec.get("suspend") is True and spec.get("completions") == 0
    may_have_lost_start = now.is_finished != before.is_finished or "startTime" in changed
    if may_have_lost_start and now.is_finished and start is None and not never_ran:
        errs.append(required("status.startTime", "startTime is required for finished job"))
    end_before, start_before = before.status.get("completionTime"), before.status.get("startTime")
    if end is not None and end_before is not None and end != end_before:
        errs.append(invalid("status.completionTime", end, IMMUTABLE))
    resumes = before.is_suspended and now.is_resumed
    if start_before is not None and start != start_before and not resumes and not spec.get("suspend"):
        detail = "field is immutable for unsuspended job once set"
        errs.append(invalid("status.startTime", start, detail))


def _validate_index(spec: JobSpec, status: JobStatus, changed: set[str], errs: list[FieldError]) -> None:
    completions = spec.get("completions")
    completed, failed = status.get("completedIndexes", ""), status.get("failedIndexes")
    if "completedIndexes" in changed:
        if completions is not None:
            _validate_format("completedIndexes", completed, completions, errs)
        if completed and spec.get("completionMode") != "Indexed":
            detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
            errs.append(invalid("status.completedIndexes", completed, detail))
    if "failedIndexes" in changed and failed is not None:
        if completions is not None and "backoffLimitPerIndex" in spec:
            _validate_format("failedIndexes", failed, completions, errs)
        if "backoffLimitPerIndex" not in spec:
            detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            errs.append(invalid("status.failedIndexes", failed, detail))
    if {"completedIndexes", "failedIndexes"} & changed and completed and failed and completions is not None:
        both = _indexes(completed, completions) & _indexes(failed, completions)
        if both:
            detail = f"failedIndexes and completedIndexes overlap at index: {min(both)}"
            errs.append(invalid("status.failedIndexes", failed, detail))


def _validate_format(field: str, text: str, completions: int, errs: list[FieldError]) -> None:
    try:
        count_of_indexes(text, completions)
    except ValueError as err:
        errs.append(invalid(f"status.{field}", text, f"error parsing {field}: {err}"))


def _indexes(text: str, completions: int) -> set[int]:
    """Return the indexes of a list, without intervals that cannot be parsed: those are errors elsewhere."""
    indexes: set[int] = set()
    for interval in text.split(","):
        try:
            first, last = index_interval(interval, completions)
        except ValueError:
            continue
        indexes.update(range(first, last + 1))
    return indexes


def _validate_success(job: Job, now: _State, errs: list[FieldError]) -> None:
    if now.has_succeeded and now.is_failed:
        detail = "cannot set SuccessCriteriaMet=True and Failed=true conditions"
        errs.append(without_value(_CONDITIONS, detail))
    if now.has_succeeded and now.will_fail:
        detail = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"
        errs.append(without_value(_CONDITIONS, detail))
    if "successPolicy" in job["spec"] and not now.has_succeeded and now.is_complete:
        detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        errs.append(without_value(_CONDITIONS, detail))


def _validate_reversal(job: Job, now: _State, before: _State, errs: list[FieldError]) -> None:
    for condition in ("Failed", "Complete", "FailureTarget"):
        if condition in before.true and condition not in now.true:
            detail = f"cannot disable the terminal {condition}=True condition"
            errs.append(without_value(_CONDITIONS, detail))
    spec = job["spec"]
    is_elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for field in ("failed", "succeeded"):
        if now.status.get(field, 0) < before.status.get(field, 0) and not (field == "succeeded" and is_elastic):
            detail = f"cannot decrease the {field} counter"
            errs.append(invalid(f"status.{field}", now.status.get(field, 0), detail))
    if before.has_succeeded and not now.has_succeeded:
        errs.append(without_value(_CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition"))
    if before.is_complete and not before.has_succeeded and now.has_succeeded:
        detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        errs.append(without_value(_CONDITIONS, detail))
