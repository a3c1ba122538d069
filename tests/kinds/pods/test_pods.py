"""Pods are defaulted, validated and changed as in Kubernetes."""

from __future__ import annotations

import pytest
from tests.kinds.workload_answers import Record, answer_of, expected_answer, recorded

from pinnace.kinds.pods.defaults import pull_policy
from pinnace.kinds.pods.resource_amounts import qos_class
from pinnace.kinds.pods.strategy import POD, grace_period
from pinnace.model.objects import Object


@recorded("pods")
def test_a_write_is_answered_as_kubernetes_answers_it(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@pytest.mark.parametrize(
    ("spec", "status", "requested", "period"),
    [
        pytest.param({"terminationGracePeriodSeconds": 30}, {}, None, 0, id="nothing runs before it is scheduled"),
        pytest.param({"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, None, 30, id="its own period"),
        pytest.param({"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, 5, 5, id="what the caller asks"),
        pytest.param({"nodeName": "n"}, {}, -1, 1, id="never less than nothing"),
        pytest.param({"nodeName": "n"}, {"phase": "Failed"}, 30, 0, id="a failed pod ends at once"),
        pytest.param({"nodeName": "n"}, {"phase": "Succeeded"}, 30, 0, id="a finished pod ends at once"),
    ],
)
def test_a_deleted_pod_is_given_time_while_it_runs(
    spec: Object, status: Object, requested: int | None, period: int
) -> None:
    assert grace_period({"spec": spec, "status": status}, requested) == period


def test_defaults_come_once() -> None:
    pod: Object = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    POD.default(pod)
    once = repr(pod)
    POD.default(pod)
    assert repr(pod) == once


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("registry.example:5000/team/nginx", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        (f"nginx@sha256:{'a' * 64}", "IfNotPresent"),
        ("", "IfNotPresent"),
        ("Not An Image", "IfNotPresent"),
    ],
)
def test_the_latest_image_is_always_pulled(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def test_zero_requests_do_not_count_for_quality_of_service() -> None:
    assert qos_class({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}) == "BestEffort"
