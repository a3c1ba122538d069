"""The metrics that Kubernetes guarantees: names with the stability level STABLE or BETA, and why some are missing here.

Levels are those of Kubernetes 1.36. `docs/metrics.md` shows these tables.
"""

from __future__ import annotations

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
kubernetes_build_info prober_probe_total running_managed_controllers
scheduler_permit_wait_duration_seconds scheduler_pod_scheduling_sli_duration_seconds scheduler_unschedulable_pods
workqueue_adds_total workqueue_depth workqueue_longest_running_processor_seconds workqueue_queue_duration_seconds
workqueue_retries_total workqueue_unfinished_work_seconds workqueue_work_duration_seconds
"""
LEVELS = dict.fromkeys(_STABLE.split(), "STABLE") | dict.fromkeys(_BETA.split(), "BETA")
"""The provided metrics, with their levels."""

_RELOADS = "reloads of the configuration are not counted"
_REGISTRATION = "metrics are not registered: one that is not counted yet is not on the page, and none is hidden"
_IMAGE_VOLUMES = "image volumes are mounted with the container and are not counted apart"
MISSING = {
    "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds": _RELOADS,
    "apiserver_authentication_config_controller_automatic_reloads_total": _RELOADS,
    "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds": _RELOADS,
    "apiserver_authorization_config_controller_automatic_reloads_total": _RELOADS,
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
    "kubernetes_feature_enabled": "there are no feature gates",
    "registered_metrics_total": _REGISTRATION,
    "scheduler_plugin_evaluation_total": "a plug-in filters all nodes at once, for all pods of a template",
    "scheduler_goroutines": "the scheduler has no goroutines",
}
"""The metrics of Kubernetes 1.36 that are STABLE or BETA and not provided, with the reason."""


def describe(name: str, help: str) -> str:
    """Return the help text of a metric, with its level as Kubernetes writes it."""
    level = LEVELS.get(name)
    return f"[{level}] {help}" if level is not None and not help.startswith("[") else help
