"""Volumes and claims are stored and rejected as in Kubernetes."""

from __future__ import annotations

from tests.kinds.recorded_answers import Record, answer_of, expected_answer, recorded


@recorded("volumes")
def test_a_write_is_answered_as_kubernetes_answers_it(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)
