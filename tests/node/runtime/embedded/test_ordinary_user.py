"""The tests of this folder once more as an ordinary user, when root runs them."""

from __future__ import annotations

from tests.node.ordinary_user import needs_root, run_tests_as_ordinary_user


@needs_root
def test_everything_works_for_an_ordinary_user() -> None:
    run_tests_as_ordinary_user(
        *(
            f"node/runtime/embedded/test_{name}.py"
            for name in ("containers", "streams", "survival", "images", "file_trees")
        ),
        "node/images/test_unpacking.py",
        *(
            f"node/agent/test_{name}.py"
            for name in ("straight_line", "processes", "volumes", "volume_updates", "node_decisions")
        ),
    )
