"""The findings of the hostile review of this server, and the tests that reproduce each of them.

A test is named by its file and function, with the id of its case where only one case is meant.
`test_findings.py` checks that all of them exist.
"""

from __future__ import annotations

_LINEAR = "tests/hostile/test_work_is_linear.py::test_the_time_grows_with_the_input"
_NO_STALL = "tests/hostile/test_no_stalls.py::test_a_large_request_leaves_the_loop_to_others"
_BESIDE = "tests/hostile/test_attacks.py::test_a_client_is_served_beside_eight_hostile_ones"
_LOST = "tests/store/sqlite/test_lost_writes.py"
_HEALTH = "tests/cluster/health/test_health.py"
_WEBHOOKS = "tests/admission/webhooks/test_webhook_errors.py"
_CERTIFICATES = "tests/admission/webhooks/test_webhook_certificates.py"
_CONVERSION = "tests/extensions/custom/test_conversion_errors.py"
_OPENAPI = "tests/server/discovery/test_openapi.py"
_REQUESTS = "tests/server/request/test_hostile_requests.py"
_QUOTA = "tests/admission/plugins/test_resource_quota.py"
_MALFORMED = "tests/hostile/test_malformed_answers.py"

FINDINGS: dict[str, list[str]] = {
    "1 quantity with many zeros": [
        "tests/model/test_quantity.py::test_time_is_linear_in_the_digits",
        f"{_LINEAR}[quantity digits]",
        f"{_LINEAR}[quantity of ones]",
        f"{_NO_STALL}[quantity digits]",
    ],
    "1 amounts of more than 28 digits": [
        f"{_REQUESTS}::test_an_amount_beyond_reason_is_stored_or_refused",
        "tests/model/test_quantity.py::test_arithmetic_beyond_reason_is_no_error",
    ],
    "2 unknown fields": [
        f"{_LINEAR}[unknown fields]",
        f"{_LINEAR}[unknown fields of a review]",
        f"{_NO_STALL}[unknown fields of a review]",
    ],
    "3 creating without the verb create": [
        "tests/server/test_access.py::test_a_write_that_would_create_needs_the_verb_create",
        "tests/server/test_ways_to_create.py::test_a_way_to_create_needs_the_verbs_that_kubernetes_asks_for",
        "tests/auth/authorization/test_nodes.py::test_a_node_reaches_what_is_its_own",
    ],
    "4 20,000 owner references": [
        f"{_LINEAR}[owners]",
        f"{_NO_STALL}[owners]",
        "tests/controllers/garbage/test_many_owners.py::test_an_object_without_living_owners_goes_after_a_turn_for_each_part",
    ],
    "5 odd answers of an aggregated API server end the controllers": [
        "tests/hostile/test_informers_survive.py::test_an_informer_goes_on",
        "tests/hostile/test_odd_aggregated_server.py::test_the_controllers_go_on_and_a_deleted_namespace_goes",
        f"{_MALFORMED}::test_malformed_answers_of_an_aggregated_server_are_errors",
        "tests/cluster/background/test_controllers.py::test_an_informer_that_fails_is_restarted_and_the_other_controllers_go_on",
        "tests/cluster/health/test_supervisor.py::test_a_part_that_fails_is_logged_counted_and_restarted",
        f"{_HEALTH}::test_a_failed_part_fails_readyz_at_once_and_livez_when_it_stays_down",
        "tests/controllers/garbage/test_namespaces.py::test_a_refusal_is_reported_and_tried_again",
    ],
    "5 the scheduler does not know a pod whose request exceeds 64 bits": [
        "tests/scheduler/test_bad_input.py::test_a_request_beyond_64_bits_fits_nowhere_and_the_pod_says_so",
        "tests/scheduler/test_bad_input.py::test_pods_on_a_node_with_vast_requests_leave_no_room",
    ],
    "5 thousands of scheduling terms hold the loop, and their labels stay in memory": [
        "tests/scheduler/test_bad_input.py::"
        "test_a_pod_with_more_terms_than_a_decision_has_time_for_is_refused_and_says_so",
        "tests/scheduler/test_bad_input.py::test_labels_that_no_node_has_are_not_kept",
    ],
    "5 terms of a DaemonSet hold the loop, or keep other sets from hearing of nodes": [
        "tests/controllers/workloads/test_daemon_sets.py::"
        "test_a_set_with_odd_or_many_terms_keeps_no_other_from_its_nodes",
        "tests/controllers/workloads/test_daemon_sets.py::test_sorting_nodes_by_many_terms_leaves_the_loop_to_others",
    ],
    "5 seconds beyond the calendar end a reconcile or a request": [
        "tests/controllers/batch/test_cron_jobs.py::test_a_deadline_beyond_the_calendar_is_none",
        "tests/kinds/batch/test_cron_schedule.py::test_a_duration_that_go_cannot_hold_is_refused",
        "tests/server/write/test_deletion.py::test_the_grace_period_is_the_requests_or_the_pods[beyond the calendar]",
    ],
    "5 rules of Jobs with 64 KiB of indexes each hold the loop": [
        "tests/controllers/batch/test_jobs.py::test_long_rules_of_a_success_policy_leave_the_loop_to_others",
    ],
    "5 large objects cut off an informer, which made the caches miss changes and writes go round for ever": [
        "tests/server/read/test_watch_storms.py::"
        "test_a_watch_within_the_process_that_is_cut_off_costs_no_other_a_change",
        "tests/server/read/test_watch_storms.py::test_a_watch_that_fails_ends_and_costs_no_other_a_change",
        "tests/server/read/test_watch_storms.py::"
        "test_a_write_does_not_go_round_for_ever_if_the_cache_has_missed_a_change",
    ],
    "6 selectors with 60,000 terms": [
        f"{_LINEAR}[selector terms]",
        f"{_LINEAR}[selector values]",
        f"{_NO_STALL}[selector terms]",
        _BESIDE,
    ],
    "7 slow readers hold private copies": [
        "tests/server/read/test_recent_lists.py::test_clients_share_bytes_in_each_format_though_objects_change",
        "tests/server/read/test_watch_storms.py::"
        "test_watches_that_resume_and_watches_that_follow_share_the_bytes_of_events",
        "tests/server/http/test_slow_readers.py::test_a_client_that_reads_nothing_is_cut_off",
        "tests/server/read/test_watch_storms.py::test_a_watcher_that_does_not_read_is_cut_off_and_delays_no_other",
    ],
    "8 heavy lists delay the writes of others": [
        "tests/server/read/test_large_answers.py::test_a_write_does_not_wait_for_lists_of_other_clients",
        "tests/server/read/test_large_answers.py::test_a_turn_of_the_loop_has_one_slice_and_all_answers_take_turns",
        _BESIDE,
    ],
    "9 an APIService labelled automanaged ends aggregation": [
        "tests/extensions/aggregation/test_local_groups.py::"
        "test_built_in_api_services_that_are_labelled_automanaged_stay",
        "tests/extensions/aggregation/test_local_groups.py::"
        "test_api_services_that_are_labelled_automanaged_are_those_of_custom_kinds",
    ],
    "9 readyz is ok on a full disk": [f"{_HEALTH}::test_a_full_disk_is_not_ready_but_lives"],
    "9 readyz is ok without the data directory": [
        f"{_HEALTH}::test_a_deleted_data_directory_is_neither_ready_nor_live"
    ],
    "9 the cause of an end without the data directory is hidden": [
        f"{_HEALTH}::test_a_server_whose_data_directory_was_removed_ends_with_that_reason",
        "tests/cluster/processes/test_node.py::test_a_node_does_not_create_a_removed_data_directory_again",
    ],
    "9 readyz is ok after a write that failed": [f"{_LOST}::test_a_failed_write_is_checked_at_once"],
    "5 a frozen node holds up the end of the server": [
        "tests/cluster/processes/test_node.py::test_a_process_is_killed_though_the_task_that_stops_it_is_cancelled",
        "tests/cli/test_stop_signals.py::test_a_second_signal_ends_the_process",
    ],
    "10 GET * and OPTIONS *": [f"{_REQUESTS}::test_the_target_that_means_the_whole_server_is_answered"],
    "10 numbers of more than 4,300 digits": [
        f"{_REQUESTS}::test_a_body_that_cannot_be_an_object_is_refused[a number of 5,000 digits]",
        f"{_REQUESTS}::test_a_body_that_cannot_be_an_object_is_refused[a number of 5,000 digits in YAML]",
        "tests/model/test_quantity.py::test_more_digits_than_python_reads_are_no_error",
    ],
    "10 a webhook URL https://[::1": [
        f"{_REQUESTS}::test_a_webhook_url_that_is_none_is_refused",
        f"{_WEBHOOKS}::test_an_address_that_cannot_be_dialled_is_reported",
    ],
    "10 a webhook answers with code 99999999999": [
        f"{_WEBHOOKS}::test_an_answer_that_cannot_be_read_is_reported_in_the_words_of_kubernetes",
        f"{_WEBHOOKS}::test_a_webhook_that_fails_closes_or_opens_the_door[a huge code]",
    ],
    "10 an answer of a webhook that unpacks to hundreds of megabytes": [
        f"{_WEBHOOKS}::test_a_packed_answer_that_is_none_is_an_error_of_bounded_size",
    ],
    "10 a CRD pattern of 2.8 MB": [
        f"{_NO_STALL}[pattern]",
        "tests/schema/golang/test_patterns.py::test_the_longest_pattern_compiles_in_bounded_time",
    ],
    "10 150,000 finalizers": [f"{_LINEAR}[finalizers]", f"{_NO_STALL}[finalizers]"],
    "10 a damaged or missing WAL": [
        f"{_LOST}::test_lost_writes_are_reported_and_nothing_is_touched",
        f"{_LOST}::test_accepted_loss_starts_after_the_lost_revisions",
    ],
    "10 a lock file that was removed": [
        f"{_LOST}::test_a_second_process_is_refused_though_the_lock_file_was_removed",
        f"{_HEALTH}::test_a_removed_lock_file_stops_writes_at_once_and_fails_readyz",
    ],
    "10 a full disk at the start": [f"{_LOST}::test_a_full_disk_at_the_start_names_the_path_and_the_remedy"],
    "11 OpenAPI: empty lists and dangling references": [f"{_OPENAPI}::test_go_reads_every_document_without_loss"],
    "11 OpenAPI: words that kubectl's tests look for": [
        f"{_OPENAPI}::test_descriptions_have_the_words_that_the_tests_of_kubectl_look_for"
    ],
    "11 quotas of devices by class": [f"{_QUOTA}::test_devices_of_a_class_are_counted_and_limited"],
    "11 --no-controllers overwrites the status of quotas": [
        f"{_QUOTA}::test_without_its_controller_the_status_of_a_quota_is_left_to_another"
    ],
    "11 a clusterIP outside of the range may not change": [
        "tests/server/write/test_reservations.py::test_an_address_may_not_change_once_set"
    ],
    "11 extension-apiserver-authentication and legacy token tracking": [
        "tests/cluster/background/test_server_config_maps.py::test_both_exist_when_the_server_is_ready"
    ],
    "11 acceptable CAs in the TLS certificate request": [
        "tests/server/http/test_tls.py::test_the_request_for_a_certificate_names_the_cas_of_clients_and_of_proxies"
    ],
    "11 /metrics/slis": [f"{_HEALTH}::test_results_are_counted_by_check_and_page"],
    "11 componentstatuses": [
        "tests/cluster/health/test_component_statuses.py::test_the_list_names_the_three_components"
    ],
    "11 post-start hooks in /healthz?verbose": [f"{_HEALTH}::test_the_checks_that_kubernetes_tests_look_for_are_there"],
    "11 a caBundle with a leaf or an intermediate": [
        f"{_WEBHOOKS}::test_a_bundle_is_trusted_as_go_trusts_it",
        f"{_CERTIFICATES}::test_a_certificate_is_found_in_a_bundle_as_go_finds_it",
        f"{_CERTIFICATES}::test_a_bundle_that_cannot_be_used_fails_before_the_call",
        f"{_CERTIFICATES}::test_a_refused_certificate_is_explained_as_go_explains_it",
        f"{_CONVERSION}::test_an_established_definition_takes_no_bundle_without_a_certificate",
        f"{_CONVERSION}::test_a_definition_is_established_once_its_bundle_can_be_used",
        "tests/extensions/aggregation/test_availability.py::test_why_a_server_cannot_be_asked_is_reported",
    ],
    "11 // in the path of a webhook": [f"{_WEBHOOKS}::test_a_path_is_cleaned_as_kubernetes_cleans_it"],
    "12 cluster addresses are dialled from the host": [
        "tests/cluster/nodes/test_service_addresses.py::"
        "test_a_service_without_an_endpoint_to_dial_is_not_dialled_at_its_cluster_ip",
        "tests/extensions/aggregation/test_availability.py::test_addresses_of_the_cluster_network_are_never_called",
        "tests/admission/webhooks/test_webhook_services.py::test_a_service_that_is_not_there_is_named",
    ],
    "13 tests in the background, where SIGINT is ignored": [
        "tests/cli/commands/test_terminals.py::test_an_interrupt_is_the_commands_not_ours[ignored]",
    ],
}
