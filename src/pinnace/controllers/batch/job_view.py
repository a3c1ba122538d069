"""One Job with its pods at one moment: the counts, and whether the Job has ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from pinnace.controllers.batch.indexes import Indexes
from pinnace.controllers.batch.job_backoff import PodBackoff
from pinnace.controllers.batch.job_pods import NO_INDEX, JobPod
from pinnace.controllers.batch.job_policies import COUNTED, Judgment, judge, met_success_rule
from pinnace.model.typed_objects import Job, JobSpec
from pinnace.reconcile.conditions import condition

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class Verdict(NamedTuple):
    """Why a Job ends. `type` is that of the condition that is set first."""

    type: str
    reason: str
    message: str

    @property
    def is_success(self) -> bool:
        return self.type == "SuccessCriteriaMet"


COMPLETED = Verdict("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")


class JobView:
    """Pure: nothing here writes."""

    def __init__(self, job: Job, pods: Sequence[JobPod], backoff: PodBackoff, now: datetime) -> None:
        self.job = job
        self.spec: JobSpec = job["spec"]
        self.pods = pods
        self.now = now
        status = job.get("status") or {}
        self._status = status
        self.completions: int | None = self.spec.get("completions")
        self.parallelism: int = self.spec.get("parallelism", 1)
        self.is_indexed = self.spec.get("completionMode") == "Indexed"
        self.is_suspended = bool(self.spec.get("suspend"))
        self.replaces_only_ended = self.spec.get("podReplacementPolicy") == "Failed"
        self.has_limit_per_index = self.is_indexed and "backoffLimitPerIndex" in self.spec
        uncounted = status.get("uncountedTerminatedPods") or {}
        self.uncounted_succeeded = frozenset(uncounted.get("succeeded") or ())
        self.uncounted_failed = frozenset(uncounted.get("failed") or ())
        self.active = [pod for pod in pods if pod.is_active]
        self.terminating = sum(pod.is_terminating for pod in pods)
        self._new_succeeded = [
            pod
            for pod in pods
            if pod.phase == "Succeeded" and pod.uid not in self.uncounted_succeeded and self._is_uncounted(pod)
        ]
        self._new_failed = [
            pod
            for pod in pods
            if self.has_failed(pod) and pod.uid not in self.uncounted_failed and self._is_uncounted(pod)
        ]
        self.backoff = backoff.after(self._new_succeeded, self._new_failed)

    def _is_uncounted(self, pod: JobPod) -> bool:
        return pod.is_tracked and (not self.is_indexed or self.has_valid_index(pod))

    def has_valid_index(self, pod: JobPod) -> bool:
        return pod.index != NO_INDEX and pod.index < (self.completions or 0)

    def has_failed(self, pod: JobPod) -> bool:
        return pod.has_failed(only_when_ended=self.replaces_only_ended)

    def judge(self, pod: JobPod) -> Judgment:
        policy = self.spec.get("podFailurePolicy")
        return judge(policy, pod) if policy else COUNTED

    # Counts

    @cached_property
    def succeeded(self) -> int:
        """Pods, or indexes of an Indexed Job, with those that are not in the status yet."""
        if self.is_indexed:
            return len(self.succeeded_indexes)
        return int(self._status.get("succeeded", 0)) + len(self._new_succeeded) + len(self.uncounted_succeeded)

    @cached_property
    def failed(self) -> int:
        counted = sum(self.judge(pod).counts for pod in self._new_failed)
        return int(self._status.get("failed", 0)) + counted + len(self.uncounted_failed)

    @cached_property
    def known_succeeded_indexes(self) -> Indexes:
        """Those in the status."""
        return Indexes.parse(self._status.get("completedIndexes") or "", self.completions or 0)

    @cached_property
    def succeeded_indexes(self) -> Indexes:
        new = (
            pod.index for pod in self.pods if pod.phase == "Succeeded" and pod.is_tracked and self.has_valid_index(pod)
        )
        return self.known_succeeded_indexes | Indexes.of(new)

    @cached_property
    def failed_indexes(self) -> Indexes | None:
        """The indexes that are not tried again; None without a limit per index."""
        if not self.has_limit_per_index:
            return None
        known = Indexes.parse(self._status.get("failedIndexes") or "", self.completions or 0)
        new = (
            pod.index
            for pod in self.pods
            if pod.is_tracked and self.has_valid_index(pod) and self._has_index_failed(pod)
        )
        return known | Indexes.of(new)

    def _has_index_failed(self, pod: JobPod) -> bool:
        if not self.has_failed(pod):
            return False
        judgment = self.judge(pod)
        if judgment.action == "FailIndex":
            return True
        return judgment.counts and pod.index_failures >= int(self.spec["backoffLimitPerIndex"])

    @cached_property
    def awaiting_replacement(self) -> dict[int, JobPod]:
        """With a limit per index: the last failed pod of each index, kept until its successor has its counters."""
        if not self.has_limit_per_index:
            return {}
        active = {pod.index for pod in self.active}
        last: dict[int, JobPod] = {}
        for pod in self.pods:
            if not (self._is_uncounted(pod) and self.has_failed(pod)) or self._is_index_settled(pod.index, active):
                continue
            known = last.get(pod.index)
            if known is None or (known.all_index_failures, known.finished) <= (pod.all_index_failures, pod.finished):
                last[pod.index] = pod
        return last

    def _is_index_settled(self, index: int, active: set[int]) -> bool:
        failed = self.failed_indexes
        return index in active or index in self.succeeded_indexes or (failed is not None and index in failed)

    # The end

    async def verdict(self, started: str) -> Verdict | None:
        """Return why the Job ends now, completions aside; None if it continues."""
        known = self._standing_verdict() or self._failure(started) or self._index_failure()
        return known or await self._success_by_policy()

    def _standing_verdict(self) -> Verdict | None:
        """Return the verdict of an earlier reconcile, or of a pod for which the policy fails the Job."""
        met = condition(self.job, "SuccessCriteriaMet")
        if met is not None and met["status"] == "True":
            return Verdict("SuccessCriteriaMet", met.get("reason", ""), met.get("message", ""))
        target = condition(self.job, "FailureTarget")
        if target is not None and target["status"] == "True":
            return Verdict("Failed", target.get("reason", ""), target.get("message", ""))
        if self.spec.get("podFailurePolicy"):
            messages = (self.judge(pod).message for pod in self.pods if self.has_failed(pod))
            message = next(filter(None, messages), "")
            if message:
                return Verdict("FailureTarget", "PodFailurePolicy", message)
        return None

    def _failure(self, started: str) -> Verdict | None:
        limit = int(self.spec.get("backoffLimit", 6))
        if self.failed > limit or self._has_restarted_too_often(limit):
            return Verdict("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        left = self.seconds_to_deadline(started)
        if left is not None and left <= 0:
            return Verdict("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")
        return None

    def _has_restarted_too_often(self, limit: int) -> bool:
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(pod.restarts for pod in self.pods if pod.phase in ("Running", "Pending"))
        return restarts > 0 if limit == 0 else restarts >= limit

    def seconds_to_deadline(self, started: str) -> float | None:
        """Return the seconds until the deadline; None without one, and while the Job is suspended."""
        deadline = self.spec.get("activeDeadlineSeconds")
        if deadline is None or not started or self.is_suspended:
            return None
        return float(deadline) - (self.now - datetime.fromisoformat(started)).total_seconds()

    def _index_failure(self) -> Verdict | None:
        failed = self.failed_indexes
        if failed is None:
            return None
        most = self.spec.get("maxFailedIndexes")
        if most is not None and len(failed) > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return Verdict("FailureTarget", "MaxFailedIndexesExceeded", message)
        if len(failed) and len(failed) + len(self.succeeded_indexes) >= (self.completions or 0):
            return Verdict("FailureTarget", "FailedIndexes", "Job has failed indexes")
        return None

    async def _success_by_policy(self) -> Verdict | None:
        if not self.is_indexed:
            return None
        message = await met_success_rule(self.spec.get("successPolicy"), self.completions or 0, self.succeeded_indexes)
        return Verdict("SuccessCriteriaMet", "SuccessPolicy", message) if message else None

    def is_complete(self, active: int) -> bool:
        if active:
            return False
        return self.succeeded > 0 if self.completions is None else self.succeeded >= self.completions

    # The pods that are wanted

    @property
    def wanted_active(self) -> int:
        if self.completions is None:
            return len(self.active) if self.succeeded > 0 else self.parallelism
        return max(0, min(self.completions - self.succeeded, self.parallelism))

    def surplus(self) -> list[JobPod]:
        """Return the active pods to delete: those without a valid index, duplicates, then the least advanced ones."""
        if self.is_suspended:
            return list(self.active)
        surplus, left = self._without_duplicates() if self.is_indexed else ([], list(self.active))
        excess = len(self.active) - self.wanted_active - len(surplus)
        return [*surplus, *least_advanced_first(left)[:excess]] if excess > 0 else surplus

    def _without_duplicates(self) -> tuple[list[JobPod], list[JobPod]]:
        by_index: dict[int, list[JobPod]] = {}
        surplus: list[JobPod] = []
        for pod in self.active:
            if self.has_valid_index(pod):
                by_index.setdefault(pod.index, []).append(pod)
            else:
                surplus.append(pod)
        left = []
        for pods in by_index.values():
            *others, best = least_advanced_first(pods)
            surplus.extend(others)
            left.append(best)
        return surplus, left

    @property
    def missing(self) -> int:
        """Return how many pods to create, back-off aside."""
        terminating = self.terminating if self.replaces_only_ended else 0
        return max(0, self.wanted_active - terminating - len(self.active))

    def pending_indexes(self, count: int) -> list[int]:
        """Return the first indexes without a pod, without success and without final failure."""
        taken = self.succeeded_indexes | Indexes.of(pod.index for pod in self.active if pod.index != NO_INDEX)
        if self.replaces_only_ended:
            taken |= Indexes.of(pod.index for pod in self.pods if pod.is_terminating and pod.index != NO_INDEX)
        if self.failed_indexes is not None:
            taken |= self.failed_indexes
        return list(islice(taken.missing(self.completions or 0), count))


def least_advanced_first(pods: Iterable[JobPod]) -> list[JobPod]:
    """Sort pods: unscheduled before scheduled, pending before running, unready before ready, young before old."""
    ordered = sorted(pods, key=lambda pod: pod.created, reverse=True)
    ordered.sort(key=lambda pod: pod.restarts, reverse=True)
    ordered.sort(key=lambda pod: pod.ready_since, reverse=True)
    ordered.sort(key=lambda pod: (bool(pod.node), _PHASES.get(pod.phase, 0), pod.is_ready))
    return ordered
