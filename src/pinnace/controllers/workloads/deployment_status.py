"""The status of a Deployment: counts, and the conditions Available, Progressing and ReplicaFailure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple

from pinnace.controllers.workloads.deployment_sizes import available, max_unavailable, name_of, size, total
from pinnace.controllers.workloads.pod_facts import parse_time
from pinnace.model.objects import SameType, without_zeros
from pinnace.model.typed_objects import Deployment, DeploymentStatus, ReplicaSet, ReplicaSetCondition
from pinnace.model.typed_objects import DeploymentCondition as StoredCondition
from pinnace.process.clock import later, to_rfc3339

AVAILABLE = "Available"
PROGRESSING = "Progressing"
REPLICA_FAILURE = "ReplicaFailure"
PAUSED = "DeploymentPaused"
TIMED_OUT = "ProgressDeadlineExceeded"
_COMPLETE = "NewReplicaSetAvailable"
_ENDLESS = 2**31 - 1


class DeploymentCondition(NamedTuple):
    """A condition without its times."""

    type: str
    status: str
    reason: str
    message: str


def find(conditions: Iterable[SameType], type: str) -> SameType | None:
    return next((condition for condition in conditions if condition.get("type") == type), None)


def with_condition(
    conditions: list[StoredCondition], condition: DeploymentCondition, now: datetime
) -> list[StoredCondition]:
    """Return the conditions with one set. A condition with the same status and reason stays as it is."""
    known = find(conditions, condition.type)
    if known is not None and (known.get("status"), known.get("reason")) == (condition.status, condition.reason):
        return conditions
    return _replace(conditions, condition, now)


def _replace(conditions: list[StoredCondition], condition: DeploymentCondition, now: datetime) -> list[StoredCondition]:
    known = find(conditions, condition.type)
    moment = to_rfc3339(now)
    since = known.get("lastTransitionTime") if known is not None and known.get("status") == condition.status else None
    fresh: StoredCondition = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastUpdateTime": moment,
        "lastTransitionTime": since or moment,
    }
    return [*without(conditions, condition.type), fresh]


def without(conditions: Iterable[StoredCondition], type: str) -> list[StoredCondition]:
    return [condition for condition in conditions if condition.get("type") != type]


def has_deadline(deployment: Deployment) -> bool:
    return bool(deployment["spec"].get("progressDeadlineSeconds", _ENDLESS) != _ENDLESS)


def counted_status(
    deployment: Deployment,
    new: ReplicaSet | None,
    old: list[ReplicaSet],
    conditions: list[StoredCondition],
    now: datetime,
) -> DeploymentStatus:
    """Return the counts over all ReplicaSets, and whether enough replicas are available."""
    sets = [*old, new] if new is not None else old
    ready_to_use = sum(map(available, sets))
    counts: DeploymentStatus = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": _sum(sets, "replicas"),
        "updatedReplicas": _sum([new], "replicas") if new is not None else 0,
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": ready_to_use,
        "unavailableReplicas": max(0, total(sets) - ready_to_use),
    }
    status = without_zeros(counts)
    terminating = _count_terminating(sets)
    if terminating is not None:
        status["terminatingReplicas"] = terminating
    if "collisionCount" in (deployment.get("status") or {}):
        status["collisionCount"] = deployment["status"]["collisionCount"]
    status["conditions"] = with_condition(conditions, _availability(deployment, ready_to_use), now)
    return status


def _availability(deployment: Deployment, count: int) -> DeploymentCondition:
    if count >= size(deployment) - max_unavailable(deployment):
        message = "Deployment has minimum availability."
        return DeploymentCondition(AVAILABLE, "True", "MinimumReplicasAvailable", message)
    message = "Deployment does not have minimum availability."
    return DeploymentCondition(AVAILABLE, "False", "MinimumReplicasUnavailable", message)


def _sum(sets: Iterable[ReplicaSet], field: Literal["replicas", "readyReplicas"]) -> int:
    return sum((replica_set.get("status") or {}).get(field, 0) for replica_set in sets)


def _count_terminating(sets: Iterable[ReplicaSet]) -> int | None:
    """Return the number of pods being deleted; None if an observed ReplicaSet does not report it."""
    count = 0
    for replica_set in sets:
        status = replica_set.get("status") or {}
        if "terminatingReplicas" in status:
            count += status["terminatingReplicas"]
        elif status.get("observedGeneration"):
            return None
    return count


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Whether all replicas are of the newest revision and available, and no others are left."""
    counts = (status.get(field, 0) for field in ("updatedReplicas", "replicas", "availableReplicas"))
    is_seen: bool = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return is_seen and all(count == size(deployment) for count in counts)


