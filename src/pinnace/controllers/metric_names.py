"""The metrics of single controllers under Kubernetes' names; those of all controllers are in `reconcile/metrics.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pinnace.model.clock import AlarmClock
from pinnace.reconcile.metrics import Metrics

JOB_SYNCS = "job_controller_job_syncs_total"
JOB_SYNC_SECONDS = "job_controller_job_sync_duration_seconds"
JOBS_FINISHED = "job_controller_jobs_finished_total"
CRON_JOB_SKEW = "cronjob_controller_job_creation_skew_duration_seconds"
TTL_DELETION_SECONDS = "ttl_after_finished_controller_job_deletion_duration_seconds"
TAINT_DELETIONS = "taint_eviction_controller_pod_deletions_total"
ENDPOINT_SLICE_SYNCS = "endpoint_slice_controller_syncs"
_HELP = {
    JOB_SYNCS: ("Syncs of Jobs, by completion mode, result and action.", ()),
    JOB_SYNC_SECONDS: ("The time that a sync of a Job takes.", tuple(0.004 * 2**n for n in range(15))),
    JOBS_FINISHED: ("Jobs that have finished, by completion mode, result and reason.", ()),
    CRON_JOB_SKEW: ("From the scheduled time of a CronJob to its Job.", tuple(2.0**n for n in range(10))),
    TTL_DELETION_SECONDS: (
        "From the end of a Job's lifetime to its deletion.",
        tuple(0.1 * 2**n for n in range(14)),
    ),
    TAINT_DELETIONS: ("Pods that were deleted because of a taint of their node.", ()),
    ENDPOINT_SLICE_SYNCS: ("Syncs of the EndpointSlices of a Service, by result.", ()),
}


class ControllerMetrics:
    """Counters and histograms that a controller fills in."""

    def __init__(self, metrics: Metrics, *names: str) -> None:
        """`names` are those that the controller uses; counters without labels begin at zero."""
        self._metrics = metrics
        for name in names:
            help, bounds = _HELP[name]
            metrics.describe(name, help, bounds)
        if TAINT_DELETIONS in names:
            metrics.count(TAINT_DELETIONS, (), by=0)

    def count(self, name: str, **labels: str) -> None:
        self._metrics.count(name, tuple(labels.items()))

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        self._metrics.observe(name, tuple(labels.items()), seconds)

    @contextmanager
    def syncing(self, counter: str, seconds: str, clock: AlarmClock, **labels: str) -> Iterator[None]:
        """Count a sync with its result, and the time that it takes if `seconds` names a histogram."""
        began, result = clock.monotonic(), "error"
        try:
            yield
            result = "success"
        finally:
            self.count(counter, **labels, result=result)
            if seconds:
                self.observe(seconds, clock.monotonic() - began, **labels, result=result)
