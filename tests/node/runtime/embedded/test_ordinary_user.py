"""The tests of this folder once more as an ordinary user, when root runs them."""

from __future__ import annotations

import pytest
from tests.node.ordinary_user import needs_root, run_tests_as_ordinary_user

_RUNTIME = tuple(
    f"node/runtime/embedded/test_{name}.py" for name in ("containers", "streams", "survival", "images", "file_trees")
)
_AGENT = tuple(f"node/agent/test_{name}.py" for name in ("straight_line", "volumes", "volume_updates"))
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
    run_tests_as_ordinary_user(*_RUNTIME, "node/images/test_unpacking.py", *_AGENT, *of_processes)


@pytest.mark.soak
@needs_root
def test_every_command_and_decision_of_the_agent_works_for_an_ordinary_user() -> None:
    run_tests_as_ordinary_user(_PROCESSES, "node/agent/test_node_decisions.py")
