"""Disruption budgets are defaulted, validated and changed as in Kubernetes."""

from __future__ import annotations

from tests.kinds.workload_answers import Record, answer_of, expected_answer, recorded


@recorded("budgets")
def test_disruption_budgets_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)
