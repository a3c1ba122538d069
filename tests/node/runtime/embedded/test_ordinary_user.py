"""The tests of this folder once more as an ordinary user, when root runs them."""

from __future__ import annotations

import pytest
from tests.node.ordinary_user import needs_root, run_tests_as_ordinary_user, run_tests_as_user_with_ids

_START = tuple(
    f"node/runtime/embedded/start/test_{name}.py" for name in ("container_start", "last_moment", "published_escapes")
)
_RUNTIME = (
    *(f"node/machine/test_{name}.py" for name in ("file_trees", "messages", "removals")),
    *(f"node/runtime/embedded/launches/test_{name}.py" for name in ("root_plans", "seccomp")),
    *(f"node/runtime/embedded/supervision/test_{name}.py" for name in ("disk_usage", "lost_fork_server", "survival")),
    *("node/runtime/embedded/connections/test_streams.py", "node/runtime/embedded/test_containers.py"),
)
_AGENT = (
    *(f"node/agent/test_{name}.py" for name in ("straight_line", "published_attacks")),
    *(f"node/agent/volumes/test_{name}.py" for name in ("volumes", "volume_updates", "hostile_volumes")),
)
_PROCESSES = "node/agent/test_processes.py"


@needs_root
def test_the_runtime_works_for_an_ordinary_user() -> None:
    of_processes = (
        f"{_PROCESSES}::{name}"
        for name in (
            "test_files_are_copied_and_a_debug_container_sees_the_processes",
            "test_a_port_is_forwarded",
            "test_pods_outlive_a_killed_agent",
        )
    )
    run_tests_as_ordinary_user(*_START, *_RUNTIME, "node/images/test_unpacking.py", *_AGENT, *of_processes)


@needs_root
def test_a_start_gives_nothing_away_to_pods_of_a_user_with_subordinate_ids() -> None:
    run_tests_as_user_with_ids(*_START)


@pytest.mark.soak
@needs_root
def test_every_command_and_decision_of_the_agent_works_for_an_ordinary_user() -> None:
    run_tests_as_ordinary_user(_PROCESSES, "node/agent/pods/test_node_decisions.py")
