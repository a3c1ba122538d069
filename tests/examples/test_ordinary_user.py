"""The notes, the extensions as pods and the queue worker once more as an ordinary user, when root runs them."""

from __future__ import annotations

from tests.node.ordinary_user import needs_root, run_tests_as_ordinary_user


@needs_root
def test_every_story_works_for_an_ordinary_user() -> None:
    on_pods = "examples/test_queue_worker.py::test_the_replicas_follow_the_queue_on_pods_that_run"
    run_tests_as_ordinary_user("examples/test_notes.py", "examples/test_extensions_as_pods.py", on_pods)
