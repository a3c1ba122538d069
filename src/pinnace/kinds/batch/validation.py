"""Defaults and validation of jobs and cron jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from pinnace.kinds.apps.rollouts import MISMATCH, hostname_warnings, selector_view
from pinnace.kinds.batch.cron_schedule import InvalidSchedule, check_time_zone, parse_schedule
from pinnace.kinds.batch.job_status import validate_job_status
from pinnace.kinds.batch.jobs import FAILURE_POLICY, SUCCESS_POLICY, validate_job_spec
from pinnace.kinds.golang.structs import pod_spec_view, template_view
from pinnace.kinds.pods.defaults import default_template
from pinnace.kinds.pods.warnings import template_warnings
from pinnace.kinds.validation.fields import dns_label, in_key_order, validate_counts
from pinnace.model.field_errors import IMMUTABLE, FieldError, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import from_object, validate_label_selector
from pinnace.model.typed_objects import CronJob, CronJobSpec, Job, JobSpec, PodSpec, PodTemplateSpec
from pinnace.schema.equality import equal_ignoring_empty

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID = "controller-uid"
OLD_JOB_NAME = "job-name"
_LARGEST = 2**31 - 1
_LONGEST_CRON_NAME = 52
_zone_part = re.compile("[A-Za-z._0-9+-]{1,14}").fullmatch
_GIVEN_WHILE_SUSPENDED: Final = ("nodeSelector", "tolerations", "schedulingGates")
_MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
    "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)


# Jobs


def _default_job(job: Object) -> None:
    spec = job.setdefault("spec", {})
    default_template(spec)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    if "parallelism" not in spec:
        spec["parallelism"] = 1
    if "backoffLimit" not in spec:
        spec["backoffLimit"] = _LARGEST if "backoffLimitPerIndex" in spec else 6
    _default_failure_policy(spec)
    labels = spec["template"]["metadata"].get("labels")
    metadata = job.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    if "completionMode" not in spec:
        spec["completionMode"] = "NonIndexed"
    if "suspend" not in spec:
        spec["suspend"] = False
    if "podReplacementPolicy" not in spec:
        spec["podReplacementPolicy"] = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    if "manualSelector" not in spec:
        spec["manualSelector"] = False


def _default_failure_policy(spec: JobSpec) -> None:
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def _prepare_job(new: Job, old: Job | None) -> None:
    spec = new["spec"]
    if old is not None:
        return
    new["status"] = {}
    if not spec["manualSelector"]:
        _generate_selector(new)
    if not new["metadata"].get("labels"):
        new["metadata"]["labels"] = dict(spec["template"]["metadata"].get("labels") or {})


def _generate_selector(job: Job) -> None:
    """Select the job's pods by its uid, which is unique."""
    spec, metadata = job["spec"], job["metadata"]
    labels = spec["template"]["metadata"].setdefault("labels", {})
    was_shared = metadata.get("labels") == labels
    for key in (OLD_JOB_NAME, JOB_NAME):
        labels.setdefault(key, metadata.get("name", ""))
    for key in (OLD_CONTROLLER_UID, CONTROLLER_UID):
        labels.setdefault(key, metadata.get("uid", ""))
    if was_shared:
        metadata["labels"] = dict(labels)
    spec.setdefault("selector", {}).setdefault("matchLabels", {}).setdefault(CONTROLLER_UID, metadata.get("uid", ""))


