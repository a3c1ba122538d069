"""The status of a Deployment: counts, and the conditions Available, Progressing and ReplicaFailure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from pinnace.controllers.workloads.deployment_sizes import available, max_unavailable, name_of, size, total
from pinnace.controllers.workloads.pod_facts import parse_time
from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Object

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


def find(conditions: Iterable[Object], type: str) -> Object | None:
    return next((one for one in conditions if one.get("type") == type), None)


def with_condition(conditions: list[Object], condition: DeploymentCondition, now: datetime) -> list[Object]:
    """Return the conditions with one set. A condition with the same status and reason stays as it is."""
    known = find(conditions, condition.type)
    if known is not None and (known.get("status"), known.get("reason")) == (condition.status, condition.reason):
        return conditions
    return _replace(conditions, condition, now)


def _replace(conditions: list[Object], condition: DeploymentCondition, now: datetime) -> list[Object]:
    known = find(conditions, condition.type)
    moment = to_rfc3339(now)
    since = known.get("lastTransitionTime") if known is not None and known.get("status") == condition.status else None
    fresh = {**condition._asdict(), "lastUpdateTime": moment, "lastTransitionTime": since or moment}
    return [*without(conditions, condition.type), fresh]


def without(conditions: Iterable[Object], type: str) -> list[Object]:
    return [one for one in conditions if one.get("type") != type]


def has_deadline(deployment: Object) -> bool:
    return bool(deployment["spec"].get("progressDeadlineSeconds", _ENDLESS) != _ENDLESS)


def counted_status(
    deployment: Object, new: Object | None, old: list[Object], conditions: list[Object], now: datetime
) -> Object:
    """Return the counts over all ReplicaSets, and whether enough replicas are available."""
    sets = [*old, new] if new is not None else old
    ready_to_use = sum(map(available, sets))
    counts = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": _sum(sets, "replicas"),
        "updatedReplicas": _sum([new], "replicas") if new is not None else 0,
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": ready_to_use,
        "unavailableReplicas": max(0, total(sets) - ready_to_use),
    }
    status: Object = {name: count for name, count in counts.items() if count}
    terminating = _count_terminating(sets)
    if terminating is not None:
        status["terminatingReplicas"] = terminating
    if "collisionCount" in (deployment.get("status") or {}):
        status["collisionCount"] = deployment["status"]["collisionCount"]
    status["conditions"] = with_condition(conditions, _availability(deployment, ready_to_use), now)
    return status


def _availability(deployment: Object, count: int) -> DeploymentCondition:
    if count >= size(deployment) - max_unavailable(deployment):
        message = "Deployment has minimum availability."
        return DeploymentCondition(AVAILABLE, "True", "MinimumReplicasAvailable", message)
    message = "Deployment does not have minimum availability."
    return DeploymentCondition(AVAILABLE, "False", "MinimumReplicasUnavailable", message)


def _sum(sets: Iterable[Object], field: str) -> int:
    return sum((one.get("status") or {}).get(field, 0) for one in sets)


def _count_terminating(sets: Iterable[Object]) -> int | None:
    """Return the number of pods being deleted; None if an observed ReplicaSet does not report it."""
    count = 0
    for one in sets:
        status = one.get("status") or {}
        if "terminatingReplicas" in status:
            count += status["terminatingReplicas"]
        elif status.get("observedGeneration"):
            return None
    return count


def is_complete(deployment: Object, status: Object) -> bool:
    """Whether all replicas are of the newest revision and available, and no others are left."""
    counts = (status.get(field, 0) for field in ("updatedReplicas", "replicas", "availableReplicas"))
    is_seen: bool = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return is_seen and all(count == size(deployment) for count in counts)


def rollout_conditions(
    deployment: Object, new: Object | None, old: list[Object], status: Object, now: datetime
) -> list[Object]:
    """Return the conditions of a counted status with those that follow a rollout: Progressing and ReplicaFailure."""
    conditions: list[Object] = status["conditions"]
    if has_deadline(deployment):
        conditions = _with_progress(deployment, new, status, now)
    else:
        conditions = without(conditions, PROGRESSING)
    failure = _replica_failure([new, *old] if new is not None else old)
    if failure is None:
        return without(conditions, REPLICA_FAILURE)
    return _with_failure(conditions, failure)


def _with_progress(deployment: Object, new: Object | None, status: Object, now: datetime) -> list[Object]:
    conditions: list[Object] = status["conditions"]
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


def _has_progressed(before: Object, status: Object) -> bool:
    def old_replicas(one: Object) -> int:
        count: int = one.get("replicas", 0) - one.get("updatedReplicas", 0)
        return count

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old_replicas(status) < old_replicas(before) or any(
        status.get(field, 0) > before.get(field, 0) for field in grown
    )


def _is_timed_out(deployment: Object, progressing: Object | None, now: datetime) -> bool:
    if progressing is None or progressing.get("reason") == _COMPLETE:
        return False
    return progressing.get("reason") == TIMED_OUT or _deadline(deployment, progressing) < now


def _deadline(deployment: Object, progressing: Object) -> datetime:
    return parse_time(progressing["lastUpdateTime"]) + timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"])


def seconds_to_deadline(deployment: Object, status: Object, now: datetime) -> float:
    """Return the seconds until the rollout may have timed out; 0 if it cannot."""
    progressing = find(status.get("conditions") or (), PROGRESSING)
    if not has_deadline(deployment) or progressing is None or is_complete(deployment, status):
        return 0.0
    if progressing.get("reason") in (TIMED_OUT, PAUSED):
        return 0.0
    # A second more: the times of conditions are whole seconds.
    return max(0.0, (_deadline(deployment, progressing) - now).total_seconds()) + 1.0


def _replica_failure(sets: Iterable[Object]) -> Object | None:
    found = (find((one.get("status") or {}).get("conditions") or (), REPLICA_FAILURE) for one in sets)
    return next((one for one in found if one is not None), None)


def _with_failure(conditions: list[Object], failure: Object) -> list[Object]:
    known = find(conditions, REPLICA_FAILURE)
    if known is not None and all(known.get(field) == failure.get(field) for field in ("status", "reason")):
        return conditions
    return [*without(conditions, REPLICA_FAILURE), {**failure, "lastUpdateTime": failure.get("lastTransitionTime")}]
