"""Autoscalers are defaulted, validated and changed as in Kubernetes."""

from __future__ import annotations

from tests.kinds.workload_answers import Record, answer_of, expected_answer, recorded

from pinnace.kinds.autoscaling.validation import HORIZONTAL_POD_AUTOSCALER
from pinnace.model.objects import Object


@recorded("autoscalers")
def test_autoscalers_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


def test_defaults_are_not_shared_between_autoscalers() -> None:
    obj: Object = {"metadata": {}, "spec": {"behavior": {}}}
    other: Object = {"metadata": {}, "spec": {"behavior": {}}}
    for autoscaler in (obj, other):
        HORIZONTAL_POD_AUTOSCALER.default(autoscaler)
    obj["spec"]["metrics"][0]["resource"]["name"] = "memory"
    obj["spec"]["behavior"]["scaleUp"]["policies"].clear()
    assert other["spec"]["metrics"][0]["resource"]["name"] == "cpu"
    assert other["spec"]["behavior"]["scaleUp"]["policies"]