def _validate_job(new: Job, old: Job | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    _validate_generated_selector(new, old, errs)
    _validate_whole_spec(spec, errs)
    completions = spec.get("completions") or 0
    if spec["completionMode"] == "Indexed" and completions > 0:
        hostname = f"{new['metadata'].get('name', '')}-{completions - 1}"
        if dns_label(hostname):
            detail = f"will not able to create pod with invalid DNS label: {hostname}"
            errs.append(invalid("metadata.name", new["metadata"].get("name", ""), detail))
    if old is not None:
        _validate_job_change(new, old, errs)
    return errs


def _validate_generated_selector(job: Job, old: Job | None, errs: list[FieldError]) -> None:
    spec, metadata = job["spec"], job["metadata"]
    if spec["manualSelector"] or spec.get("selector") is None:
        return
    expected = {OLD_CONTROLLER_UID: metadata.get("uid", ""), OLD_JOB_NAME: metadata.get("name", "")}
    before = old["spec"]["template"]["metadata"].get("labels", {}) if old is not None else {}
    if old is None or (JOB_NAME in before and CONTROLLER_UID in before):
        expected |= {CONTROLLER_UID: metadata.get("uid", ""), JOB_NAME: metadata.get("name", "")}
    labels = spec["template"]["metadata"].get("labels") or {}
    for key, value in expected.items():
        where = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            errs.append(required(where, f"must be '{value}'"))
        elif labels[key] != value:
            errs.append(invalid(where, in_key_order(labels), f"must be '{value}'"))
    readable = not any(validate_label_selector(spec["selector"], ""))
    if readable and not from_object(spec["selector"]).matches(expected):
        errs.append(invalid("spec.selector", selector_view(spec["selector"]), "`selector` not auto-generated"))


def _validate_whole_spec(spec: JobSpec, errs: list[FieldError]) -> None:
    validate_job_spec(spec, "spec", errs)
    selector = spec.get("selector")
    unreadable = list(validate_label_selector(selector, "spec.selector"))
    errs.extend(unreadable)
    if selector is None:
        errs.append(required("spec.selector"))
    labels = spec["template"]["metadata"].get("labels")
    if not unreadable and not from_object(selector).matches(labels or {}):
        errs.append(invalid("spec.template.metadata.labels", in_key_order(labels), MISMATCH))


def _validate_job_change(new: Job, old: Job, errs: list[FieldError]) -> None:
    spec, before = new["spec"], old["spec"]
    completions = spec.get("completions")
    if spec["completionMode"] != "Indexed":
        _validate_unchanged(spec, before, "completions", errs)
    elif completions not in (None, before.get("completions"), spec["parallelism"]):
        detail = "can only be modified in tandem with spec.parallelism"
        errs.append(invalid("spec.completions", completions, detail))
    _validate_unchanged(spec, before, "selector", errs, view_of=selector_view)
    _validate_template_change(new, old, errs)
    _validate_unchanged(spec, before, "completionMode", errs)
    _validate_unchanged(spec, before, "podFailurePolicy", errs, view_of=FAILURE_POLICY.view_or_none)
    _validate_unchanged(spec, before, "backoffLimitPerIndex", errs)
    _validate_unchanged(spec, before, "managedBy", errs)
    _validate_unchanged(spec, before, "successPolicy", errs, view_of=SUCCESS_POLICY.view_or_none)


def _validate_unchanged(
    spec: JobSpec, before: JobSpec, field: str, errs: list[FieldError], *, view_of: Any = None
) -> None:
    if not equal_ignoring_empty(spec.get(field), before.get(field)):
        value = spec.get(field)
        errs.append(invalid(f"spec.{field}", view_of(value) if view_of else value, IMMUTABLE))


def _validate_template_change(new: Job, old: Job, errs: list[FieldError]) -> None:
    template, before = new["spec"]["template"], old["spec"]["template"]
    status = old.get("status") or {}
    suspended = any(c.get("type") == "Suspended" and c.get("status") == "True" for c in status.get("conditions", ()))
    is_waiting = (
        bool(old["spec"].get("suspend")) and ("startTime" not in status or suspended) and not status.get("active")
    )
    if is_waiting:
        allowed = _with_scheduling_of(template, before)
        if not equal_ignoring_empty(template["spec"], _with_resources_of(template["spec"], allowed["spec"])):
            errs.append(invalid("spec.template.spec", pod_spec_view(template["spec"]), IMMUTABLE))
    elif not equal_ignoring_empty(template, before):
        errs.append(invalid("spec.template", template_view(template), IMMUTABLE))


def _with_scheduling_of(template: PodTemplateSpec, before: PodTemplateSpec) -> PodTemplateSpec:
    """Return the old template with the scheduling fields of the new one, which a suspended job may change."""
    spec, spec_before = template["spec"], before["spec"]
    taken, affinity = spec_before.copy(), (spec_before.get("affinity") or {}).copy()
    for field in _GIVEN_WHILE_SUSPENDED:
        if field in spec:
            taken[field] = spec[field]
        elif field in taken:
            del taken[field]
    affinity.pop("nodeAffinity", None)
    if "nodeAffinity" in (spec.get("affinity") or {}):
        affinity["nodeAffinity"] = spec["affinity"]["nodeAffinity"]
    return {"metadata": template["metadata"], "spec": {**taken, "affinity": affinity}}


def _with_resources_of(spec: PodSpec, before: PodSpec) -> PodSpec:
    taken = before.copy()
    for field in ("containers", "initContainers"):
        now, then = spec.get(field) or [], before.get(field) or []
        if len(now) == len(then):
            taken[field] = [
                {**old, "resources": new.get("resources", {})} if old.get("name") == new.get("name") else old
                for new, old in zip(now, then, strict=True)
            ]
    return taken


def _validate_job_status(new: Job, old: Job | None) -> list[FieldError]:
    return [] if old is None else validate_job_status(new, old)


def _spec_warnings(spec: JobSpec, path: str) -> Iterator[str]:
    has_many = spec.get("completions", 0) > 100_000 and spec.get("parallelism", 0) > 10_000
    if has_many and spec.get("completionMode") == "Indexed":
        yield f"{path}: {_MANY_INDEXES}"
    yield from template_warnings(spec["template"], f"{path}.template")


def _job_warnings(new: Job, old: Job | None) -> Iterator[str]:
    if old is None:
        yield from hostname_warnings(new["metadata"].get("name", ""))
    if old is None or not equal_ignoring_empty(new["spec"], old["spec"]):
        yield from _spec_warnings(new["spec"], "spec")


# Cron jobs


def _default_cron_job(cron_job: Object) -> None:
    spec = cron_job.setdefault("spec", {})
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    if "suspend" not in spec:
        spec["suspend"] = False
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    job_spec = template.setdefault("spec", {})
    default_template(job_spec)
    _default_failure_policy(job_spec)
    if "successfulJobsHistoryLimit" not in spec:
        spec["successfulJobsHistoryLimit"] = 3
    if "failedJobsHistoryLimit" not in spec:
        spec["failedJobsHistoryLimit"] = 1


def _prepare_cron_job(new: CronJob, old: CronJob | None) -> None:
    if old is None:
        new["status"] = {}


def _validate_cron_job(new: CronJob, old: CronJob | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    _validate_schedule(spec, old, errs)
    errs += validate_counts(spec, ("startingDeadlineSeconds",), "spec")
    zone = spec.get("timeZone")
    if zone is not None and (old is None or old["spec"].get("timeZone") != zone):
        _validate_time_zone(zone, errs)
    policy = spec["concurrencyPolicy"]
    if policy not in ("Allow", "Forbid", "Replace"):
        errs.append(not_supported("spec.concurrencyPolicy", policy, ["Allow", "Forbid", "Replace"]))
    job_spec = spec["jobTemplate"]["spec"]
    validate_job_spec(job_spec, "spec.jobTemplate.spec", errs)
    if "selector" in job_spec:
        detail = "`selector` will be auto-generated"
        errs.append(invalid("spec.jobTemplate.spec.selector", selector_view(job_spec["selector"]), detail))
    if job_spec.get("manualSelector"):
        errs.append(not_supported("spec.jobTemplate.spec.manualSelector", True, ["nil", "false"]))
    errs += validate_counts(spec, ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), "spec")
    name = new["metadata"].get("name", "")
    if old is None and len(name) > _LONGEST_CRON_NAME:
        errs.append(invalid("metadata.name", name, f"must be no more than {_LONGEST_CRON_NAME} characters"))
    return errs


def _validate_schedule(spec: CronJobSpec, old: CronJob | None, errs: list[FieldError]) -> None:
    schedule = spec.get("schedule", "")
    if not schedule:
        errs.append(required("spec.schedule"))
        return
    try:
        parse_schedule(schedule)
    except InvalidSchedule as err:
        errs.append(invalid("spec.schedule", schedule, str(err)))
    if "TZ" not in schedule:
        return
    if old is None or "TZ" not in old["spec"].get("schedule", ""):
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errs.append(invalid("spec.schedule", schedule, detail))
    elif "timeZone" in spec:
        detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        errs.append(invalid("spec.schedule", schedule, detail))


def _validate_time_zone(zone: str, errs: list[FieldError]) -> None:
    if not zone:
        errs.append(invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string"))
        return
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _zone_part(part):
            errs.append(invalid("spec.timeZone", zone, f"unknown time zone {zone}"))
            return
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errs.append(invalid("spec.timeZone", zone, detail))
    if err := check_time_zone(zone):
        errs.append(invalid("spec.timeZone", zone, err))


def _cron_job_warnings(new: CronJob, old: CronJob | None) -> Iterator[str]:
    spec = new["spec"]
    if old is None:
        yield from hostname_warnings(new["metadata"].get("name", ""))
    if old is None or not equal_ignoring_empty(spec, old["spec"]):
        yield from _spec_warnings(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")
    if old is not None and "TZ" in spec.get("schedule", ""):
        yield (
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )


JOB = Strategy(
    default=_default_job,
    prepare=_prepare_job,
    validate=_validate_job,
    validate_status=_validate_job_status,
    tracks_generation=True,
    dependents="orphan",
    deletion_warning=(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
        "or set propagationPolicy=Orphan to suppress this warning"
    ),
    warnings=_job_warnings,
)
CRON_JOB = Strategy(
    default=_default_cron_job,
    prepare=_prepare_cron_job,
    validate=_validate_cron_job,
    tracks_generation=True,
    warnings=_cron_job_warnings,
)
