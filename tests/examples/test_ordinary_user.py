"""The notes, the extensions as pods and the queue worker once more as an ordinary user, when root runs them."""

from __future__ import annotations

import pytest
from tests.node.ordinary_user import needs_root, run_tests_as_ordinary_user

_NOTES, _EXTENSIONS = "examples/test_notes.py", "examples/test_extensions_as_pods.py"
_ON_PODS = "examples/test_queue_worker.py::test_the_replicas_follow_the_queue_on_pods_that_run"
_OF_NODE = (
    "test_a_website_is_served_by_a_controller_that_runs_as_a_pod",
    "test_the_members_of_the_stateful_set_are_found_by_name",
    "test_a_killed_process_and_a_deleted_pod_come_back",
    "test_the_volumes_of_a_stateful_set_keep_their_data",
    "test_a_rolling_update_under_load_fails_no_request",
)
"""The notes whose end depends on the rights of the node: processes, network and volumes."""


@needs_root
def test_the_stories_of_pods_work_for_an_ordinary_user() -> None:
    run_tests_as_ordinary_user(*(f"{_NOTES}::{name}" for name in _OF_NODE), _EXTENSIONS)


@pytest.mark.soak
@needs_root
def test_every_story_works_for_an_ordinary_user() -> None:
    run_tests_as_ordinary_user(_NOTES, _EXTENSIONS, _ON_PODS)
