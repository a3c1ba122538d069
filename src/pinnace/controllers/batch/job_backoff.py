"""Computes how long a Job waits before it replaces a failed pod: 10 s, doubled with each failure, at most 10 min."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pinnace.controllers.batch.job_pods import JobPod

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class PodBackoff:
    """The failures of a Job's pods since the last success."""

    failures: int = 0
    last_failure: str = ""

    def after(self, succeeded: Iterable[JobPod], failed: Iterable[JobPod]) -> PodBackoff:
        """Return the record with the pods that have ended since."""
        failures = sorted(pod.finished for pod in failed)
        last_success = max((pod.finished for pod in succeeded), default=None)
        if last_success is None:
            return PodBackoff(self.failures + len(failures), failures[-1]) if failures else self
        later = [finished for finished in failures if finished > last_success]
        return PodBackoff(len(later), later[-1]) if later else PodBackoff()

    def remaining(self, now: datetime) -> float:
        """Return the seconds until a replacement may be created."""
        if not self.failures or not self.last_failure:
            return 0.0
        whole = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self.failures - 1, 10))
        elapsed = (now - datetime.fromisoformat(self.last_failure)).total_seconds()
        if elapsed < -whole:
            return 0.0  # A clock has jumped: the time of the failure is meaningless.
        return max(0.0, whole - elapsed)


def remaining_for_index(last_failed: JobPod | None, now: datetime) -> float:
    """Return the seconds until an index may be tried again, by the last pod that failed in it."""
    if last_failed is None:
        return 0.0
    return PodBackoff(last_failed.all_index_failures + 1, last_failed.finished).remaining(now)
