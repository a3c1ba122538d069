"""Whether an object is ready, by the rules of kstatus, which kubectl's plug-ins, Flux and Argo CD follow too.

An object of any kind that follows Kubernetes' conventions can be judged: its generation, its conditions Reconciling,
Stalled and Ready. Some built-in kinds do not follow them, so they have rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, cast

from pinnace.model.objects import AnyObject, Object, kind_of

ReadinessStatus = Literal["Current", "InProgress", "Failed", "Terminating"]
SCHEDULE_WINDOW = timedelta(seconds=15)
"""A pod may be unschedulable for so long before that counts as a failure."""
_CRASH_LOOP = "CrashLoopBackOff"


class ObjectReadiness(NamedTuple):
    """True if an object is as its spec says. `message` says what is missing otherwise."""

    status: ReadinessStatus
    message: str = ""

    def __bool__(self) -> bool:
        return self.status == "Current"


Rule = Callable[["_Fields", datetime], ObjectReadiness]


def readiness_of(obj: AnyObject, *, now: datetime) -> ObjectReadiness:
    """Return whether an object is ready."""
    fields = _Fields(cast("Object", obj))
    general = _general(fields)
    if general is not None:
        return general
    kind = kind_of(obj)
    rule = _RULES.get((kind.group, kind.name))
    return rule(fields, now) if rule is not None else _by_ready_condition(fields)


class _Fields:
    """Reads fields of an object of any shape: a value of another type counts as missing."""

    def __init__(self, obj: Object) -> None:
        self._obj = obj
        self.kind = str(obj.get("kind", ""))

    def value(self, *path: str) -> Any:
        value: Any = self._obj
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def number(self, *path: str, default: int = 0) -> int:
        value = self.value(*path)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def text(self, *path: str, default: str = "") -> str:
        value = self.value(*path)
        return value if isinstance(value, str) else default

    def conditions(self) -> Iterator[_Condition]:
        conditions = self.value("status", "conditions")
        for condition in conditions if isinstance(conditions, list) else ():
            if isinstance(condition, dict):
                texts = (str(condition.get(name, "")) for name in ("type", "status", "reason", "message"))
                yield _Condition(*texts)

    def condition(self, type: str) -> _Condition | None:
        return next((condition for condition in self.conditions() if condition.type == type), None)


class _Condition(NamedTuple):
    """One condition of a status."""

    type: str
    status: str
    reason: str
    message: str


def _general(fields: _Fields) -> ObjectReadiness | None:
    """Judge an object by what all kinds share; return None if that does not decide."""
    if fields.text("metadata", "deletionTimestamp"):
        return ObjectReadiness("Terminating", "it is being deleted")
    generation, observed = fields.number("metadata", "generation"), fields.value("status", "observedGeneration")
    if generation and isinstance(observed, int) and observed != generation:
        return ObjectReadiness("InProgress", f"generation {generation} has not been observed yet, only {observed}")
    for condition in fields.conditions():
        if condition.status == "True" and condition.type == "Reconciling":
            return ObjectReadiness("InProgress", condition.message or condition.reason)
        if condition.status == "True" and condition.type == "Stalled":
            return ObjectReadiness("Failed", condition.message or condition.reason)
    return None


def _by_ready_condition(fields: _Fields) -> ObjectReadiness:
    ready = fields.condition("Ready")
    if ready is None or ready.status == "True":
        return ObjectReadiness("Current")
    return ObjectReadiness("InProgress", ready.message or ready.reason or f"Ready is {ready.status}")


def _counts(*wanted: tuple[str, int, int]) -> ObjectReadiness | None:
    """Return the first count that is too low, as "available: 1 of 3"."""
    low = ((name, present, expected) for name, present, expected in wanted if present < expected)
    return next(
        (ObjectReadiness("InProgress", f"{name}: {present} of {expected}") for name, present, expected in low), None
    )


def _current_unless(low: ObjectReadiness | None) -> ObjectReadiness:
    return ObjectReadiness("Current") if low is None else low


def _always(fields: _Fields, now: datetime) -> ObjectReadiness:
    return ObjectReadiness("Current")


def _deployment(fields: _Fields, now: datetime) -> ObjectReadiness:
    progressing, available = fields.condition("Progressing"), fields.condition("Available")
    if progressing is not None and progressing.reason == "ProgressDeadlineExceeded":
        return ObjectReadiness("Failed", progressing.message or "the progress deadline was exceeded")
    replicas = fields.number("spec", "replicas", default=1)
    total, updated = fields.number("status", "replicas"), fields.number("status", "updatedReplicas")
    low = _counts(("replicas", total, replicas), ("updated", updated, replicas))
    if low is None and total > replicas:
        low = ObjectReadiness("InProgress", f"{total - replicas} pods are still to be removed")
    if low is None:
        low = _counts(
            ("available", fields.number("status", "availableReplicas"), updated),
            ("ready", fields.number("status", "readyReplicas"), replicas),
        )
    if low is not None:
        return low
    is_watched = 0 < fields.number("spec", "progressDeadlineSeconds", default=2**31 - 1) < 2**31 - 1
    has_progressed = progressing is not None and progressing[1:3] == ("True", "NewReplicaSetAvailable")
    if is_watched and not has_progressed:
        return ObjectReadiness("InProgress", "the new ReplicaSet is not available")
    if available is None or available.status != "True":
        return ObjectReadiness("InProgress", "the Deployment is not available")
    return ObjectReadiness("Current")


def _stateful_set(fields: _Fields, now: datetime) -> ObjectReadiness:
    if fields.text("spec", "updateStrategy", "type") == "OnDelete":
        return ObjectReadiness("Current")
    replicas, total = fields.number("spec", "replicas", default=1), fields.number("status", "replicas")
    low = _counts(("replicas", total, replicas), ("ready", fields.number("status", "readyReplicas"), replicas))
    if low is not None:
        return low
    if total > replicas:
        return ObjectReadiness("InProgress", f"{total - replicas} pods are still to be removed")
    partition = fields.value("spec", "updateStrategy", "rollingUpdate", "partition")
    if isinstance(partition, int):
        updated = fields.number("status", "updatedReplicas")
        return _current_unless(_counts(("updated", updated, replicas - partition)))
    low = _counts(("current", fields.number("status", "currentReplicas"), replicas))
    if low is None and fields.text("status", "currentRevision") != fields.text("status", "updateRevision"):
        low = ObjectReadiness("InProgress", "the new revision is not the current one yet")
    return _current_unless(low)


def _daemon_set(fields: _Fields, now: datetime) -> ObjectReadiness:
    if not isinstance(fields.value("status", "observedGeneration"), int):
        return ObjectReadiness("InProgress", "it has not been observed yet")
    wanted = fields.number("status", "desiredNumberScheduled", default=-1)
    if wanted < 0:
        return ObjectReadiness("InProgress", "the number of nodes for it is not known yet")
    names = {
        "scheduled": "currentNumberScheduled",
        "updated": "updatedNumberScheduled",
        "available": "numberAvailable",
        "ready": "numberReady",
    }
    low = _counts(*((name, fields.number("status", field), wanted) for name, field in names.items()))
    return _current_unless(low)


def _replica_set(fields: _Fields, now: datetime) -> ObjectReadiness:
    failure = fields.condition("ReplicaFailure")
    if failure is not None and failure.status == "True":
        return ObjectReadiness("InProgress", failure.message or "pods cannot be created")
    replicas, total = fields.number("spec", "replicas", default=1), fields.number("status", "replicas")
    low = _counts(
        ("labelled", fields.number("status", "fullyLabeledReplicas"), replicas),
        ("available", fields.number("status", "availableReplicas"), replicas),
        ("ready", fields.number("status", "readyReplicas"), replicas),
    )
    if low is None and total > replicas:
        low = ObjectReadiness("InProgress", f"{total - replicas} pods are still to be removed")
    return _current_unless(low)


def _pod(fields: _Fields, now: datetime) -> ObjectReadiness:
    phase = fields.text("status", "phase")
    if phase in ("Succeeded", "Failed"):
        return ObjectReadiness(
            "Current", "it has completed" if phase == "Succeeded" else "it has completed with a failure"
        )
    if phase == "Running":
        ready = fields.condition("Ready")
        if ready is not None and ready.status == "True":
            return ObjectReadiness("Current")
        crashing = _crashing(fields.value("status", "containerStatuses"))
        if crashing:
            return ObjectReadiness("Failed", f"containers that crash again and again: {', '.join(crashing)}")
        return ObjectReadiness("InProgress", "it runs but is not ready")
    scheduled = fields.condition("PodScheduled")
    if phase == "Pending" and scheduled is not None and scheduled[1:3] == ("False", "Unschedulable"):
        is_new = now - SCHEDULE_WINDOW < _created(fields, now)
        message = scheduled.message or "it cannot be scheduled"
        return ObjectReadiness("InProgress" if is_new else "Failed", message)
    return ObjectReadiness("InProgress", f"its phase is {phase}" if phase else "it has not been observed yet")


def _crashing(statuses: Any) -> list[str]:
    """Return the names of the containers that wait to be started again after several crashes."""
    return [
        str(status.get("name", ""))
        for status in (statuses if isinstance(statuses, list) else ())
        if isinstance(status, dict) and _Fields(status).text("state", "waiting", "reason") == _CRASH_LOOP
    ]


def _created(fields: _Fields, now: datetime) -> datetime:
    try:
        return datetime.fromisoformat(fields.text("metadata", "creationTimestamp"))
    except ValueError:
        return now


def _claim(fields: _Fields, now: datetime) -> ObjectReadiness:
    phase = fields.text("status", "phase", default="unknown")
    return ObjectReadiness("Current") if phase == "Bound" else ObjectReadiness("InProgress", f"its phase is {phase}")


def _service(fields: _Fields, now: datetime) -> ObjectReadiness:
    if fields.text("spec", "type") == "LoadBalancer" and not fields.text("spec", "clusterIP"):
        return ObjectReadiness("InProgress", "it has no address yet")
    return ObjectReadiness("Current")


def _job(fields: _Fields, now: datetime) -> ObjectReadiness:
    for condition in fields.conditions():
        if condition.status == "True" and condition.type in ("Complete", "Suspended"):
            return ObjectReadiness(
                "Current", "it is suspended" if condition.type == "Suspended" else "it has completed"
            )
        if condition.status == "True" and condition.type == "Failed":
            return ObjectReadiness("Failed", condition.message or condition.reason)
    if not fields.text("status", "startTime"):
        return ObjectReadiness("InProgress", "it has not been started yet")
    return ObjectReadiness("Current", "it runs")


def _definition(fields: _Fields, now: datetime) -> ObjectReadiness:
    for condition in fields.conditions():
        if condition.type == "NamesAccepted" and condition.status == "False":
            return ObjectReadiness("Failed", condition.message)
        if condition.type == "Established" and condition.status == "True":
            return ObjectReadiness("Current")
        if condition.type == "Established" and condition.status == "False" and condition.reason != "Installing":
            return ObjectReadiness("Failed", condition.message)
    return ObjectReadiness("InProgress", "it is being installed")


_RULES: dict[tuple[str, str], Rule] = {
    ("", "ConfigMap"): _always,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "Secret"): _always,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "CronJob"): _always,
    ("batch", "Job"): _job,
    ("policy", "PodDisruptionBudget"): _always,
}
