"""Metadata errors repeat as often as in Kubernetes: the numbers were recorded with one bad label."""

from __future__ import annotations

import pytest

from pinnace.kinds.validation.metadata_repeats import rounds
from pinnace.model.metadata import validate_repeated_update
from pinnace.model.objects import Object


@pytest.mark.parametrize(
    ("group", "plural", "subresource", "times"),
    [
        ("certificates.k8s.io", "certificatesigningrequests", "", 4),
        ("certificates.k8s.io", "certificatesigningrequests", "status", 4),
        ("certificates.k8s.io", "certificatesigningrequests", "approval", 4),
        ("apps", "deployments", "", 3),
        ("policy", "poddisruptionbudgets", "", 2),
    ],
)
def test_a_bad_label_is_reported_as_often_as_in_kubernetes(
    group: str, plural: str, subresource: str, times: int
) -> None:
    old: Object = {"metadata": {"name": "x", "resourceVersion": "1"}}
    new: Object = {"metadata": {**old["metadata"], "labels": {"bad label!": ""}}}
    told = list(validate_repeated_update(new, old, rounds(group, plural, subresource), namespaced=False))
    assert [cause.field for cause in told] == ["metadata.labels"] * times
