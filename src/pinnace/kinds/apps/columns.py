"""The columns of the kinds that make pods, scale them and protect them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from pinnace.kinds.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    UNSET,
    at,
    human_duration,
    integer,
    is_true,
    labels_at,
    length_of,
    number_at,
    reach,
    selector_at,
    selector_text,
    since,
    string,
    template_columns,
    text,
)
from pinnace.model.objects import Object
from pinnace.model.resources import Column

_APPS = "io.k8s.api.apps.v1"
_BATCH = "io.k8s.api.batch.v1"
_CORE = "io.k8s.api.core.v1"
_AUTOSCALING = "io.k8s.api.autoscaling.v2"
_SCALE = "io.k8s.api.autoscaling.v1"


def _ready_of(obj: Object, now: datetime) -> str:
    wanted = reach(obj, "spec", "replicas") or 0
    return f"{reach(obj, 'status', 'readyReplicas') or 0}/{wanted}"


def _replica_columns(package: str, kind: str) -> tuple[Column, ...]:
    return (
        NAME,
        integer("Desired", f"{package}.{kind}Spec.replicas", number_at("spec.replicas")),
        integer("Current", f"{package}.{kind}Status.replicas", number_at("status.replicas")),
        integer("Ready", f"{package}.{kind}Status.readyReplicas", number_at("status.readyReplicas")),
        AGE,
        *template_columns("spec.template"),
    )


REPLICATION_CONTROLLER = (
    *_replica_columns(_CORE, "ReplicationController"),
    string("Selector", f"{_CORE}.ReplicationControllerSpec.selector", labels_at("spec.selector"), wide=True),
)
REPLICA_SET = (
    *_replica_columns(_APPS, "ReplicaSet"),
    string("Selector", f"{_APPS}.ReplicaSetSpec.selector", selector_at("spec.selector"), wide=True),
)
DEPLOYMENT = (
    NAME,
    string("Ready", "Number of the pod with ready state", _ready_of),
    string("Up-to-date", f"{_APPS}.DeploymentStatus.updatedReplicas", number_at("status.updatedReplicas")),
    string("Available", f"{_APPS}.DeploymentStatus.availableReplicas", number_at("status.availableReplicas")),
    AGE,
    *template_columns("spec.template"),
    string(
        "Selector",
        f"{_APPS}.DeploymentSpec.selector",
        lambda obj, now: selector_text(reach(obj, "spec", "selector")),
        wide=True,
    ),
)
STATEFUL_SET = (
    NAME,
    string("Ready", "Number of the pod with ready state", _ready_of),
    AGE,
    *template_columns("spec.template"),
)
DAEMON_SET = (
    NAME,
    integer("Desired", f"{_APPS}.DaemonSetStatus.desiredNumberScheduled", number_at("status.desiredNumberScheduled")),
    integer("Current", f"{_APPS}.DaemonSetStatus.currentNumberScheduled", number_at("status.currentNumberScheduled")),
    integer("Ready", f"{_APPS}.DaemonSetStatus.numberReady", number_at("status.numberReady")),
    integer(
        "Up-to-date", f"{_APPS}.DaemonSetStatus.updatedNumberScheduled", number_at("status.updatedNumberScheduled")
    ),
    integer("Available", f"{_APPS}.DaemonSetStatus.numberAvailable", number_at("status.numberAvailable")),
    string("Node Selector", f"{_CORE}.PodSpec.nodeSelector", labels_at("spec.template.spec.nodeSelector")),
    AGE,
    *template_columns("spec.template"),
    string("Selector", f"{_APPS}.DaemonSetSpec.selector", selector_at("spec.selector"), wide=True),
)


def _controller_of(revision: Object, now: datetime) -> str:
    for owner in reach(revision, "metadata", "ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = f"{owner.get('kind', '')}.{group}" if group else str(owner.get("kind", ""))
            return f"{kind.lower()}/{owner.get('name', '')}"
    return NONE


CONTROLLER_REVISION = (
    NAME,
    string("Controller", "Controller of the object", _controller_of),
    string("Revision", f"{_APPS}.ControllerRevision.revision", number_at("revision")),
    AGE,
)

_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job_status(job: Object, now: datetime) -> str:
    if is_true(job, "Complete"):
        return "Complete"
    if is_true(job, "Failed"):
        return "Failed"
    if reach(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    return next((state for state in _JOB_STATES if is_true(job, state)), "Running")


def _completions(job: Object, now: datetime) -> str:
    done, wanted = reach(job, "status", "succeeded") or 0, reach(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = reach(job, "spec", "parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Object, now: datetime) -> str:
    start, end = reach(job, "status", "startTime"), reach(job, "status", "completionTime")
    if not start:
        return ""
    finish = datetime.fromisoformat(end) if end else now
    return human_duration((finish - datetime.fromisoformat(start)).total_seconds())


JOB = (
    NAME,
    string("Status", "Status of the job.", _job_status),
    string("Completions", f"{_BATCH}.JobStatus.succeeded", _completions),
    string("Duration", "Time required to complete the job.", _job_duration),
    AGE,
    *template_columns("spec.template"),
    string("Selector", f"{_BATCH}.JobSpec.selector", selector_at("spec.selector"), wide=True),
)


def _suspend(cron_job: Object, now: datetime) -> str:
    match reach(cron_job, "spec", "suspend"):
        case None:
            return UNSET
        case suspended:
            return "True" if suspended else "False"


def _last_schedule(cron_job: Object, now: datetime) -> str:
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


def _or_not_applicable(field: str) -> Any:
    def value(budget: Object, now: datetime) -> str:
        found = reach(budget, "spec", field)
        return "N/A" if found is None else text(found)

    return value


POD_DISRUPTION_BUDGET = (
    NAME,
    string("Min Available", "The minimum number of pods that must be available.", _or_not_applicable("minAvailable")),
    string(
        "Max Unavailable", "The maximum number of pods that may be unavailable.", _or_not_applicable("maxUnavailable")
    ),
    integer(
        "Allowed Disruptions",
        "Calculated number of pods that may be disrupted at this time.",
        number_at("status.disruptionsAllowed"),
    ),
    AGE,
)

_SOURCES = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_NO_QUANTITY = "<nil>"


def _metric(spec: Object, status: Object | None) -> str:
    """What is, and what should be."""
    kind = spec.get("type", "")
    field = _SOURCES.get(kind)
    if field is None:
        return "<unknown type>"
    target = reach(spec, field, "target") or {}
    is_known = reach(status, field) is not None
    current = reach(status, field, "current") or {}
    average = target.get("averageValue")
    if kind in ("Resource", "ContainerResource"):
        name = reach(spec, field, "name") or ""
        if average is not None:
            shown = text(current.get("averageValue", _NO_QUANTITY)) if is_known else UNKNOWN
            return f"{name}: {shown}/{average}"
        used, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        shown = UNKNOWN if used is None else f"{used}%"
        return f"{name}: {shown}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if kind == "Pods":
        shown = text(current.get("averageValue", _NO_QUANTITY)) if is_known else UNKNOWN
        return f"{shown}/{_NO_QUANTITY if average is None else average}"
    if average is not None:
        return f"{text(current.get('averageValue', UNKNOWN))}/{average} (avg)"
    shown = text(current.get("value", _NO_QUANTITY)) if is_known else UNKNOWN
    return f"{shown}/{target.get('value', _NO_QUANTITY)}"


def _targets(autoscaler: Object, now: datetime) -> str:
    specs = reach(autoscaler, "spec", "metrics") or ()
    if not specs:
        return NONE
    statuses = reach(autoscaler, "status", "currentMetrics") or ()
    shown = [_metric(spec, statuses[index] if index < len(statuses) else None) for index, spec in enumerate(specs)]
    listed = ", ".join(shown[:2])
    return f"{listed} + {len(shown) - 2} more..." if len(shown) > 2 else listed


def _reference(autoscaler: Object, now: datetime) -> str:
    target = reach(autoscaler, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


HORIZONTAL_POD_AUTOSCALER = (
    NAME,
    string("Reference", f"{_AUTOSCALING}.HorizontalPodAutoscalerSpec.scaleTargetRef", _reference),
    string("Targets", f"{_AUTOSCALING}.HorizontalPodAutoscalerSpec.metrics", _targets),
    string(
        "MinPods",
        f"{_AUTOSCALING}.HorizontalPodAutoscalerSpec.minReplicas",
        lambda obj, now: text(reach(obj, "spec", "minReplicas")) or UNSET,
    ),
    string("MaxPods", f"{_AUTOSCALING}.HorizontalPodAutoscalerSpec.maxReplicas", number_at("spec.maxReplicas")),
    string(
        "Replicas",
        f"{_AUTOSCALING}.HorizontalPodAutoscalerStatus.currentReplicas",
        number_at("status.currentReplicas"),
    ),
    AGE,
)
SCALE = (
    Column("Name", "string", NAME.description, NAME.value),
    integer("Desired", "io.k8s.api.autoscaling.v1.ScaleSpec.replicas", number_at("spec.replicas")),
    integer("Available", "io.k8s.api.autoscaling.v1.ScaleStatus.replicas", number_at("status.replicas")),
    AGE,
)
SCALE = (
    replace(NAME, format=""),
    integer("Desired", f"{_SCALE}.ScaleSpec.replicas", number_at("spec.replicas")),
    integer("Available", f"{_SCALE}.ScaleStatus.replicas", number_at("status.replicas")),
    AGE,
)
CUSTOM_SCALE = (
    NAME,
    integer("Desired", "Number of desired replicas", at("spec.replicas", None)),
    integer("Available", "Number of actual replicas", at("status.replicas", None)),
    replace(AGE, type="date"),
)
