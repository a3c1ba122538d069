"""Counts each ended pod of a Job exactly once, whatever happens between two writes.

A pod that has ended is first noted by its uid in `status.uncountedTerminatedPods`; then it loses its finalizer; then
its uid leaves the list and the counter grows. A uid in the list without a pod that has the finalizer is a pod whose
counter has not grown yet. The index of a pod of an Indexed Job needs no such note when the pod succeeded: an index
counts once by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Literal, NamedTuple, cast

from pinnace.controllers.batch.indexes import Indexes
from pinnace.controllers.batch.job_pods import JobPod
from pinnace.controllers.batch.job_view import JobView, Verdict
from pinnace.model.objects import Object, deep_copy, without_zeros
from pinnace.model.typed_objects import Job, JobCondition, JobStatus
from pinnace.process.clock import to_rfc3339

MOST_UNCOUNTED = 500
_COUNTERS = ("active", "succeeded", "failed")


def open_status(job: Job) -> JobStatus:
    """Return a copy of the status that may be changed."""
    status: JobStatus = {**(job.get("status") or {})}
    uncounted = status.get("uncountedTerminatedPods") or {}
    status["uncountedTerminatedPods"] = deep_copy(uncounted)
    status["conditions"] = list(status.get("conditions") or ())
    return status


def close_status(status: JobStatus) -> JobStatus:
    """Return the status to store: without zeros and empty lists, except for fields that Kubernetes always writes."""
    stored: JobStatus = {**status, "uncountedTerminatedPods": without_zeros(status["uncountedTerminatedPods"])}
    for name in _COUNTERS:
        if not stored.get(name):
            cast("Object", stored).pop(name, None)
    if not stored["conditions"]:
        del stored["conditions"]
    if not stored.get("completedIndexes"):
        stored.pop("completedIndexes", None)
    return stored


class Noted(NamedTuple):
    """The pods whose finalizer may be removed once the status is stored."""

    pods: list[JobPod]
    is_all: bool
    """Whether every ended pod is noted; the rest follows in the next reconcile."""
    policy_actions: Counter[str]
    """How many failed pods the pod failure policy decided on, by action."""


def note_ended_pods(view: JobView, status: JobStatus, verdict: Verdict | None, released: Collection[str]) -> Noted:
    """Note the pods that have ended. `released` are uids of pods that have lost the finalizer in this reconcile."""
    tracked = [pod for pod in view.pods if pod.is_tracked and pod.uid not in released]
    count_released(status, {pod.uid for pod in tracked})
    uncounted = status["uncountedTerminatedPods"]
    succeeded: list[str] = uncounted.setdefault("succeeded", [])
    failed: list[str] = uncounted.setdefault("failed", [])
    new_indexes: list[int] = []
    to_release: list[JobPod] = []
    actions: Counter[str] = Counter()
    is_all = True
    if view.is_indexed:
        tracked.sort(key=lambda pod: pod.index)
    for pod in tracked:
        if not _may_be_released(view, pod, verdict):
            continue
        to_release.append(pod)
        if pod.phase == "Succeeded" and pod.uid not in view.uncounted_failed:
            if view.is_indexed:
                if view.has_valid_index(pod) and pod.index not in view.known_succeeded_indexes:
                    new_indexes.append(pod.index)
            elif pod.uid not in view.uncounted_succeeded:
                succeeded.append(pod.uid)
        elif _counts_as_failed(view, pod, verdict):
            failed.append(pod.uid)
        if pod.phase == "Failed" and pod.uid not in view.uncounted_failed and (action := view.judge(pod).action):
            actions[action] += 1
        if len(new_indexes) + len(succeeded) + len(failed) >= MOST_UNCOUNTED:
            is_all = pod is tracked[-1]
            break  # The status stays small, and other Jobs are reconciled in between.
    if view.is_indexed:
        _write_indexes(view, status, new_indexes)
    return Noted(to_release, is_all, actions)


def _write_indexes(view: JobView, status: JobStatus, new: list[int]) -> None:
    completed = view.known_succeeded_indexes | Indexes.of(new)
    status["completedIndexes"] = str(completed)
    status["succeeded"] = len(completed)
    if view.failed_indexes is not None:
        status["failedIndexes"] = str(view.failed_indexes)


def _may_be_released(view: JobView, pod: JobPod, verdict: Verdict | None) -> bool:
    if "deletionTimestamp" in view.job["metadata"] or verdict is not None or pod.phase == "Succeeded":
        return True
    if not view.has_failed(pod):
        return False
    waiting = view.awaiting_replacement.get(pod.index)
    return waiting is None or waiting.uid != pod.uid


def _counts_as_failed(view: JobView, pod: JobPod, verdict: Verdict | None) -> bool:
    ends_with_job = verdict is not None and not verdict.is_success
    if not view.has_failed(pod) and not ends_with_job:
        return False
    if pod.uid in view.uncounted_failed or (view.is_indexed and not view.has_valid_index(pod)):
        return False
    return view.judge(pod).counts


def count_released(status: JobStatus, tracked: Collection[str]) -> None:
    """Move noted pods that have lost the finalizer from the list to the counters."""
    uncounted = status["uncountedTerminatedPods"]
    name: Literal["succeeded", "failed"]
    for name in ("succeeded", "failed"):
        uids = uncounted.get(name) or []
        left = [uid for uid in uids if uid in tracked]
        if len(left) != len(uids):
            status[name] = int(status.get(name, 0)) + len(uids) - len(left)
            uncounted[name] = left


# Conditions


def announce(status: JobStatus, verdict: Verdict, now: datetime) -> None:
    """Set the condition that the Job is about to end, before the first finalizer is removed."""
    if verdict.type != "Failed" and not _has_true(status, verdict.type):
        _set_condition(status, verdict.type, "True", verdict.reason, verdict.message, now)


def finish(status: JobStatus, verdict: Verdict, now: datetime) -> bool:
    """Set the condition that the Job has ended, once no pod is left to count or to stop."""
    uncounted = status["uncountedTerminatedPods"]
    if uncounted.get("succeeded") or uncounted.get("failed") or status.get("terminating"):
        return False
    type_ = "Complete" if verdict.is_success else "Failed"
    _set_condition(status, type_, "True", verdict.reason, verdict.message, now)
    if verdict.is_success:
        status["completionTime"] = to_rfc3339(now)
    return True


def set_suspended(status: JobStatus, *, is_suspended: bool, now: datetime) -> bool:
    """Update the Suspended condition and the start time; return whether they changed."""
    known = next((condition for condition in status["conditions"] if condition["type"] == "Suspended"), None)
    if is_suspended:
        wanted = ("True", "JobSuspended", "Job suspended")
    elif known is None:
        return False
    else:
        wanted = ("False", "JobResumed", "Job resumed")
    if known is not None and (known["status"], known.get("reason"), known.get("message")) == wanted:
        return False
    _set_condition(status, "Suspended", *wanted, now)
    if is_suspended:
        status.pop("startTime", None)
    else:
        status["startTime"] = to_rfc3339(now)  # Deadlines count from here.
    return True


def _has_true(status: JobStatus, type_: str) -> bool:
    return any(condition["type"] == type_ and condition["status"] == "True" for condition in status["conditions"])


def _set_condition(status: JobStatus, type_: str, value: str, reason: str, message: str, now: datetime) -> None:
    moment = to_rfc3339(now)
    made: JobCondition = {
        "type": type_,
        "status": value,
        "reason": reason,
        "message": message,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
    }
    conditions = status["conditions"]
    for at, known in enumerate(conditions):
        if known["type"] == type_:
            conditions[at] = made
            return
    conditions.append(made)
