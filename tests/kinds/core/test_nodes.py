"""The status of a node is validated as in Kubernetes."""

from __future__ import annotations

import pytest

from pinnace.kinds.core.nodes import NODE

_FORM = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["Fast", "Fast/lanes", "Slow"], []),
        (["a.b"], [f'[0]: Invalid value: "a.b": invalid feature name "a.b": {_FORM}']),
        (
            ["Slow", "Fast", "Fast"],
            ['[1]: Invalid value: "Fast": list must be sorted alphabetically', "[2]: Duplicate"],
        ),
        (
            ["F" * 254],
            [f'[0]: Invalid value: "{"F" * 254}": invalid feature name "{"F" * 254}": must be no more than 253'],
        ),
    ],
    ids=["in order", "no name", "out of order", "too long"],
)
def test_features_are_declared_by_name_and_in_order(features: list[str], message: list[str]) -> None:
    node = {"metadata": {"name": "one"}, "spec": {}, "status": {"declaredFeatures": features}}
    current = [str(cause) for cause in NODE.validate_status(node, node)]
    assert len(current) == len(message)
    for cause, words in zip(current, message, strict=True):
        assert cause.startswith(f"status.declaredFeatures{words}")
