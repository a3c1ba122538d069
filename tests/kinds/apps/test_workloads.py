"""Workloads are defaulted, validated and changed as in Kubernetes."""

from __future__ import annotations

import copy

import pytest
from tests.kinds.workload_answers import Record, answer_of, expected_answer, recorded

from pinnace.kinds.apps.rollouts import amount_of
from pinnace.kinds.apps.validation import DEPLOYMENT
from pinnace.model.objects import Object


@recorded("deployments")
def test_deployments_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@recorded("replica_sets")
def test_replica_sets_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@recorded("stateful_sets")
def test_stateful_sets_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@recorded("daemon_sets")
def test_daemon_sets_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@recorded("replication_controllers")
def test_replication_controllers_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@recorded("pod_templates")
def test_pod_templates_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@recorded("controller_revisions")
def test_controller_revisions_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


def test_a_new_annotation_makes_a_new_generation_of_a_deployment() -> None:
    old: Object = {"metadata": {"name": "d", "generation": 3}, "spec": {}}
    DEPLOYMENT.default(old)
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {"a": "b"}
    DEPLOYMENT.prepare(new, old)
    assert new["metadata"]["generation"] == 4


@pytest.mark.parametrize(
    ("value", "amount"), [(3, 3), ("25%", 25), ("0%", 0), ("x", 0), ("7", 7), ("", 0), ("%", 0), ("-", 0)]
)
def test_an_amount_is_a_number_or_a_percentage(value: int | str, amount: int) -> None:
    assert amount_of(value) == amount
