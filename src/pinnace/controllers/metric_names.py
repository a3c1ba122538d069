"""The metrics of single controllers under Kubernetes' names; those of all controllers are in `reconcile/metrics.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pinnace.process.clock import AlarmClock
from pinnace.reconcile.metrics import Gauge, Metrics

JOB_SYNCS = "job_controller_job_syncs_total"
JOB_SYNC_SECONDS = "job_controller_job_sync_duration_seconds"
JOBS_FINISHED = "job_controller_jobs_finished_total"
JOB_PODS_FINISHED = "job_controller_job_pods_finished_total"
JOB_FAILURE_POLICIES = "job_controller_pod_failures_handled_by_failure_policy_total"
JOB_TRACKED_PODS = "job_controller_terminated_pods_tracking_finalizer_total"
JOB_METRICS = (
    JOB_SYNCS,
    JOB_SYNC_SECONDS,
    JOBS_FINISHED,
    JOB_PODS_FINISHED,
    JOB_FAILURE_POLICIES,
    JOB_TRACKED_PODS,
)
CRON_JOB_SKEW = "cronjob_controller_job_creation_skew_duration_seconds"
TTL_DELETION_SECONDS = "ttl_after_finished_controller_job_deletion_duration_seconds"
TAINT_DELETIONS = "taint_eviction_controller_pod_deletions_total"
TAINT_DELETION_SECONDS = "taint_eviction_controller_pod_deletion_duration_seconds"
DEVICE_TAINT_DELETIONS = "device_taint_eviction_controller_pod_deletions_total"
DEVICE_TAINT_DELETION_SECONDS = "device_taint_eviction_controller_pod_deletion_duration_seconds"
ENDPOINT_SLICE_SYNCS = "endpoint_slice_controller_syncs"
ENDPOINT_SLICE_CHANGES = "endpoint_slice_controller_changes"
ENDPOINTS_ADDED = "endpoint_slice_controller_endpoints_added_per_sync"
ENDPOINTS_REMOVED = "endpoint_slice_controller_endpoints_removed_per_sync"
ENDPOINTS_DESIRED = "endpoint_slice_controller_endpoints_desired"
ENDPOINT_SLICES = "endpoint_slice_controller_num_endpoint_slices"
ENDPOINT_SLICES_DESIRED = "endpoint_slice_controller_desired_endpoint_slices"
TRAFFIC_DISTRIBUTIONS = "endpoint_slice_controller_services_count_by_traffic_distribution"
NODE_EVICTIONS = "node_collector_evictions_total"
ZONE_SIZE = "node_collector_zone_size"
ZONE_HEALTH = "node_collector_zone_health"
ZONE_UNHEALTHY_NODES = "node_collector_unhealthy_nodes_in_zone"
NODE_HEALTH_SECONDS = "node_collector_update_node_health_duration_seconds"
ROOT_CA_SYNCS = "root_ca_cert_publisher_sync_total"
ROOT_CA_SYNC_SECONDS = "root_ca_cert_publisher_sync_duration_seconds"
TRUST_BUNDLE_SYNCS = "clustertrustbundle_publisher_sync_total"
TRUST_BUNDLE_SYNC_SECONDS = "clustertrustbundle_publisher_sync_duration_seconds"
GARBAGE_SYNC_ERRORS = "garbagecollector_controller_resources_sync_error_total"
POD_GARBAGE_DELETIONS = "pod_gc_collector_force_delete_pods_total"
POD_GARBAGE_ERRORS = "pod_gc_collector_force_delete_pod_errors_total"
EPHEMERAL_CLAIMS = "ephemeral_volume_controller_create_total"
EPHEMERAL_CLAIM_FAILURES = "ephemeral_volume_controller_create_failures_total"
BOUND_VOLUMES = "pv_collector_bound_pv_count"
UNBOUND_VOLUMES = "pv_collector_unbound_pv_count"
TOTAL_VOLUMES = "pv_collector_total_pv_count"
BOUND_CLAIMS = "pv_collector_bound_pvc_count"
UNBOUND_CLAIMS = "pv_collector_unbound_pvc_count"

_DELETION_BOUNDS = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
_ENDPOINT_BOUNDS = tuple(2.0**n for n in range(1, 16))


def _powers(first: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(first * factor**n for n in range(count))


_HELP: dict[str, tuple[str, tuple[float, ...]]] = {
    JOB_SYNCS: ("Syncs of Jobs, by completion mode, result and action.", ()),
    JOB_SYNC_SECONDS: ("The time that a sync of a Job takes.", _powers(0.004, 2, 15)),
    JOBS_FINISHED: ("Jobs that have finished, by completion mode, result and reason.", ()),
    JOB_PODS_FINISHED: ("Pods of Jobs that have finished and are counted, by completion mode and result.", ()),
    JOB_FAILURE_POLICIES: ("Failed pods that a pod failure policy decided on, by action.", ()),
    JOB_TRACKED_PODS: ("Finished pods that have (add) or lose (delete) the finalizer of their Job.", ()),
    CRON_JOB_SKEW: ("From the scheduled time of a CronJob to its Job.", _powers(1, 2, 10)),
    TTL_DELETION_SECONDS: ("From the end of a Job's lifetime to its deletion.", _powers(0.1, 2, 14)),
    TAINT_DELETIONS: ("Pods that were deleted because of a taint of their node.", ()),
    TAINT_DELETION_SECONDS: ("From the end of a pod's toleration to its deletion.", _DELETION_BOUNDS),
    DEVICE_TAINT_DELETIONS: ("Pods that were deleted because of a taint of their device.", ()),
    DEVICE_TAINT_DELETION_SECONDS: ("From the end of a toleration of a device to the deletion.", _DELETION_BOUNDS),
    ENDPOINT_SLICE_SYNCS: ("Syncs of the EndpointSlices of a Service, by result.", ()),
    ENDPOINT_SLICE_CHANGES: ("EndpointSlices that were written, by operation.", ()),
    ENDPOINTS_ADDED: ("Endpoints that one sync adds.", _ENDPOINT_BOUNDS),
    ENDPOINTS_REMOVED: ("Endpoints that one sync removes.", _ENDPOINT_BOUNDS),
    NODE_EVICTIONS: ("Nodes that got the taint that evicts their pods, by zone.", ()),
    NODE_HEALTH_SECONDS: ("The time that a check of one node takes.", _powers(0.001, 4, 8)),
    ROOT_CA_SYNCS: ("Syncs of namespaces, by code.", ()),
    ROOT_CA_SYNC_SECONDS: ("The time that a sync of a namespace takes, by code.", _powers(0.001, 2, 15)),
    TRUST_BUNDLE_SYNCS: ("Syncs of the trust bundle of the API server, by code.", ()),
    TRUST_BUNDLE_SYNC_SECONDS: ("The time that a sync of the trust bundle takes, by code.", _powers(0.001, 2, 15)),
    GARBAGE_SYNC_ERRORS: ("Failures to follow the kinds that the server serves.", ()),
    POD_GARBAGE_DELETIONS: ("Pods that were deleted by force, by namespace and reason.", ()),
    POD_GARBAGE_ERRORS: ("Failures to delete pods by force, by namespace and reason.", ()),
    EPHEMERAL_CLAIMS: ("Claims for ephemeral volumes that were requested.", ()),
    EPHEMERAL_CLAIM_FAILURES: ("Claims for ephemeral volumes that could not be created.", ()),
}
_FROM_ZERO = frozenset(
    (
        TAINT_DELETIONS,
        DEVICE_TAINT_DELETIONS,
        GARBAGE_SYNC_ERRORS,
        EPHEMERAL_CLAIMS,
        EPHEMERAL_CLAIM_FAILURES,
        CRON_JOB_SKEW,
        TTL_DELETION_SECONDS,
        TAINT_DELETION_SECONDS,
        DEVICE_TAINT_DELETION_SECONDS,
        ENDPOINTS_ADDED,
        ENDPOINTS_REMOVED,
        NODE_HEALTH_SECONDS,
    )
)
"""Counters and histograms without labels: they begin at zero."""


class ControllerMetrics:
    """Counters and histograms that a controller fills in."""

    def __init__(self, metrics: Metrics, *names: str) -> None:
        """`names` are those that the controller uses; those without labels begin at zero."""
        self._metrics = metrics
        for name in names:
            help, bounds = _HELP[name]
            metrics.describe(name, help, bounds)
            if name in _FROM_ZERO and bounds:
                metrics.histogram(name, ())
            elif name in _FROM_ZERO:
                metrics.count(name, (), by=0)

    def count(self, name: str, **labels: str) -> None:
        self._metrics.count(name, tuple(labels.items()))

    def add(self, name: str, by: float, **labels: str) -> None:
        """Increase a counter by a number; 0 creates it."""
        self._metrics.count(name, tuple(labels.items()), by=by)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._metrics.observe(name, tuple(labels.items()), value)

    def gauge(self, name: str, help: str, read: Gauge) -> None:
        self._metrics.gauge(name, help, read)

    @contextmanager
    def syncing(self, counter: str, seconds: str, clock: AlarmClock, labels: Mapping[str, str]) -> Iterator[None]:
        """Count a sync with its result, and the time that it takes if `seconds` names a histogram.

        The labels are those at the end of the sync.
        """
        began, result = clock.monotonic(), "error"
        try:
            yield
            result = "success"
        finally:
            self.count(counter, **labels, result=result)
            if seconds:
                self.observe(seconds, clock.monotonic() - began, **labels, result=result)
