"""Prometheus' text format: counters, gauges and histograms as lines (docs/decisions/0008-metrics.md)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


class Histogram:
    """Observed values, counted by bucket. `counts` has one bucket more than `bounds`: the last is unbounded."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        """Count a value, or as many equal ones as `weight` says."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight


class HistogramFamily:
    """One histogram for each set of labels, under one name."""

    __slots__ = ("_bounds", "_histograms", "help", "name")

    def __init__(self, name: str, help: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self.help = help
        self._bounds = bounds
        self._histograms: dict[Labels, Histogram] = {}

    def of(self, labels: Labels) -> Histogram:
        histogram = self._histograms.get(labels)
        if histogram is None:
            histogram = self._histograms[labels] = Histogram(self._bounds)
        return histogram

    def items(self) -> Iterable[tuple[Labels, Histogram]]:
        """Return the histograms that have observed a value, by labels."""
        return sorted((pair for pair in self._histograms.items() if any(pair[1].counts)), key=lambda pair: pair[0])


def render_samples(name: str, help: str, kind: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a counter or gauge (`kind`), in the order of `samples`."""
    yield from _head(name, help, kind)
    for labels, value in samples:
        inner = _format_labels(labels)
        yield f"{name}{{{inner}}} {format_number(value)}" if inner else f"{name} {format_number(value)}"


def render_histograms(name: str, help: str, histograms: Iterable[tuple[Labels, Histogram]]) -> Iterator[str]:
    """Yield the lines of a histogram, in the order of `histograms`."""
    yield from _head(name, help, "histogram")
    for labels, histogram in histograms:
        inner = _format_labels(labels)
        start = f'{name}_bucket{{{inner},le="' if inner else f'{name}_bucket{{le="'
        total = 0
        for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
            total += count
            yield f'{start}{format_number(bound)}"}} {total}'
        total += histogram.counts[-1]
        yield f'{start}+Inf"}} {total}'
        braced = f"{{{inner}}}" if inner else ""
        yield f"{name}_sum{braced} {histogram.sum}"
        yield f"{name}_count{braced} {total}"


def format_number(value: float) -> str:
    """Format a value as Go does: integers without a decimal point."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def _head(name: str, help: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {describe(name, help)}"
    yield f"# TYPE {name} {kind}"


def _format_labels(labels: Labels) -> str:
    return ",".join([f'{name}="{_escape(value)}"' for name, value in labels])


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# The metrics that Kubernetes guarantees: names with the stability level STABLE or BETA of Kubernetes 1.36, and why some
# are missing here. `docs/metrics.md` shows these tables.

_STABLE = """
apiserver_admission_controller_admission_duration_seconds apiserver_admission_step_admission_duration_seconds
apiserver_admission_webhook_admission_duration_seconds apiserver_current_inflight_requests
apiserver_longrunning_requests apiserver_request_duration_seconds apiserver_request_total
apiserver_requested_deprecated_apis apiserver_response_sizes apiserver_storage_objects apiserver_storage_size_bytes
container_cpu_usage_seconds_total container_memory_working_set_bytes container_start_time_seconds
cronjob_controller_job_creation_skew_duration_seconds job_controller_job_pods_finished_total
job_controller_job_sync_duration_seconds job_controller_job_syncs_total job_controller_jobs_finished_total
kube_pod_resource_limit kube_pod_resource_request kubernetes_healthcheck kubernetes_healthchecks_total
node_collector_evictions_total node_cpu_usage_seconds_total node_memory_working_set_bytes
pod_cpu_usage_seconds_total pod_memory_working_set_bytes resource_scrape_error
scheduler_framework_extension_point_duration_seconds scheduler_pending_pods scheduler_pod_scheduling_attempts
scheduler_preemption_attempts_total scheduler_preemption_victims scheduler_queue_incoming_pods_total
scheduler_schedule_attempts_total scheduler_scheduling_attempt_duration_seconds
"""
_BETA = """
apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds
apiserver_authentication_config_controller_automatic_reloads_total
apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds
apiserver_authorization_config_controller_automatic_reloads_total
apiserver_flowcontrol_current_executing_requests apiserver_flowcontrol_current_executing_seats
apiserver_flowcontrol_current_inqueue_requests apiserver_flowcontrol_dispatched_requests_total
apiserver_flowcontrol_nominal_limit_seats apiserver_flowcontrol_rejected_requests_total
apiserver_flowcontrol_request_wait_duration_seconds apiserver_storage_events_received_total
apiserver_validating_admission_policy_check_duration_seconds apiserver_validating_admission_policy_check_total
endpoint_slice_controller_desired_endpoint_slices endpoint_slice_controller_endpoints_added_per_sync
endpoint_slice_controller_endpoints_desired endpoint_slice_controller_endpoints_removed_per_sync
endpoint_slice_controller_num_endpoint_slices endpoint_slice_controller_services_count_by_traffic_distribution
horizontal_pod_autoscaler_controller_metric_computation_duration_seconds
horizontal_pod_autoscaler_controller_metric_computation_total
horizontal_pod_autoscaler_controller_reconciliation_duration_seconds
horizontal_pod_autoscaler_controller_reconciliations_total
job_controller_pod_failures_handled_by_failure_policy_total job_controller_terminated_pods_tracking_finalizer_total
kubernetes_build_info kubernetes_feature_enabled prober_probe_total running_managed_controllers
scheduler_permit_wait_duration_seconds scheduler_pod_scheduling_sli_duration_seconds scheduler_unschedulable_pods
workqueue_adds_total workqueue_depth workqueue_longest_running_processor_seconds workqueue_queue_duration_seconds
workqueue_retries_total workqueue_unfinished_work_seconds workqueue_work_duration_seconds
"""
LEVELS = dict.fromkeys(_STABLE.split(), "STABLE") | dict.fromkeys(_BETA.split(), "BETA")
"""The provided metrics, with their levels."""

_REGISTRATION = "metrics are not registered: one that is not counted yet is not on the page, and none is hidden"
_IMAGE_VOLUMES = "image volumes are mounted with the container and are not counted apart"
MISSING = {
    "apiserver_cel_compilation_duration_seconds": "rules of custom resources are compiled together with their schema",
    "apiserver_cel_evaluation_duration_seconds": "rules of custom resources run inside the validator of their schema",
    "apiserver_validation_declarative_validation_mismatch_total": "there is one implementation of each validation",
    "apiserver_validation_declarative_validation_panic_total": "there is one implementation of each validation",
    "apiserver_watch_list_duration_seconds": "the time of the initial events of a watch is not measured apart",
    "disabled_metrics_total": _REGISTRATION,
    "hidden_metrics_total": _REGISTRATION,
    "kubelet_image_volume_mounted_errors_total": _IMAGE_VOLUMES,
    "kubelet_image_volume_mounted_succeed_total": _IMAGE_VOLUMES,
    "kubelet_image_volume_requested_total": _IMAGE_VOLUMES,
    "registered_metrics_total": _REGISTRATION,
    "scheduler_plugin_evaluation_total": "a plug-in filters all nodes at once, for all pods of a template",
    "scheduler_goroutines": "the scheduler has no goroutines",
}
"""The metrics of Kubernetes 1.36 that are STABLE or BETA and not provided, with the reason."""


def describe(name: str, help: str) -> str:
    """Return the help text of a metric, with its level as Kubernetes writes it."""
    level = LEVELS.get(name)
    return f"[{level}] {help}" if level is not None and not help.startswith("[") else help


class HealthResults:
    """The last result of each check on each page, and how often it passed and failed."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], bool] = {}
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def observe(self, name: str, page: str, *, is_passed: bool) -> None:
        self._last[name, page] = is_passed
        self._counts[name, "success" if is_passed else "error", page] += 1

    def text(self) -> str:
        """The metrics in Prometheus' text format, with the names that Kubernetes gives them."""
        last = (
            ((("name", name), ("type", page)), float(passed)) for (name, page), passed in sorted(self._last.items())
        )
        counts = (
            ((("name", name), ("status", status), ("type", page)), float(count))
            for (name, status, page), count in sorted(self._counts.items())
        )
        lines = [
            *render_samples("kubernetes_healthcheck", "[STABLE] Whether a health check passed, 1 or 0.", "gauge", last),
            *render_samples(
                "kubernetes_healthchecks_total", "[STABLE] The results of all health checks.", "counter", counts
            ),
        ]
        return "\n".join([*lines, ""])