def rollout_conditions(
    deployment: Deployment, new: ReplicaSet | None, old: list[ReplicaSet], status: DeploymentStatus, now: datetime
) -> list[StoredCondition]:
    """Return the conditions of a counted status with those that follow a rollout: Progressing and ReplicaFailure."""
    conditions: list[StoredCondition] = status["conditions"]
    if has_deadline(deployment):
        conditions = _with_progress(deployment, new, status, now)
    else:
        conditions = without(conditions, PROGRESSING)
    failure = _replica_failure([new, *old] if new is not None else old)
    if failure is None:
        return without(conditions, REPLICA_FAILURE)
    return _with_failure(conditions, failure)


def _with_progress(
    deployment: Deployment, new: ReplicaSet | None, status: DeploymentStatus, now: datetime
) -> list[StoredCondition]:
    conditions: list[StoredCondition] = status["conditions"]
    before = find(conditions, PROGRESSING)
    is_over = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    if is_over and before is not None and before.get("reason") == _COMPLETE:
        return conditions
    about = f'ReplicaSet "{name_of(new)}"' if new is not None else f'Deployment "{name_of(deployment)}"'
    if is_complete(deployment, status):
        condition = DeploymentCondition(PROGRESSING, "True", _COMPLETE, f"{about} has successfully progressed.")
        return with_condition(conditions, condition, now)
    if _has_progressed(deployment.get("status") or {}, status):
        condition = DeploymentCondition(PROGRESSING, "True", "ReplicaSetUpdated", f"{about} is progressing.")
        return _replace(conditions, condition, now)
    if _is_timed_out(deployment, before, now):
        condition = DeploymentCondition(PROGRESSING, "False", TIMED_OUT, f"{about} has timed out progressing.")
        return with_condition(conditions, condition, now)
    return conditions


def _has_progressed(before: DeploymentStatus, status: DeploymentStatus) -> bool:
    def old_replicas(status: DeploymentStatus) -> int:
        return status.get("replicas", 0) - status.get("updatedReplicas", 0)

    return (
        old_replicas(status) < old_replicas(before)
        or status.get("updatedReplicas", 0) > before.get("updatedReplicas", 0)
        or status.get("readyReplicas", 0) > before.get("readyReplicas", 0)
        or status.get("availableReplicas", 0) > before.get("availableReplicas", 0)
    )


def _is_timed_out(deployment: Deployment, progressing: StoredCondition | None, now: datetime) -> bool:
    if progressing is None or progressing.get("reason") == _COMPLETE:
        return False
    return progressing.get("reason") == TIMED_OUT or _deadline(deployment, progressing) < now


def _deadline(deployment: Deployment, progressing: StoredCondition) -> datetime:
    return later(parse_time(progressing["lastUpdateTime"]), deployment["spec"]["progressDeadlineSeconds"])


def seconds_to_deadline(deployment: Deployment, status: DeploymentStatus, now: datetime) -> float:
    """Return the seconds until the rollout may have timed out; 0 if it cannot."""
    progressing = find(status.get("conditions") or (), PROGRESSING)
    if not has_deadline(deployment) or progressing is None or is_complete(deployment, status):
        return 0.0
    if progressing.get("reason") in (TIMED_OUT, PAUSED):
        return 0.0
    # A second more: the times of conditions are whole seconds.
    return max(0.0, (_deadline(deployment, progressing) - now).total_seconds()) + 1.0


def _replica_failure(sets: Iterable[ReplicaSet]) -> ReplicaSetCondition | None:
    failures = (
        find((replica_set.get("status") or {}).get("conditions") or (), REPLICA_FAILURE) for replica_set in sets
    )
    return next((condition for condition in failures if condition is not None), None)


def _with_failure(conditions: list[StoredCondition], failure: ReplicaSetCondition) -> list[StoredCondition]:
    known = find(conditions, REPLICA_FAILURE)
    if known is not None and all(known.get(field) == failure.get(field) for field in ("status", "reason")):
        return conditions
    moment = failure.get("lastTransitionTime", "")
    return [*without(conditions, REPLICA_FAILURE), {**failure, "lastUpdateTime": moment}]
